// SPDX-License-Identifier: Apache-2.0
// From a group of StableHLO operations to one kernel.
//
// Pure functions of the IR. The caller decides which values are in memory; all other values that
// the outputs need are computed inside the kernel.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/kernel/kernel.h"
#include "backends/compiler/kernel/matrix_unit.h"
#include "backends/compiler/kernel/transform.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::lower {

// How an operation takes part in kernels.
enum class Role : uint8_t {
  kNone,         // no scalar form: a host step, or control flow
  kConstant,     // a constant or iota: needs no operand, computed anywhere
  kElementwise,  // element i of the result needs element i of the operands
  kMovement,     // an element is an element of an operand, found by index arithmetic
  kReduction,    // an element needs a loop over many elements of the operands
  kSequence,     // several kernels with memory between them; operands and results are in memory
};

struct LowerOptions {
  // Scalar instructions of one kernel; RESOURCE_EXHAUSTED beyond it.
  size_t max_instructions = 20'000;
  // For devices on which one thread that goes through all updates of a large scatter takes less
  // time than many that sort them. The bits are the same.
  bool scatters_in_order = false;
  // Updates that a point of one kernel goes through, for devices that bound the iterations of a
  // loop; 0: all. The bits are the same.
  int64_t most_updates_at_once = 0;
  // Points of a team that reduces a line by a tree (kernel::Exchange), at most; a power of two. 1:
  // elements are taken in their order. Sums of floats have other bits.
  int64_t team_points = 1;
  // Words of memory that the points of a team share, at most, with what they exchange; 0: none.
  // Cumulative reductions and sorts are then done by teams of team_points.
  int64_t team_words = 0;
  // Points and words of the teams that compute attention without its scores in memory
  // (attention.h); 1: none do. Sums of floats have other bits.
  int64_t attention_points = 1;
  int64_t attention_words = 0;
  // Whether they do however small it is, and where matrix units would compute its products.
  bool attention_always = false;
  // Whether a team has rows of queries or a part of the keys.
  // (kTiles, kKeys), or a block of rows whose products matrix units compute (kMatrix), where they
  // can.
  enum class AttentionForm : uint8_t { kBySize, kTiles, kKeys, kMatrix };
  AttentionForm attention_form = AttentionForm::kBySize;
  // The units that teams of attention may use; and the block of such a team, 0: by size.
  std::vector<kernel::MatrixUnit> matrix_units;
  int64_t attention_subgroups = 0, attention_keys = 0, attention_width = 0;
  // Where not empty, contractions are those of a device with matrix units for these types
  // (plan::DeviceTraits::matrix_types).
  std::vector<DType> matrix_types;
  // Such a device also multiplies f32 as products of pieces of this type, where an algorithm allows
  // at most so many; f32: it does not. f16 has not f32's range, which is nobody's care then.
  DType piece_type = DType::kF32;
  int32_t most_piece_products = 1;
  // The device has code of its own for Fourier transforms of lines. The bits are the same.
  bool has_transforms = false;
  // For tests: what sizes decide is decided at small ones, so that small arrays go all the ways
  // that large ones do. Sums of floats may have other bits.
  bool small_limits = false;
};

// Whether a value is a tensor of known dimensions whose elements are what they say.
inline bool is_plain(const ir::Value& value) {
  return value.type().is_static_tensor() && value.type().quantization() == nullptr;
}

