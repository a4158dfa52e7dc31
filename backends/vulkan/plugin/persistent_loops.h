// SPDX-License-Identifier: Apache-2.0
// Which loops of a launch plan one workgroup runs by itself (codegen/persistent.h), and their code.
// Pure.
#pragma once

#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/plan_options.h"
#include "backends/vulkan/codegen/target.h"
#include "backends/vulkan/launch/launch_program.h"

namespace hekla::vulkan {

struct FoundLoops {
  std::vector<DeviceLoopKernel> loops;
  std::vector<plan::Decision> decisions;  // of all loops that were looked at
};

// Outer loops before those inside; those of `program.plan` whose steps are all small kernels that
// the device runs as they are, copies, counted loops and branches. `own_kernels`: as many of the
// plan's kernels are the compiler's, the others are users' shaders. Target::schedule_seed draws
// whether there are any, unless `wanted` says it.
Result<FoundLoops> find_persistent_loops(const LaunchProgram& program, size_t own_kernels,
                                         const Target& target, plan::PersistentLoops wanted);

}  // namespace hekla::vulkan
