// SPDX-License-Identifier: Apache-2.0
// Schedule: how the points of a kernel's grid are dealt to workgroups and invocations, and what
// else is looked up in a kernel's body before code is made of it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/kernel/index_analysis.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan::codegen {

// Without tiles, workgroup g, invocation i runs the units (g * points * rows + k) * size + i for
// k < points * rows, `rows` of them side by side; a unit is one point, or `columns` adjacent ones
// of the last dimension, which divide it.
//
// With tiles (tile.h), invocation i of a workgroup is lane i % lanes_x in x and i / lanes_x in y.
// It runs columns x rows points side by side: column (gx * columns + c) * lanes_x + x and row (gy *
// rows + r) * lanes_y + y, where the workgroup's number is (outer * groups_y + gy) * groups_x + gx
// and `outer` counts the points of all other grid dimensions.
struct Schedule {
  uint32_t workgroup_size = 1;
  uint32_t points_per_invocation = 1;
  int64_t group_count = 0;
  bool is_tiled = false;
  uint32_t lanes_x = 1, lanes_y = 1;
  uint32_t columns = 1, rows = 1;
  int64_t groups_x = 1, groups_y = 1;
  // Iterations of innermost loops whose shared loads go through shared memory at once; 0: none do.
  uint32_t staged_depth = 0;
  // What goes through shared memory is fetched while the iterations before it are computed.
  bool prefetches = false;
  // So many loads of transposed_tile (transposes.h), the first ones, go through shared memory; 0:
  // none do. The tiles are of its columns and rows, the columns of an invocation adjacent: column
  // (gx * lanes_x + x) * columns + c, and row as above.
  uint32_t transposed_loads = 0;
  // The workgroup is one subgroup whose lanes share uniform loads of innermost loops: each loads
  // that of another iteration, and passes it to the others.
  bool broadcasts = false;
  // All lanes do the same point, and each computes `passed_values` of its own iterations;
  // broadcasts.
  bool shares_point = false;
  // Columns of an invocation are adjacent: (gx * lanes_x + x) * columns + c; the grid's are a
  // multiple of them.
  bool is_adjacent = false;
  // An access costs the same whatever its width: contiguous elements go in words of 64 bits.
  bool long_accesses = false;
  // Iterations of innermost loops that are unrolled, at least: more than one where the driver would
  // end loops too early otherwise (Target::max_loop_iterations).
  uint32_t least_unroll = 1;
  // Iterations of innermost loops whose number is known that are unrolled, at most, so that their
  // loads are on the way together.
  uint32_t most_unroll = 1;
  // Points of a team (kernel::Exchange), which stay together; 0: points exchange nothing. A
  // workgroup does whole teams: the points of one are `team_step` invocations apart.
  uint32_t team_points = 0;
  uint32_t team_step = 1;
  // Exchanges within a subgroup are shuffles; all others go through shared memory.
  bool shuffles = false;
  // Even so they would be too many: the kernel cannot run on this device.
  bool has_too_many_iterations = false;
};

// Instructions of the unrolled iterations of an innermost loop.
inline constexpr int64_t kMostUnrolledInstructions = 1300;

// By the kernel's size and the device, or drawn where Target::schedule_seed says so. `asked`: gets
// what each way to run the kernel said.
Schedule choose_schedule(const kernel::IndexAnalysis& index, const Target& target,
                         kernel::Implementations* asked = nullptr);

// What kind of schedule it is, in a few words: "points", "tile, adjacent columns", "subgroup per
// point" ... There are no others than those of schedule_names().
std::string_view schedule_name(const Schedule& schedule);
std::span<const std::string_view> schedule_names();

// Which stores write the end of a chain of arithmetic long enough to be worth a guard, see
// Target::splits_store_chains. Indexed by Value.
std::vector<bool> chain_stores(const kernel::Function& function);

// Values that a driver may compute when it compiles, since no memory enters them: constants, grid
// indices and what is made of them. Of floats the constants alone: the generator hides those that
// come of such integers. Indexed by Value.
std::vector<bool> foldable_values(const kernel::Function& function);

}  // namespace hekla::vulkan::codegen
