// SPDX-License-Identifier: Apache-2.0
// Compute shaders of the user's: custom calls of hekla.vulkan_kernel (python/hekla/jax_kernel.py),
// which the device runs like kernels of its own.
//
// A shader finds its arrays as launch/kernel_abi.h says. Its grid is given to vkCmdDispatch as it
// is, since it is within what every device takes. Pure.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/vulkan/codegen/target.h"
#include "backends/vulkan/launch/launch_program.h"

namespace hekla::vulkan {

struct UserKernels {
  // The plan with a KernelStep for each of the calls; the same one where there is none.
  std::shared_ptr<const plan::LaunchPlan> plan;
  std::vector<DeviceKernel> kernels;  // the last ones of the plan's
};

// INVALID_ARGUMENT, UNIMPLEMENTED: a call or a module that the device cannot run, by what it says.
Result<UserKernels> take_user_kernels(std::shared_ptr<const plan::LaunchPlan> plan,
                                      const Target& target);

}  // namespace hekla::vulkan
