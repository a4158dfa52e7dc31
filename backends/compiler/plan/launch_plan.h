// SPDX-License-Identifier: Apache-2.0
// LaunchPlan: what one launch of an executable does, as data.
//
// Steps run in order, or in any order that keeps what they read and write apart. Buffers are named
// by slices: of the launch's inputs and outputs, of arenas (temporary memory of one launch), of
// constants, which live as long as the executable, and of what the launch says of its device. There
// is no device handle in it: backends turn kernels into code and slices into addresses. Immutable
// once made; read by any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "backends/compiler/kernel/contraction.h"
#include "backends/compiler/kernel/contraction_rows.h"
#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/kernel/kernel.h"
#include "backends/compiler/kernel/transform.h"
#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

struct Slice {
  enum class Space : uint8_t { kInput, kOutput, kArena, kConstant, kLaunch };
  Space space = Space::kArena;
  int32_t index = 0;  // which input, output, arena or constant; 0 for what the launch says
  int64_t offset = 0;
  int64_t bytes = 0;
  bool operator==(const Slice&) const = default;
};

// What Space::kLaunch holds, u32 each: which device of the launch this is, and how often the
// executable was launched before.
inline constexpr int64_t kReplicaOffset = 0;
inline constexpr int64_t kPartitionOffset = 4;
inline constexpr int64_t kLaunchNumberOffset = 8;
inline constexpr int64_t kLaunchBytes = 12;

// Runs LaunchPlan::kernels[kernel]; one slice per operand of the kernel, of the operand's size.
// Slices that are written overlap no other slice of the step, but for an identical one: an operand
// that is updated in place, each point reading only what it writes.
struct KernelStep {
  int32_t kernel = 0;
  std::vector<Slice> operands;
};

// Runs LaunchPlan::contractions[contraction]; only in plans for back ends that have code for it.
// `out` overlaps neither operand.
struct ContractionStep {
  int32_t contraction = 0;
  Slice lhs;
  Slice rhs;
  Slice out;
  kernel::RowsOf rows_of = kernel::RowsOf::kNone;  // in a RowsStep: what its rows are
  bool leads = false;                              // the first of a RowsStep, see there
};

// Fourier transforms along one dimension; only in plans for back ends that have code for it. `to`
// overlaps neither of the others.
struct TransformStep {
  kernel::Transform transform;
  Slice from;
  Slice roots;  // kernel/transform.h
  Slice to;
};

// Copies `from` to `to`, of equal size. They do not overlap, or are the same.
struct CopyStep {
  static constexpr const char* kName = "copy";
  Slice from;
  Slice to;
};

// An operation that has no kernel, run on the host by the reference evaluator.
struct HostStep {
  std::string name;                           // "stablehlo.sort"
  std::string reason;                         // why it has no kernel, for people
  std::shared_ptr<const ir::Module> program;  // entry function: the operation on its operands
  std::vector<Slice> inputs;                  // one per argument of the entry, dense
  std::vector<Slice> outputs;                 // one per result
};

// Starts an operation in which the devices of a launch meet; a communication lane of the device
// ends it while the steps run up to the DoneStep of its number, which stands in the same list.
// Until then nobody writes the inputs or touches the outputs, in whatever memory a step may name
// them.
struct StartStep {
  int32_t number = 0;                         // of no other one that is under way
  std::string name;                           // "stablehlo.all_reduce"
  std::shared_ptr<const ir::Module> program;  // entry function: the operation on its operands
  std::vector<Slice> inputs;                  // one per argument of the entry, dense
  // One per result, each in the place of an input or apart from all.
  std::vector<Slice> outputs;
};

// Waits for it. The same slices: to whoever asks what happens before what, both steps do with them
// all that is done in between.
struct DoneStep {
  int32_t number = 0;
  std::vector<Slice> inputs;
  std::vector<Slice> outputs;
};

struct Step;
using Steps = std::vector<Step>;

// Runs `body` `count` times.
struct RepeatStep {
  // What the program says, once several iterations stand in one body or the first ones before the
  // loop (rotate.h).
  int64_t count = 0;
  Steps body;
};

// Runs `condition`, then, while the byte at `predicate` is not 0, `body` and `condition` again.
struct WhileStep {
  static constexpr const char* kName = "while";
  Steps condition;
  Slice predicate;
  Steps body;
};

// Runs one of the branches. `selector` is an i32, clamped to the last branch when out of range, or
// a predicate of one byte with two branches: the first for true.
struct BranchStep {
  static constexpr const char* kName = "branch";
  Slice selector;
  std::vector<Steps> branches;
};

// The number of the branch that runs, by the bytes of the selector.
inline size_t chosen_branch(const BranchStep& step, const std::byte* selector) {
  if (step.selector.bytes == 1) return *selector != std::byte{0} ? 0 : 1;
  int32_t index = 0;
  std::memcpy(&index, selector, sizeof(index));
  const size_t last = step.branches.size() - 1;
  return index < 0 || static_cast<size_t>(index) > last ? last : static_cast<size_t>(index);
}

