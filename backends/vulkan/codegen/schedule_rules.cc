// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/schedule_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

namespace hekla::vulkan::codegen {
namespace {

using kernel::Op;

// More would be compiled for minutes.
constexpr uint32_t kMostUnroll = 64;
constexpr int64_t kManyIterations = int64_t{1} << 40;

}  // namespace

int64_t loop_iterations(const kernel::IndexAnalysis& index, int32_t region, uint32_t unroll) {
  const kernel::Function& f = index.kernel().body;
  int64_t sum = 0;
  for (const kernel::Value v : f.region(region).instructions) {
    if (f[v].op != Op::kFor) continue;
    const kernel::Instruction& count = f[f[v].arguments[0]];
    const int64_t trips = index.trips(v);
    const int64_t inner = loop_iterations(index, static_cast<int32_t>(f[v].immediate), unroll);
    // Lanes that load for each other have a loop over their iterations around, a quarter more.
    int64_t ends = trips + trips / 4 + 2;
    if (inner == 0 && count.op == Op::kConstant) ends = ends / unroll + unroll + 2;
    sum += std::min(kManyIterations, ends) + std::min(kManyIterations, trips) * inner;
    if (sum > kManyIterations) return kManyIterations;
  }
  return sum;
}

uint32_t team_bytes(const kernel::Kernel& kernel) {
  std::set<kernel::ScalarType> exchanged;
  for (const kernel::Instruction& inst : kernel.body.instructions()) {
    if (inst.op != Op::kShuffleXor) continue;
    exchanged.insert(inst.type == kernel::ScalarType::kBool ? kernel::ScalarType::kI32 : inst.type);
  }
  uint32_t bytes = 0;
  // Two arrays of each type.
  for (const kernel::ScalarType type : exchanged) {
    bytes += 2 * team_points(kernel) * static_cast<uint32_t>(kernel::bit_width(type) / 8);
  }
  for (const kernel::TeamMemory& memory : kernel::team_memories(kernel.body)) {
    bytes += 4 * memory.words;
  }
  return bytes;
}

namespace {

// What is in the way of sums of products on matrix units; empty: nothing, or there are none.
kernel::Refusal why_no_sums(const kernel::Kernel& kernel, const Target& t) {
  for (const kernel::Instruction& inst : kernel.body.instructions()) {
    if (!kernel::is_sums_op(inst.op)) continue;
    const kernel::SumsAccess a = kernel::unpack_sums(inst.immediate);
    const DType operands = a.is_bf16 ? DType::kBF16 : DType::kF16;
    const MatrixShape* shape = matrix_shape(t, operands);
    if (shape == nullptr || shape->sums != DType::kF32) {
      return fmt::format("no matrix units for sums of {} in f32", dtype_name(operands));
    }
    const uint32_t points = team_points(kernel), lanes = t.matrix_subgroup_size;
    const bool fits = points % lanes == 0 && a.rows % (points / lanes * shape->rows) == 0 &&
                      a.columns % shape->columns == 0 && a.left_pitch % 4 == 0 &&
                      a.right_pitch % 4 == 0 &&
                      (inst.op != Op::kSumsMultiply || a.depth % shape->depth == 0) &&
                      (inst.op != Op::kSumsStore ||
                       (a.first % shape->columns == 0 && a.depth % shape->columns == 0));
    if (!fits) {
      return fmt::format("sums of {} x {} by {} points are none of {} x {} x {} matrices", a.rows,
                         a.columns, points, shape->rows, shape->columns, shape->depth);
    }
  }
  return {};
}

}  // namespace

void limit_iterations(const kernel::IndexAnalysis& index, const Target& t, Schedule& s) {
  if (t.max_loop_iterations == 0) return;
  const auto ends = [&](int64_t points) {
    return points * (loop_iterations(index, 0, s.least_unroll) + 1) + 1;
  };
  if (ends(s.points_per_invocation) <= t.max_loop_iterations) return;
  while (ends(1) > t.max_loop_iterations && s.least_unroll < kMostUnroll) {
    s.least_unroll *= 2;
  }
  s.has_too_many_iterations = ends(1) > t.max_loop_iterations;
  const int64_t most = t.max_loop_iterations / ends(1);
  s.points_per_invocation =
      static_cast<uint32_t>(std::clamp<int64_t>(most, 1, s.points_per_invocation));
}

uint32_t team_points(const kernel::Kernel& kernel) {
  const int dimension = kernel::team_dimension(kernel.body);
  return dimension < 0 ? 0 : static_cast<uint32_t>(kernel.grid[static_cast<size_t>(dimension)]);
}

int64_t team_stride(const kernel::Kernel& kernel) {
  int64_t stride = 1;
  for (size_t d = kernel.grid.size(); d-- > 0;) {
    if (static_cast<int>(d) == kernel::team_dimension(kernel.body)) break;
    stride *= kernel.grid[d];
  }
  return stride;
}

kernel::Refusal why_no_teams(const kernel::Kernel& kernel, const Target& t) {
  const uint32_t points = team_points(kernel);
  if (points == 0) return "points exchange no values";
  if (points > most_invocations(t)) {
    return fmt::format("teams of {} points, and a workgroup has {} invocations at most", points,
                       most_invocations(t));
  }
  if (kernel::Refusal why = why_no_sums(kernel, t); !why.empty()) return why;
  if (most_teams(kernel, t) == 0) {
    return fmt::format("teams of {} points want {} bytes of shared memory, more than {}", points,
                       team_bytes(kernel), t.max_shared_memory_bytes);
  }
  return {};
}

uint32_t most_teams(const kernel::Kernel& kernel, const Target& t) {
  const uint32_t fitting = t.max_shared_memory_bytes / std::max(team_bytes(kernel), 1U);
  // A workgroup meets at barriers as a whole, and its subgroups are a team's.
  if (kernel::has_uneven_exchanges(kernel.body) || kernel::has_sums(kernel.body))
    return std::min(fitting, 1U);
  return std::bit_floor(fitting);
}

Schedule teams(const kernel::Kernel& kernel, const Target& t, uint32_t invocations,
               bool is_adjacent, bool shuffles) {
  Schedule s;
  s.team_points = team_points(kernel);
  s.workgroup_size = invocations;
  const uint32_t count = invocations / s.team_points;
  s.team_step = is_adjacent ? 1 : count;
  s.shuffles = shuffles && t.subgroup_shuffle && invocations % t.subgroup_size == 0;
  s.group_count = ceil_div(kernel.points() / s.team_points, count);
  return s;
}

Schedule tiled(const kernel::Kernel& kernel, const TileShape& shape, uint32_t staged_depth) {
  const size_t rank = kernel.grid.size();
  Schedule s;
  s.is_tiled = true;
  s.workgroup_size = shape.lanes_x * shape.lanes_y;
  s.lanes_x = shape.lanes_x;
  s.lanes_y = shape.lanes_y;
  s.columns = shape.columns;
  s.rows = shape.rows;
  s.staged_depth = staged_depth;
  const int64_t rows = rank > 1 ? kernel.grid[rank - 2] : 1;
  s.groups_x = ceil_div(kernel.grid[rank - 1], int64_t{s.lanes_x} * s.columns);
  s.groups_y = ceil_div(rows, int64_t{s.lanes_y} * s.rows);
  s.group_count = s.groups_x * s.groups_y;
  for (size_t d = 0; d + 2 < rank; ++d) s.group_count *= kernel.grid[d];
  return s;
}

kernel::Refusal why_no_transposes(const kernel::Kernel& kernel, const TransposedTile& tile,
                                  const Target& t) {
  if (kernel.body.region_count() > 1) return "there are loops";
  if (kernel.points() > t.max_narrow_points) {
    return fmt::format("{} points, more than {}", kernel.points(), t.max_narrow_points);
  }
  if (tile.loads.empty()) {
    return "no load is contiguous along another dimension than the last one";
  }
  return {};
}

Answer transposed(const kernel::Kernel& kernel, const TransposedTile& tile,
                  const TransposedShape& shape, const Target& t) {
  Schedule s;
  uint64_t bytes = 0;
  for (const kernel::Value load : tile.loads) {
    bytes += uint64_t{shape.tile_columns} * (shape.tile_rows + 1) *
             static_cast<uint64_t>(kernel::bit_width(kernel.body.type(load)) / 8);
    if (bytes > t.max_shared_memory_bytes) break;
    ++s.transposed_loads;
  }
  if (s.transposed_loads == 0) {
    return fmt::format("a tile of {} x {} points wants {} bytes of shared memory, more than {}",
                       shape.tile_columns, shape.tile_rows, bytes, t.max_shared_memory_bytes);
  }
  s.columns = shape.columns;
  s.is_adjacent = s.columns > 1;
  s.lanes_x = std::min(shape.tile_columns / s.columns, shape.invocations);
  s.lanes_y = std::min(shape.invocations / s.lanes_x, shape.tile_rows);
  s.rows = shape.tile_rows / s.lanes_y;
  s.workgroup_size = s.lanes_x * s.lanes_y;
  s.groups_x = ceil_div(points_of(kernel, tile.columns), int64_t{s.lanes_x} * s.columns);
  s.groups_y = ceil_div(points_of(kernel, tile.rows), int64_t{s.lanes_y} * s.rows);
  s.group_count = s.groups_x * s.groups_y * kernel.points() /
                  (points_of(kernel, tile.columns) * points_of(kernel, tile.rows));
  return s;
}

bool may_be_adjacent(const kernel::Kernel& kernel, const Target& target) {
  if (!target.packs_halves_wrongly) return true;
  const kernel::Function& f = kernel.body;
  bool stores_halves = false, selects_floats = false;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    stores_halves |= inst.op == Op::kStore && kernel::unpack_access(inst.immediate).bytes == 2;
    selects_floats |= inst.op == Op::kSelect && kernel::is_float(inst.type);
  }
  return !(stores_halves && selects_floats);
}

