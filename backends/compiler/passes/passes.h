// SPDX-License-Identifier: Apache-2.0
// Passes over a module, each in place and each leaving a module that verifies and computes the
// same, but for the bits of sums where a pass says so.
//
// A pass that fails leaves the module in a state that may only be destroyed. One thread a module.
#pragma once

#include <functional>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// Puts the bodies of called functions and of composites' decompositions in place of the calls, in
// the entry function and its regions, and drops all other functions that are not called any more.
// The composite chlo.erf gets a formula that is more accurate than its decomposition (erf.h).
// Annotations without meaning on one device (shardings, placements, optimization_barrier) are
// replaced by their operands. FAILED_PRECONDITION: recursion, or more than a million operations.
Status inline_calls(ir::Module& module);

// Forwards get_tuple_element of tuple, merges equal pure operations of a block and those around it,
// and removes pure operations without users.
void clean_up(ir::Module& module);

// Removes operations that change nothing (a reshape to the same shape, a full slice, a transpose
// that keeps the order), folds movements of equal elements into constants, joins reshapes,
// transposes and broadcasts that follow each other, and takes slices from the operand of a
// concatenate that they lie in. What dies by it stays for clean_up.
void simplify(ir::Module& module);

// Reductions over no elements become their initial values, which need no other device's elements.
void fold_empty_sums(ir::Module& module);

// dot_general and convolution with results of bf16 or f16 give f32, the type that their sums are
// taken in, and a convert rounds the sum: the same number, and the convert joins a kernel. Those of
// which `is_wanted` says so, which is asked of the operation that gives f32, and `is_kept`, which
// is asked of the one that is there, does not.
void widen_contractions(ir::Module& module,
                        const std::function<bool(const ir::Operation&)>& is_wanted,
                        const std::function<bool(const ir::Operation&)>& is_kept = nullptr);

// Contractions of few elements with long sums, for devices whose units outnumber the elements: the
// sums are cut into equal parts, taken side by side as one more batch dimension or as groups of
// features, and a reduce adds the parts; what is left where there are no equal ones is an operation
// like the whole one, added last. Shapes and types alone decide; sums have other bits.
struct SplitLimits {
  // Elements of the results, parts counted, that fill a device whose invocations have several each;
  // products of a sum from which on it is cut, and of a part.
  int64_t most_points = int64_t{1} << 20;
  int64_t long_depth = 256;
  int64_t least_depth = 64;
  // Results with so few elements that each has a subgroup: the same for them.
  int64_t few_points = 4096;
  int64_t most_few_points = 8192;
  int64_t least_depth_of_few = 1024;
  // From here on even those are cut as finely as others.
  int64_t long_depth_of_few = 8192;
};
// `is_kept`: those that stay whole.
Status split_contractions(ir::Module& module, const SplitLimits& limits,
                          const std::function<bool(const ir::Operation&)>& is_kept = nullptr);

// Scatters that add windows to the few elements that indices choose (segment sums) become a reduce
// over all updates, for devices that reduce by trees; sums of floats have other bits.
struct SmallScatterLimits {
  int64_t least_updates = 64;
  // Updates that the elements look at, all together.
  int64_t most_looked = int64_t{1} << 24;
};
Status reduce_small_scatters(ir::Module& module, const SmallScatterLimits& limits);

// A product of real floats whose one operand has at most `most_columns` columns (or rows) becomes a
// reduction of the other operand times each of them, in f32 at least, for devices that reduce lines
// by trees: what bounds it is the memory of the large operand, read in its own order.
struct ThinProductLimits {
  int64_t most_columns = 8;
  int64_t least_line = 32;  // products of a sum
  // Of the large operand: with one column, and with several.
  int64_t least_elements = int64_t{1} << 14;
  int64_t least_elements_of_several = int64_t{1} << 20;
  // Sums whose terms are no neighbours in memory are cut into at most so many equal parts, each of
  // at least so many terms, as long as there are no more than so many sums with their parts: what
  // adds the few parts becomes a part of other kernels.
  int64_t most_parts = 16;
  int64_t least_part = 128;
  int64_t most_sums = int64_t{1} << 15;
};
// `is_kept`: those that stay products.
Status sum_thin_products(ir::Module& module, const ThinProductLimits& limits,
                         const std::function<bool(const ir::Operation&)>& is_kept = nullptr);

