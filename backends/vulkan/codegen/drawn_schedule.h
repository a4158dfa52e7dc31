// SPDX-License-Identifier: Apache-2.0
// Drawn schedules: for tests and the search of a wrong result, any of the right schedules of a
// kernel instead of the one that its size and the device ask for.
//
// Sizes and devices decide what ordinary launches run, so a test of a small array on one device
// sees few of the schedules. Drawn ones know no device but what it must be able to do: tiles of
// GPUs run on CPU devices and the other way round, and small grids get what only large ones would.
#pragma once

#include "backends/vulkan/codegen/schedule.h"

namespace hekla::vulkan::codegen {

// One of the right schedules, by Target::schedule_seed and the kernel's code: the same for both,
// always. All give the same bits. `asked`: see choose_schedule.
Schedule draw_schedule(const kernel::IndexAnalysis& index, const Target& target,
                       kernel::Implementations& asked);

}  // namespace hekla::vulkan::codegen