uint32_t most_invocations(const Target& t) {
  return std::max(1u, std::min(t.max_workgroup_invocations, t.max_workgroup_size_x));
}

bool stores_after_loops(const kernel::Function& f) {
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op == Op::kStore && inst.region != 0) return false;
  }
  bool has_stored = false;
  for (const kernel::Value v : f.body().instructions) {
    if (f[v].op == Op::kFor && has_stored) return false;
    has_stored |= f[v].op == Op::kStore;
  }
  return true;
}

kernel::Refusal why_no_tile(const kernel::Kernel& kernel, const TileAnalysis& analysis,
                            const Target& t) {
  if (kernel.points() == 0) return "the grid is empty";
  if (kernel.points() > t.max_narrow_points) {
    return fmt::format("{} points, more than {}", kernel.points(), t.max_narrow_points);
  }
  if (kernel.body.region_count() < 2) return "there is no loop";
  if (!analysis.is_possible) return "a loop's trip count depends on the point";
  return {};
}

Answer shared_point(const kernel::Kernel& kernel, const Target& t) {
  const kernel::Function& f = kernel.body;
  if (!t.subgroup_shuffle) return "the device has no subgroup shuffles";
  if (t.subgroup_size > most_invocations(t)) {
    return fmt::format("a subgroup has {} lanes, a workgroup {} at most", t.subgroup_size,
                       most_invocations(t));
  }
  if (kernel.points() == 0) return "the grid is empty";
  if (kernel.points() > t.max_narrow_points) {
    return fmt::format("{} points, more than {}", kernel.points(), t.max_narrow_points);
  }
  if (!stores_after_loops(f)) return "a loop comes after a store";
  // Registers, which hold what each lane passes on.
  constexpr size_t kMostPassed = 40;
  bool passes = false;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kFor) continue;
    const size_t count = passed_values(f, static_cast<int32_t>(inst.immediate)).passed.size();
    if (count > kMostPassed) {
      return fmt::format("lanes would pass on {} values, more than {}", count, kMostPassed);
    }
    passes |= count > 0;
  }
  if (!passes) return "no loop has work that does not depend on what it carries";
  Schedule s;
  s.workgroup_size = t.subgroup_size;
  s.group_count = kernel.points();
  s.broadcasts = s.shares_point = true;
  return s;
}

}  // namespace hekla::vulkan::codegen
