// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/launch_program.h"

#include <algorithm>

#include "backends/compiler/plan/check.h"
#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/launch/kernel_abi.h"

namespace hekla::vulkan {
namespace {

int64_t region_of(const plan::LaunchPlan& plan, const plan::Slice& slice) {
  const auto inputs = static_cast<int64_t>(plan.input_bytes.size());
  const auto outputs = static_cast<int64_t>(plan.output_bytes.size());
  switch (slice.space) {
    case plan::Slice::Space::kInput:
      return slice.index;
    case plan::Slice::Space::kOutput: {
      const int32_t taken = plan.output_input[static_cast<size_t>(slice.index)];
      return taken >= 0 ? taken : inputs + slice.index;
    }
    case plan::Slice::Space::kConstant:
      return inputs + outputs + slice.index;
    case plan::Slice::Space::kLaunch:
      return inputs + outputs + static_cast<int64_t>(plan.constants.size());
    case plan::Slice::Space::kArena:
      return inputs + outputs + static_cast<int64_t>(plan.constants.size()) + 1 + slice.index;
  }
  return 0;
}

Status check_groups(const DeviceKernel& kernel) {
  const std::array<uint32_t, 3>& groups = kernel.groups;
  if (std::find(groups.begin(), groups.end(), 0U) != groups.end()) return ok_status();
  uint64_t all = 1;
  for (const uint32_t n : groups) {
    if (all > kMaxGroups / n) {
      return internal_error("kernel {}: a grid of {} x {} x {} groups is above {}",
                            kernel.code.name, groups[0], groups[1], groups[2], kMaxGroups);
    }
    all *= n;
  }
  return ok_status();
}

}  // namespace

const DeviceLoopKernel* loop_kernel_of(const LaunchProgram& program, const plan::Step* step) {
  const auto found = std::ranges::find(program.loops, step, &DeviceLoopKernel::step);
  return found == program.loops.end() ? nullptr : &*found;
}

std::vector<bool> dispatched_kernels(const LaunchProgram& program) {
  std::vector<bool> is_dispatched(program.kernels.size(), false);
  const auto visit = [&](const plan::Steps& steps, const auto& visit_inner) -> void {
    plan::for_each_step(steps, [&](const plan::Step& step) {
      if (const auto* run = std::get_if<plan::KernelStep>(&step.what)) {
        is_dispatched[static_cast<size_t>(run->kernel)] = true;
      }
      const DeviceLoopKernel* kernel = loop_kernel_of(program, &step);
      // What says whether there is a first iteration stands in front of the loop.
      const auto* loop = std::get_if<plan::WhileStep>(&step.what);
      if (kernel != nullptr && kernel->state_words == 0 && loop != nullptr) {
        visit_inner(loop->condition, visit_inner);
      }
      return kernel == nullptr;
    });
  };
  visit(program.plan->steps, visit);
  return is_dispatched;
}

Access access_of(const plan::LaunchPlan& plan, const plan::Slice& slice, bool is_written) {
  return {region_of(plan, slice), slice.offset, slice.offset + slice.bytes, is_written};
}

Status check_program(const LaunchProgram& program) {
  const plan::LaunchPlan& plan = *program.plan;
  if (plan.kernels.size() != program.kernels.size()) {
    return internal_error("{}: {} kernels for the {} of its plan", program.name,
                          program.kernels.size(), plan.kernels.size());
  }
  if (plan.contractions.size() != program.contractions.size()) {
    return internal_error("{}: {} contractions for the {} of its plan", program.name,
                          program.contractions.size(), plan.contractions.size());
  }
  for (const DeviceKernel& kernel : program.kernels) HEKLA_RETURN_IF_ERROR(check_groups(kernel));
  for (const DeviceKernel& contraction : program.contractions) {
    if (contraction.is_interpreted()) {
      return internal_error("{}: {} has no code", program.name, contraction.code.name);
    }
    HEKLA_RETURN_IF_ERROR(check_groups(contraction));
  }
  return plan::check(plan).with_context(program.name);
}

}  // namespace hekla::vulkan
