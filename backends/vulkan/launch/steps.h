// SPDX-License-Identifier: Apache-2.0
// What an executable does on the device: its steps, as data.
//
// A compiler writes a LaunchProgram; DeviceProgram records and launches it. Steps run in their
// order as far as their memory accesses conflict; barriers are put in by the hazard tracker, so a
// step says exactly what it reads and writes. Memory is named by slices of four spaces:
//
//   kInput i     the i-th input's buffer; read only, except through an output that aliases it
//   kOutput i    the i-th output's buffer
//   kArena       the launch's temporary memory (index 0)
//   kConstant i  the i-th constant; read only
//
// An output with alias_input = j takes the memory of input j where the caller donated it; it begins
// with the input's bytes, by a copy that is made first where the memory is another. Once a step has
// written such an output, the input's old bytes are gone, whether they were donated or not.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backends/vulkan/pipeline/pipelines.h"
#include "runtime/base/status.h"

namespace hekla::vulkan {

struct Slice {
  // kLoopState is the runtime's own; programs do not name it.
  enum class Space : uint8_t { kInput, kOutput, kArena, kConstant, kLoopState };
  Space space = Space::kArena;
  int64_t index = 0;
  int64_t offset = 0;  // bytes
  int64_t bytes = 0;
  bool operator==(const Slice&) const = default;
};

// One start of a kernel; kernel_abi.h says how it gets its arguments.
struct DispatchStep {
  int64_t pipeline = 0;          // index into LaunchProgram::kernels
  std::vector<Slice> operands;   // the entries of the kernel's argument table, in order
  std::vector<bool> is_written;  // per operand; a written one may be read too
  std::array<uint32_t, 3> groups = {1, 1, 1};  // the logical grid; nothing runs when one is 0
  std::vector<uint32_t> constants;             // push constants after the header, at most 26
  std::string name;
};

// Equal sizes; the slices must not overlap.
struct CopyStep {
  Slice from;
  Slice to;
};

// The pattern's bytes repeat from the slice's first byte on.
struct FillStep {
  Slice to;
  uint32_t pattern = 0;
};

struct HostMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

struct HostCall {
  std::span<const HostMemory> operands;
  int64_t replica = 0;
  int64_t partition = 0;
  // Which of HostStep::targets to go on with; 0 unless set.
  int64_t* choice = nullptr;
  // Once it is true the step may end with CANCELLED; null: never.
  const std::atomic<bool>* cancelled = nullptr;
};

// A function of the host in the middle of the program: what no kernel does, and where the program
// goes on when that depends on values. Splits the submission.
struct HostStep {
  std::string name;
  std::vector<Slice> operands;
  std::vector<bool> is_written;
  // On a worker thread, one at a time per logical device; must end by itself.
  std::function<Status(const HostCall&)> run;
  // Steps by number, one of which follows; the number of steps ends the program. Empty: the next
  // step follows.
  std::vector<int64_t> targets;
};

struct LoopStep;
struct BranchStep;
using DeviceStep = std::variant<DispatchStep, CopyStep, FillStep, std::shared_ptr<const LoopStep>,
                                std::shared_ptr<const BranchStep>>;

// Steps that repeat on the device. Values that change from turn to turn live in memory. With a
// condition, a byte that is looked at before each turn and stops the loop when it is zero (the body
// writes it anew), else `trip_count` turns. Short counted loops are written out, others turn
// through gates (lowering.h): all in the launch's one submission as long as the turns that were
// recorded suffice, which later launches learn from earlier ones; the caller waits for none of
// this.
struct LoopStep {
  std::string name;
  std::vector<DeviceStep> body;
  int64_t trip_count = 0;          // without a condition
  std::optional<Slice> condition;  // one byte
};

// One of several lists of steps, chosen on the device. `selector`: one byte and two branches, the
// first for not zero; or an i32, where what is out of range means the last branch.
struct BranchStep {
  std::string name;
  Slice selector;
  std::vector<std::vector<DeviceStep>> branches;
};

using Step = std::variant<DispatchStep, CopyStep, FillStep, HostStep, LoopStep, BranchStep>;

struct OutputPlan {
  int64_t bytes = 0;
  int64_t alias_input = -1;
  // Whether the steps rely on the input's bytes standing in the output. Without it the program is
  // right with both memories, and copies whole inputs to outputs by a CopyStep, which is nothing
  // where they are one.
  bool begins_with_input = true;
};

struct LaunchProgram {
  std::string name;
  std::vector<int64_t> input_bytes;
  std::vector<OutputPlan> outputs;
  int64_t arena_bytes = 0;
  std::vector<std::vector<std::byte>> constants;
  std::vector<KernelCode> kernels;
  std::vector<std::string> schedules;  // of each, for people
  std::vector<Step> steps;
};

// INVALID_ARGUMENT with step and reason: a slice outside of its space or written where it may not,
// sizes that differ, a kernel that is not there, a grid of 2^31 groups or more, too many constants,
// an alias of another size or of an input that another output aliases.
Status check_program(const LaunchProgram& program);

// "in3[16+4]", "arena[0+256]".
std::string slice_string(const Slice& slice);

}  // namespace hekla::vulkan