// Looks at opcode, types and regions; tries the emission of operations with one. Cheap but not
// free: ask once per operation.
Role role_of(const ir::Operation& op, const LowerOptions& options = {});
// Whether an operation of one operand gives the operand's elements in the same row-major order:
// reshape, and broadcast_in_dim that only adds dimensions of size 1.
bool keeps_row_major_order(const ir::Operation& op);
// Why a reduce is not done by trees of points that exchange values (LowerOptions::team_points), or
// not in stages: parts of its lines, then the parts. Empty: it can be. Trees come first.
kernel::Refusal why_no_tree_reduce(const ir::Operation& op, const LowerOptions& options);
inline bool is_tree_reduce(const ir::Operation& op, const LowerOptions& options) {
  return op.code() == ir::OpCode::kReduce && why_no_tree_reduce(op, options).empty();
}
// Whether a reduce by trees goes along the last dimension, one team for each line, so that a kernel
// that keeps a line in registers may compute it with what stands around it; and the elements that
// each of its points then has.
bool is_row_reduce(const ir::Operation& op, const LowerOptions& options);
int64_t elements_of_row_point(const ir::Operation& op, const LowerOptions& options);
kernel::Refusal why_no_staged_reduce(const ir::Operation& op, const LowerOptions& options);
// Whether a reduce has kernels of its own, in one way or the other, which compute its operands and
// nothing behind it: it stands alone, its results in memory.
inline bool is_staged_reduce(const ir::Operation& op, const LowerOptions& options) {
  return op.code() == ir::OpCode::kReduce &&
         (is_tree_reduce(op, options) || why_no_staged_reduce(op, options).empty());
}
// Whether two such operations go through the same lines in an order that both may take, so that the
// same kernels can do both.
bool are_siblings(const ir::Operation& a, const ir::Operation& b, const LowerOptions& options);
// Whether a scatter goes through its updates in order: each is asked for once, each index vector by
// a thread or a few, so both may be computed inside.
kernel::Refusal why_no_scatter_in_order(const ir::Operation& op, const LowerOptions& options);
inline bool is_scatter_in_order(const ir::Operation& op, const LowerOptions& options) {
  return op.code() == ir::OpCode::kScatter && why_no_scatter_in_order(op, options).empty();
}
// Why the updates of a scatter are so few that each element of the result looks through them;
// empty: they are more, and are sorted or taken in order.
kernel::Refusal why_no_large_scatter(const ir::Operation& op, const LowerOptions& options);
// Why a reduce_window is not done in blocks of its lines, as a cumulative reduction: each element
// of the result then reads its whole window. Empty: it is.
kernel::Refusal why_no_scan(const ir::Operation& op, const LowerOptions& options);
// Why such a scan is not done by teams of points (LowerOptions::team_words); empty: it is.
kernel::Refusal why_no_team_scan(const ir::Operation& op, const LowerOptions& options);
// Why a sort does not keep the first few elements of parts of its lines alone; and why it is not
// done digit by digit of its keys by teams: it then sorts blocks and merges them. Empty: it is, the
// first one first. For a sort with a kernel.
struct SortRefusals {
  kernel::Refusal partial, by_digits;
};
SortRefusals why_no_sort(const ir::Operation& op, const LowerOptions& options);
// Why the lines of an fft, along none of its dimensions, are transformed as a whole by code of the
// device's own; empty: along some they are, but along the first one where it is dense and the
// operand is computed by its reader. For an fft with kernels.
kernel::Refusal why_no_transform(const ir::Operation& op, const LowerOptions& options);
// How many updates an element of a scatter's result looks through.
double scatter_updates(const ir::Operation& op);
// Why role_of says kNone, for people.
std::string why_no_kernel(const ir::Operation& op);

// An operand of a kernel that was built, in the order of Kernel::operands: a value, or, when that
// is null, temporary memory or a constant of the sequence that the kernel belongs to.
struct BoundOperand {
  const ir::Value* value = nullptr;
  bool is_output = false;
  int32_t temporary = -1;
  int32_t constant = -1;
  bool operator==(const BoundOperand&) const = default;
};

struct LoweredKernel {
  kernel::Kernel kernel;
  std::vector<BoundOperand> operands;
  // In place of the kernel; the operands are the source, the roots and the target.
  std::optional<kernel::Transform> transform = std::nullopt;
};

// Kernels that run in this order and, before them, copies of whole values.
struct LoweredSequence {
  struct Copy {
    const ir::Value* from = nullptr;  // an operand of the operation
    const ir::Value* to = nullptr;    // its result of the same type, some of which kernels write
  };
  std::vector<Copy> copies;
  std::vector<int64_t> temporaries;  // bytes of each; their contents are undefined at first
  std::vector<HostArray> constants;
  std::vector<LoweredKernel> kernels;
};

// One kernel that computes `outputs`, which have equal dimensions without a zero. `in_memory` says
// of any value that an output depends on whether it is loaded or computed. UNIMPLEMENTED: an
// operation without scalar form.
Result<LoweredKernel> lower_kernel(const std::vector<const ir::Value*>& outputs,
                                   const std::function<bool(const ir::Value&)>& in_memory,
                                   const LowerOptions& options = {});

// The same with as many kernels as it takes: what a planner asks for. Operations of role kSequence
// stand alone: `outputs` are results of one. So do staged reductions, but for siblings.
Result<LoweredSequence> lower_sequence(const std::vector<const ir::Value*>& outputs,
                                       const std::function<bool(const ir::Value&)>& in_memory,
                                       const LowerOptions& options = {});

// Where in the result of a dynamic_update_slice its update lies, in elements, when that is known
// and the update is contiguous there; nullopt otherwise.
std::optional<int64_t> fixed_place(const ir::Operation& update);

// Whether `slice`, a dynamic_slice, reads of an array the window that `update`, a
// dynamic_update_slice of the same array, then writes, and elements go through elementwise
// operations and reshapes to where they were, and nowhere else: a point of the update's kernel that
// computes all of that reads only the element that it writes.
bool feeds_its_window(const ir::Operation& slice, const ir::Operation& update);

// One kernel that writes `update` (a dynamic_update_slice) into the memory of its first operand:
// the grid is the update's, and the result is the operand's buffer. The only output operand is the
// operation's result.
Result<LoweredKernel> lower_update_in_place(const ir::Operation& update,
                                            const std::function<bool(const ir::Value&)>& in_memory,
                                            const LowerOptions& options = {});

}  // namespace hekla::lower
