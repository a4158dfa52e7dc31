// SPDX-License-Identifier: Apache-2.0
// What all ways to reduce lines in several kernels have in common: the shape of a reduction, what
// its reducer allows, and the parts of kernels that do several reductions of the same lines at once
// (reduce.cc: in stages, reduce_tree.cc: by trees). Of this folder alone. Pure; an object of
// ReduceKernels makes one sequence, on one thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/compiler/lower/kernel_maker.h"
#include "backends/compiler/lower/sequence.h"

namespace hekla::lower {

// What may be done with a reducer beside keeping the order of the elements.
enum class Order {
  kSum,         // they may be taken in any order, and -0 or 0 changes nothing
  kIdempotent,  // in any order, and any of them twice
  kAny,         // in any order
  kFixed,
};

Order order_of(const ir::Operation& op);
// Of a reduction with one or several results: whether each is reduced for itself, by an operation
// that has an order other than kFixed.
bool is_of_free_orders(const ir::Operation& op);
// Whether the reducer only compares and chooses, as those of argmin and argmax do: elements may be
// put together in any way that keeps their order.
bool is_choice(const ir::Operation& op);

// Whether the reducer of (value, index) pairs is that of argmin and argmax (the least or greatest
// value, of floats a NaN before all others, and of equal ones the least index), the indices are
// those of the elements along their line, and nobody asks for the value, whose sign would tell
// which of two zeros came last: then the pairs may be put together in any order, the one with the
// smaller index first.
bool is_choice_by_index(const ir::Operation& op);

// The shape of a reduction: lines of `length` elements, one per element of the kept dimensions.
struct Lines {
  std::vector<size_t> kept, reduced;  // dimensions of the operands
  Dims kept_sizes, reduced_sizes;
  int64_t count = 1;
  int64_t length = 1;
  int64_t contiguous = 1;  // kept elements behind the last reduced dimension
  bool is_dense = false;   // a line's elements are contiguous
  bool is_column = false;  // contiguous elements belong to different lines
};

Lines lines_of(const ir::Operation& op);

// How trees share out a line of so many elements: `parts` teams of `points` points, which take
// elements by blocks, or of `columns` adjacent lines those that are contiguous in memory.
struct TreeShape {
  int64_t points = 1;
  int64_t parts = 1;
  int64_t block = 1;
  int64_t columns = 1;
};
TreeShape tree_shape(const Lines& lines, int64_t length, const LowerOptions& options);

// What sums start at: x + -0 is x for every float x.
Element negative_zero(KernelMaker& k, DType dtype);

// Why `op` is none that kernels of this folder may cut: no reduce of static tensors into their own
// type, or an empty one. Empty: it is one.
kernel::Refusal why_no_lines(const ir::Operation& op);

class ReduceKernels {
 public:
  // `outputs`: results of one operation, or of several that are_siblings.
  ReduceKernels(const Outputs& outputs, const InMemory& in_memory, const LowerOptions& options);

 protected:
  using Temporaries = std::vector<Temporary>;
  // The elements of all parts, one part's behind the other's.
  using At = std::function<Elements(Value)>;

  // A reduction; its elements are `count` from `first` on.
  struct Part {
    const ir::Operation* op = nullptr;
    Order order = Order::kFixed;
    size_t first = 0;
    size_t count = 0;
  };
  static Elements of(const Part& part, const Elements& all) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(part.first);
    return {begin, begin + static_cast<ptrdiff_t>(part.count)};
  }
  static void append(Elements& to, const Elements& elements) {
    to.insert(to.end(), elements.begin(), elements.end());
  }

  Temporaries add(int64_t elements);
  Status finish(KernelMaker& k);
  // A grid over the lines and what is given, in this order or the other.
  std::vector<int64_t> grid(std::vector<int64_t> outer, const std::vector<int64_t>& inner) const;
  int64_t largest() const;
  // The number of the line, whose dimensions begin at `first` in the grid; `last`: its place in the
  // last one, where that is not the grid's.
  Value line(KernelMaker& k, size_t first, Value last = kernel::kNoValue) const;
  // Element `t` of that line.
  Elements element(KernelMaker& k, size_t first, Value t, Value last = kernel::kNoValue) const;
  Elements load(KernelMaker& k, const Temporaries& from, Value at) const;
  void store(KernelMaker& k, const Temporaries& to, Value at, const Elements& elements) const;
  void store_result(KernelMaker& k, size_t first, const Elements& elements,
                    Value last = kernel::kNoValue) const;
  static Elements combine(KernelMaker& k, const Part& part, const Elements& before,
                          const Elements& after);
  Elements initial(KernelMaker& k) const;
  Elements zero(KernelMaker& k, const Part& part) const;
  // `total` and then elements 0 .. count of `at`.
  Elements add_chain(KernelMaker& k, int64_t count, const Elements& total, const At& at) const;

  Value place(KernelMaker& k, size_t first, size_t kept, Value last) const;

  const Lines lines_;
  const Outputs& outputs_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  int64_t inlined_ = 1;  // largest_inlined
  std::vector<Part> parts_;
  std::vector<DType> dtypes_;  // of all elements
  LoweredSequence sequence_;
};

}  // namespace hekla::lower
