// SPDX-License-Identifier: Apache-2.0
// What schedules of a kernel are right: the parts of choosing one that no estimate of speed is in.
// schedule.cc takes one of the right schedules by size and device, drawn_schedule.cc any. Of this
// folder alone. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "backends/compiler/kernel/implementations.h"
#include "backends/vulkan/codegen/schedule.h"
#include "backends/vulkan/codegen/tile.h"
#include "backends/vulkan/codegen/transposes.h"

namespace hekla::vulkan::codegen {

// The ways to run a kernel, in the order in which they are asked. The first is for kernels whose
// points exchange values, which have no other.
inline constexpr std::string_view kTeams = "teams of a workgroup";
inline constexpr std::string_view kTile = "tile";
inline constexpr std::string_view kSharedTile = "tile in shared memory";
inline constexpr std::string_view kSharedRows = "rows in shared memory";
inline constexpr std::string_view kSubgroupPerPoint = "subgroup per point";
inline constexpr std::string_view kTransposes = "transposed in shared memory";
inline constexpr std::string_view kPoints = "points";

// What a way says: its schedule, or why it has none for this kernel.
using Answer = std::variant<Schedule, kernel::Refusal>;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How often an invocation comes to the end of a loop's body for one point, when `unroll` iterations
// of innermost loops are unrolled: once an iteration, and once more to leave the loop. Of the loops
// in a region of the kernel's body. A trip count without a known limit is a search, of a few.
int64_t loop_iterations(const kernel::IndexAnalysis& index, int32_t region, uint32_t unroll);

// Keeps the loops of an invocation below the driver's limit. A trip count without a known limit is
// a search, of a few iterations.
void limit_iterations(const kernel::IndexAnalysis& index, const Target& target, Schedule& schedule);

// Invocations of a workgroup, and the points that each does side by side.
struct TileShape {
  uint32_t lanes_x = 1, lanes_y = 1, columns = 1, rows = 1;
};
// The schedule of such tiles over the grid, which has a dimension.
Schedule tiled(const kernel::Kernel& kernel, const TileShape& shape, uint32_t staged_depth);

// Why the points of a kernel cannot be done in tiles; empty: they can.
kernel::Refusal why_no_tile(const kernel::Kernel& kernel, const TileAnalysis& analysis,
                            const Target& target);

// One subgroup for each point, where the device and the kernel allow it.
Answer shared_point(const kernel::Kernel& kernel, const Target& target);

// Tiles of points that are transposed through shared memory: their sides, powers of two, the
// columns of an invocation, which divide the grid's, and the invocations of a workgroup. The first
// loads of the tile for which there is shared memory go through it.
struct TransposedShape {
  uint32_t tile_columns = 1, tile_rows = 1;
  uint32_t columns = 1;
  uint32_t invocations = 1;
};
kernel::Refusal why_no_transposes(const kernel::Kernel& kernel, const TransposedTile& tile,
                                  const Target& target);
Answer transposed(const kernel::Kernel& kernel, const TransposedTile& tile,
                  const TransposedShape& shape, const Target& target);

// The points of a team of this kernel; 0: they exchange nothing. What there is in the way of its
// teams on this device; empty: nothing. Teams in workgroups of `invocations`, a power of two that
// is no less than a team; `shuffles`: whether subgroups exchange values without shared memory,
// where there are whole subgroups.
uint32_t team_points(const kernel::Kernel& kernel);
// Bytes of shared memory of one team.
uint32_t team_bytes(const kernel::Kernel& kernel);
// How many teams a workgroup has shared memory for: a power of two, or 0.
uint32_t most_teams(const kernel::Kernel& kernel, const Target& target);
kernel::Refusal why_no_teams(const kernel::Kernel& kernel, const Target& target);
Schedule teams(const kernel::Kernel& kernel, const Target& target, uint32_t invocations,
               bool is_adjacent, bool shuffles);
// Points between two of a team that are next to each other, in row-major order.
int64_t team_stride(const kernel::Kernel& kernel);

// Whether columns of an invocation may lie side by side, and contiguous stores of a point be one:
// not those of half words that a driver puts together wrongly (Target::packs_halves_wrongly).
bool may_be_adjacent(const kernel::Kernel& kernel, const Target& target);

// Invocations of a workgroup, at most.
uint32_t most_invocations(const Target& target);

// Whether loops come before all stores. Where lanes load for each other no load comes too late in
// kernels that update an operand.
bool stores_after_loops(const kernel::Function& function);

}  // namespace hekla::vulkan::codegen
