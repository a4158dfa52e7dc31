// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/launch_program.h"

#include <algorithm>

#include "backends/compiler/plan/check.h"
#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/launch/kernel_abi.h"

namespace hekla::vulkan {
namespace {

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
