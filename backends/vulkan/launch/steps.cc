// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/steps.h"

#include <algorithm>

#include "backends/vulkan/launch/kernel_abi.h"

namespace hekla::vulkan {
namespace {

int64_t space_size(const LaunchProgram& program, Slice::Space space) {
  switch (space) {
    case Slice::Space::kInput:
      return static_cast<int64_t>(program.input_bytes.size());
    case Slice::Space::kOutput:
      return static_cast<int64_t>(program.outputs.size());
    case Slice::Space::kArena:
      return 1;
    case Slice::Space::kConstant:
      return static_cast<int64_t>(program.constants.size());
    case Slice::Space::kLoopState:
      break;
  }
  return 0;
}

int64_t bytes_of(const LaunchProgram& program, const Slice& slice) {
  const auto i = static_cast<size_t>(slice.index);
  switch (slice.space) {
    case Slice::Space::kInput:
      return program.input_bytes[i];
    case Slice::Space::kOutput:
      return program.outputs[i].bytes;
    case Slice::Space::kArena:
      return program.arena_bytes;
    case Slice::Space::kConstant:
      return static_cast<int64_t>(program.constants[i].size());
    case Slice::Space::kLoopState:
      break;
  }
  return 0;
}

Status check_slice(const LaunchProgram& program, const Slice& slice, bool is_written) {
  if (slice.index < 0 || slice.index >= space_size(program, slice.space)) {
    return invalid_argument("{} names memory that is not there", slice_string(slice));
  }
  const int64_t size = bytes_of(program, slice);
  if (slice.offset < 0 || slice.bytes < 0 || slice.offset > size ||
      slice.bytes > size - slice.offset) {
    return invalid_argument("{} is outside of its {} bytes", slice_string(slice), size);
  }
  if (is_written &&
      (slice.space == Slice::Space::kInput || slice.space == Slice::Space::kConstant)) {
    return invalid_argument("{} may not be written", slice_string(slice));
  }
  return ok_status();
}

Status check_operands(const LaunchProgram& program, const std::vector<Slice>& operands,
                      const std::vector<bool>& is_written) {
  if (operands.size() != is_written.size()) {
    return invalid_argument("{} operands but {} flags for writing", operands.size(),
                            is_written.size());
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    HEKLA_RETURN_IF_ERROR(check_slice(program, operands[i], is_written[i]));
  }
  return ok_status();
}

Status check_step(const LaunchProgram& program, const DispatchStep& step) {
  if (step.pipeline < 0 || step.pipeline >= static_cast<int64_t>(program.kernels.size())) {
    return invalid_argument("there is no kernel {}", step.pipeline);
  }
  if (step.constants.size() > kMaxKernelConstants) {
    return invalid_argument("{} push constants; there is room for {}", step.constants.size(),
                            kMaxKernelConstants);
  }
  uint64_t groups = 1;
  for (uint32_t n : step.groups) {
    if (n != 0 && groups > kMaxGroups / n) groups = kMaxGroups + 1;
    if (groups <= kMaxGroups) groups *= n;
  }
  if (std::find(step.groups.begin(), step.groups.end(), 0U) == step.groups.end() &&
      groups > kMaxGroups) {
    return invalid_argument("a grid of {} x {} x {} groups is above {}; let a group do more",
                            step.groups[0], step.groups[1], step.groups[2], kMaxGroups);
  }
  return check_operands(program, step.operands, step.is_written);
}

Status check_step(const LaunchProgram& program, const CopyStep& step) {
  HEKLA_RETURN_IF_ERROR(check_slice(program, step.from, false));
  HEKLA_RETURN_IF_ERROR(check_slice(program, step.to, true));
  if (step.from.bytes != step.to.bytes) {
    return invalid_argument("a copy of {} to {}", slice_string(step.from), slice_string(step.to));
  }
  if (step.from.space == step.to.space && step.from.index == step.to.index &&
      std::max(step.from.offset, step.to.offset) <
          std::min(step.from.offset, step.to.offset) + step.to.bytes) {
    return invalid_argument("a copy of {} to {}, which overlap", slice_string(step.from),
                            slice_string(step.to));
  }
  return ok_status();
}

Status check_step(const LaunchProgram& program, const FillStep& step) {
  return check_slice(program, step.to, true);
}

Status check_step(const LaunchProgram& program, const HostStep& step) {
  if (!step.run) return invalid_argument("a host step without a function");
  for (int64_t target : step.targets) {
    if (target < 0 || target > static_cast<int64_t>(program.steps.size())) {
      return invalid_argument("there is no step {} to go on with", target);
    }
  }
  return check_operands(program, step.operands, step.is_written);
}

Status check_device_steps(const LaunchProgram& program, const std::vector<DeviceStep>& steps,
                          const char* where);

Status check_step(const LaunchProgram& program, const LoopStep& step) {
  if (step.condition) {
    HEKLA_RETURN_IF_ERROR(check_slice(program, *step.condition, false));
    if (step.condition->bytes != 1) {
      return invalid_argument("the condition {} is not one byte", slice_string(*step.condition));
    }
  }
  if (step.trip_count < 0 || (step.condition && step.trip_count != 0)) {
    return invalid_argument("a loop of {} turns{}", step.trip_count,
                            step.condition ? " with a condition" : "");
  }
  return check_device_steps(program, step.body, "loop");
}

Status check_step(const LaunchProgram& program, const BranchStep& step) {
  HEKLA_RETURN_IF_ERROR(check_slice(program, step.selector, false));
  const bool is_predicate = step.selector.bytes == 1 && step.branches.size() == 2;
  const bool is_index = step.selector.bytes == 4 && step.selector.offset % 4 == 0;
  if (step.branches.empty() || !(is_predicate || is_index)) {
    return invalid_argument("{} cannot choose among {} branches", slice_string(step.selector),
                            step.branches.size());
  }
  for (const std::vector<DeviceStep>& branch : step.branches) {
    HEKLA_RETURN_IF_ERROR(check_device_steps(program, branch, "branch"));
  }
  return ok_status();
}

template <typename Inner>
Status check_step(const LaunchProgram& program, const std::shared_ptr<const Inner>& step) {
  if (!step) return invalid_argument("a step that is not there");
  return check_step(program, *step);
}

Status check_device_steps(const LaunchProgram& program, const std::vector<DeviceStep>& steps,
                          const char* where) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const Status status =
        std::visit([&](const auto& one) { return check_step(program, one); }, steps[i]);
    if (!status.ok()) return status.with_context(fmt::format("step {} of the {}", i, where));
  }
  return ok_status();
}

}  // namespace