// Runs `steps`, which are kernels and contractions, in order; or all of them on some rows, then all
// on others, in any order and in parallel. Each has `rows` rows (kernel/row_access.h,
// kernel/contraction_rows.h). What one of them writes and another touches is row-wise in both, with
// rows of the same bytes; rows of a slice begin at its offset. Where the first one leads, it is a
// contraction that runs as a whole, and the others, kernels, take rows of its result once all sums
// of theirs are final.
struct RowsStep {
  int64_t rows = 0;
  Steps steps;
  int64_t row_bytes = 0;  // of a row, in all row-wise slices
  // Slices that only these steps name, and that are written before they are read: `rows` rows each,
  // whose contents nobody wants afterwards. None that a step which leads touches.
  std::vector<Slice> scratch;

  bool is_led() const;
};

// A new type of step: docs/adding_a_step.md.
struct Step {
  std::variant<KernelStep, ContractionStep, CopyStep, HostStep, RepeatStep, WhileStep, BranchStep,
               RowsStep, StartStep, DoneStep, TransformStep>
      what;
  // The operation that it computes, the last one where there are several; null: unknown. For
  // people.
  std::shared_ptr<const ir::LocationParts> origin = nullptr;
};

inline bool RowsStep::is_led() const {
  const auto* first = steps.empty() ? nullptr : std::get_if<ContractionStep>(&steps[0].what);
  return first != nullptr && first->leads;
}

// Why an operation that can be done in several ways is done in one of them. For people: steps do
// not depend on it.
struct Decision {
  std::string operation;
  std::vector<kernel::Implementation> implementations;
  bool operator==(const Decision&) const = default;
};

struct LaunchPlan {
  std::vector<kernel::Kernel> kernels;            // no two equal
  std::vector<kernel::Contraction> contractions;  // no two equal
  std::vector<HostArray> constants;
  std::vector<int64_t> input_bytes;
  std::vector<int64_t> output_bytes;
  // Per output: the input whose memory it may take when that input is donated, or -1. The plan is
  // right in both cases: steps name the output, and a CopyStep from the input, which is nothing
  // when both are the same memory, stands where the input's value is still needed there.
  std::vector<int32_t> output_input;
  // Bytes of each arena: one, or several where a device has no memory in one piece for all
  // temporaries (DeviceTraits::max_arena_bytes). Memory of its own each; a slice lies in one.
  std::vector<int64_t> arenas;
  // The last bytes of the arenas, one behind the other, which scratch of RowsSteps alone has:
  // whoever runs all of those a few rows at a time needs no memory there.
  int64_t row_scratch_bytes = 0;
  Steps steps;
  std::vector<Decision> decisions;  // no two equal

  int64_t arena_bytes() const;  // of all
  // Bytes of each arena that is left without the scratch of rows.
  std::vector<int64_t> arenas_without_scratch() const;
};

inline int64_t LaunchPlan::arena_bytes() const {
  return std::accumulate(arenas.begin(), arenas.end(), int64_t{0});
}

inline std::vector<int64_t> LaunchPlan::arenas_without_scratch() const {
  std::vector<int64_t> left = arenas;
  int64_t scratch = row_scratch_bytes;
  for (auto last = left.rbegin(); last != left.rend() && scratch > 0; ++last) {
    const int64_t here = std::min(*last, scratch);
    *last -= here;
    scratch -= here;
  }
  return left;
}

// "input", "output", "arena", "constant", "launch".
const char* space_name(Slice::Space space);
// "input 1 [16]", "output 0 +64 [16]", "arena +128 [4096]", "arena 1 +0 [64]" of another one than
// the first.
std::string to_string(const Slice& slice);
// One line a step, kernels by number; for people and tests.
std::string to_string(const LaunchPlan& plan);
// Each with what every way said.
std::string decisions_string(const std::vector<Decision>& decisions);
// The scalar code of every kernel, by number.
std::string kernels_string(const LaunchPlan& plan);
// Of a kernel by number: "kernel 3 add grid [4, 8]".
std::string kernel_title(const LaunchPlan& plan, size_t number);
// Of a contraction by number: "contraction 0 1 x 128 x 256 x 512 bf16".
std::string contraction_title(const LaunchPlan& plan, size_t number);
// What a step is, without its slices: "kernel 3 add grid [4, 8]", "copy", "repeat 5 times".
std::string to_string(const Step& step, const LaunchPlan& plan);
// Sizes and numbers of steps by name, those inside loops and branches counted once.
std::vector<std::pair<std::string, int64_t>> statistics(const LaunchPlan& plan);

}  // namespace hekla::plan
