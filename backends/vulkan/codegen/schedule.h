// SPDX-License-Identifier: Apache-2.0
// Schedule: how the points of a kernel's grid are dealt to workgroups and invocations, and what
// else is looked up in a kernel's body before code is made of it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/kernel.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan::codegen {

// Workgroup g, invocation i runs the points g * size * points + i + k * size for k < points.
struct Schedule {
  uint32_t workgroup_size = 1;
  uint32_t points_per_invocation = 1;
  int64_t group_count = 0;
};

Schedule choose_schedule(const kernel::Kernel& kernel, const Target& target);

// Which stores write the end of a chain of arithmetic long enough to be worth a guard, see
// Target::splits_store_chains. Indexed by Value.
std::vector<bool> chain_stores(const kernel::Function& function);

// Values that a driver may compute when it compiles, since no memory enters them: constants, grid
// indices and what is made of them. Of floats the constants alone: the generator hides those that
// come of such integers. Indexed by Value.
std::vector<bool> foldable_values(const kernel::Function& function);

}  // namespace hekla::vulkan::codegen