std::string slice_string(const Slice& slice) {
  constexpr const char* kNames[] = {"in", "out", "arena", "constant", "loop"};
  const char* name = kNames[static_cast<size_t>(slice.space)];
  if (slice.space == Slice::Space::kArena) {
    return fmt::format("{}[{}+{}]", name, slice.offset, slice.bytes);
  }
  return fmt::format("{}{}[{}+{}]", name, slice.index, slice.offset, slice.bytes);
}

Status check_program(const LaunchProgram& program) {
  std::vector<bool> is_aliased(program.input_bytes.size());
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const OutputPlan& output = program.outputs[i];
    if (output.bytes < 0) return invalid_argument("output {} has {} bytes", i, output.bytes);
    if (output.alias_input < 0) continue;
    const auto input = static_cast<size_t>(output.alias_input);
    if (input >= is_aliased.size() || is_aliased[input] ||
        program.input_bytes[input] != output.bytes) {
      return invalid_argument("output {} of {} bytes cannot alias input {}", i, output.bytes,
                              output.alias_input);
    }
    is_aliased[input] = true;
  }
  if (program.arena_bytes < 0) {
    return invalid_argument("an arena of {} bytes", program.arena_bytes);
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Status status =
        std::visit([&](const auto& step) { return check_step(program, step); }, program.steps[i]);
    if (!status.ok()) return status.with_context(fmt::format("step {} of {}", i, program.name));
  }
  return ok_status();
}

}  // namespace hekla::vulkan
