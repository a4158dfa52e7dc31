// SPDX-License-Identifier: Apache-2.0
// Programs over several partitions made of programs of one device, and what clients of such
// programs do: arrays are taken apart for the devices and put together again.
//
// Shardings are Shardy's, by one mesh, in the module's text: `sdy.sharding` of the entry's
// parameters and results, sdy.sharding_constraint in between. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::testing {

inline constexpr int64_t kMostPartitions = 8;

// Puts a mesh of 1 to kMostPartitions partitions into the module, in one of four cases in an order
// of its own, and random shardings by it onto most of the entry's parameters and results, and on
// some values in between, in loops and branches too: uneven ones, sub-axes, open dimensions,
// priorities. Of the meshes of 4 to kMostPartitions partitions some have an axis that is manual
// (manual.h). The same seed and module give the same.
void shard_program(ir::Module& module, uint64_t seed);

// 1 for a module without a mesh.
int64_t partition_count(const ir::Module& module);

// What each partition gives to a launch for an array: its own part in memory of the size of all
// parts, garbage in the padding.
Result<std::vector<HostArray>> take_apart(const HostArray& whole,
                                          const sharding::HloSharding& sharding,
                                          int64_t partitions);
// The array of shape `whole` of what partitions hold. INTERNAL: memory of another shape, and
// partitions that hold the same elements and do not agree about their bits.
Result<HostArray> put_together(const std::vector<HostArray>& parts, const Dims& whole,
                               const sharding::HloSharding& sharding);

}  // namespace hekla::testing