// Concatenates of many operands, and of such, are written operand by operand into one array: as
// arithmetic, each element would look at all operands. Where all of it together is little work the
// arithmetic stays, which is one kernel. Dead operations stay: clean_up removes them.
struct WideConcatenateLimits {
  int64_t least_operands = 8;
  // Adjacent elements of an operand in the result, on average, from which on it is worth while, and
  // how many operands those of less must be: then all of them touch the same lines of a cache.
  int64_t least_run = 16;
  int64_t least_operands_of_short_runs = 64;
  int64_t least_work = int64_t{1} << 22;  // elements times operands
};
Status write_wide_concatenates(ir::Module& module, const WideConcatenateLimits& limits);

struct WindowLimits {
  // Elements of an array from which on looking at all of them takes longer than one kernel more.
  int64_t least_updated = 1 << 16;
  // A window of at most this part of the array is little of it.
  int64_t little = 64;

  bool is_little(int64_t window, int64_t array) const {
    return array >= least_updated && window <= array / little;
  }
};
// Scatters into one window at constant indices that lie inside become a select of the operand and
// the padded update, or a dynamic_update_slice where the window is small. Where it is little of a
// large array that is only passed on, as from one iteration of a loop to the next, those that
// change what is there, in memory, and those at other indices become a dynamic_update_slice too:
// what they make of the window is elementwise arithmetic, or a map of the region. Folds the small
// integer constants that such indices are made of. Dead operations stay: clean_up removes them.
void rewrite_static_windows(ir::Module& module, const WindowLimits& limits = {});

// A select of an array and of what updates of a little of it make of it becomes updates by what is
// selected: a dynamic_update_slice writes the old elements, and a scatter nothing, where the mask
// says so. Where the mask is one flag, or for scatters one for each example of a batch, and the
// array is large, in memory and only passed on. The same bits.
Status mask_updates(ir::Module& module, const WindowLimits& limits = {});

// A large array plus or minus one that is 0 but for a window, for what a scatter adds, or for what
// a branch makes of these, as in gradients of loops that index a table and in steps along them,
// changes only that little of the array, where it is in memory and only passed on; sums of such
// terms and their multiples by constants too. Only where the array keeps its bits elsewhere: -0 + 0
// is 0, so it must be known to have no -0 then, as one that begins at 0 and is only added to. The
// same bits, but where several terms are added up: they are added one after the other.
Status add_in_place(ir::Module& module, const WindowLimits& limits = {});

// Reads of a little of an array that stand behind an update of it and do not depend on that come to
// stand before it, with what computes their places, where nobody else needs the array behind it.
void read_before_updates(ir::Module& module, const WindowLimits& limits = {});

// cholesky and triangular_solve become loops over columns or rows of blocks, with contractions
// between the blocks; dot becomes dot_general, the custom call ApproxTopK an exact sort, mhlo.erf
// elementwise arithmetic. With `lapack`, cholesky and triangular_solve for which LAPACK is faster
// (is_for_lapack) stay as they are. A complex operand of cholesky that is a quotient by a real
// constant is divided by parts.
Status expand(ir::Module& module, bool lapack = false);

// Whether LAPACK on the host takes this cholesky or triangular_solve in less time than kernels of
// the same processor: by types and sizes alone.
bool is_for_lapack(const ir::Operation& op);

// The batch_norm operations become reductions and elementwise arithmetic, in f32 for narrower
// floats. Those of no elements stay.
Status expand_batch_norms(ir::Module& module);

// rng becomes elementwise arithmetic that gives the evaluator's numbers. All of them or, where one
// stands in the region of another operation than a loop's body or a branch, none: the evaluator
// then counts them.
Status expand_rng(ir::Module& module);

// Convolutions of images with few features take their padding from a pad operation before them: a
// row of the window is then one run of memory everywhere. The same products, so the same bits.
void pad_convolutions(ir::Module& module);

// An operation between async_start and async_done stands where it starts, in its plain form: the
// plan decides what runs beside it (plan/overlap.h). Futures that go elsewhere, through loops or
// branches, stay.
void rewrite_asynchronous(ir::Module& module);

// Whether running the operation has no effect but its results, so that it may be merged, moved and
// removed. Operations with regions are as pure as what is in them.
bool is_pure(const ir::Operation& op);

}  // namespace hekla::passes
