// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>
#include <utility>

#include "backends/vulkan/codegen/drawn_schedule.h"
#include "backends/vulkan/codegen/memory.h"
#include "backends/vulkan/codegen/schedule_rules.h"
#include "backends/vulkan/codegen/tile.h"
#include "backends/vulkan/codegen/transposes.h"

namespace hekla::vulkan::codegen {
namespace {

using kernel::Op;

// A CPU device runs a workgroup on one thread, and each start of 8 lanes (the look-up of addresses
// among it) costs as much as 20 to 50 element accesses: few lanes that loop over many points, but
// enough workgroups to share out over the cores.
constexpr int64_t kCpuGroups = 256;
constexpr int64_t kCpuPoints = 1024;
constexpr uint32_t kCpuLanes = 64;  // at most
// A GPU hides latency with many invocations; several points for each only when there are plenty.
constexpr uint32_t kGpuWorkgroup = 256;
constexpr uint32_t kGpuPoints = 4;
constexpr int64_t kGpuPlenty = int64_t{1} << 20;
constexpr int64_t kGpuUnits = int64_t{1} << 18;

// A tile's sums. More rows and columns mean fewer loads for each product; on llvmpipe, where loads
// are dear and what does not fit into registers is on a stack in the cache, 16 x 8 takes four
// fifths of the time of 16 x 4, and twice as many a tenth less but thrice as long to compile.
constexpr int64_t kCpuTileValues = 128;
constexpr int64_t kCpuColumns = 8;
constexpr int64_t kCpuRows = 2;
constexpr int64_t kGpuTileValues = 64;
constexpr uint32_t kMobileSharedBytes = 32 << 10;
// Drivers compile longer code in more than proportional time.
constexpr int64_t kMostInstructions = 600;
// Contractions (all tiles on GPUs) with much to do at their end may be longer: gpt_forward, which
// has GELU behind a product, takes 0.61 s of CPU time on llvmpipe instead of 0.83 s, and a first
// launch 0.3 s more.
constexpr int64_t kMostOfContraction = 1200;
// Of workgroups of a tiled kernel; fewer, and tiles get smaller.
constexpr int64_t kCpuTileGroups = 16;
constexpr int64_t kGpuTileGroups = 256;
// Of lanes that have no column.
constexpr double kMostIdle = 1.25;
// Small workgroups meet at fewer barriers instead.
constexpr uint32_t kStagedDepth = 16;
constexpr uint32_t kStagedDepthOfSmall = 32;
constexpr uint32_t kSmallTile = 64;  // lanes

// The guard costs 5 % of a copy and pays from about ten operations on.
constexpr int kLongChain = 10;

// Columns that a CPU device does side by side in a kernel without loops, so that the narrowest
// elements of those that lie side by side fill a word.
uint32_t unit_columns(const kernel::IndexAnalysis& index, const Target& t, uint32_t word_bytes) {
  const kernel::Kernel& kernel = index.kernel();
  const kernel::Function& f = kernel.body;
  if (kernel.points() == 0 || kernel.points() > t.max_narrow_points || f.region_count() > 1 ||
      kernel.grid.empty() || !may_be_adjacent(kernel, t)) {
    return 1;
  }
  const auto column = index.dimension(static_cast<int>(kernel.grid.size()) - 1);
  uint32_t columns = 1;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kLoad && inst.op != Op::kStore) continue;
    const kernel::Access access = kernel::unpack_access(inst.immediate);
    if (index.slope(inst.arguments[0], column) != int64_t{1}) continue;
    columns = std::max<uint32_t>(columns, word_bytes / access.bytes);
  }
  const TileAnalysis analysis = analyse_tile(index);
  while (columns > 1 && (kernel.grid.back() % columns != 0 ||
                         tile_instructions(f, analysis, columns, 1) > kMostInstructions)) {
    columns /= 2;
  }
  return columns;
}

// Units that an invocation of a GPU does side by side in a kernel without loops, so that their
// loads are on the way together.
uint32_t units_side_by_side(const kernel::IndexAnalysis& index, const Target& t, uint32_t columns) {
  const kernel::Kernel& kernel = index.kernel();
  if (kernel.points() > t.max_narrow_points || kernel.body.region_count() > 1 ||
      kernel.grid.empty()) {
    return 1;
  }
  const TileAnalysis analysis{.depends = analyse_units(index)};
  uint32_t units = 1;
  while (units < kGpuPoints && kernel.points() / columns / (2 * units) >= kGpuUnits &&
         tile_instructions(kernel.body, analysis, columns, 2 * units) <= kMostInstructions) {
    units *= 2;
  }
  return units;
}

// Lanes that follow each other read contiguous elements, or all the same: what words of several
// columns keep.
bool loads_are_in_order(const kernel::IndexAnalysis& index) {
  const kernel::Function& f = index.kernel().body;
  const auto column = index.dimension(static_cast<int>(f.body().parameters.size()) - 1);
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kLoad) continue;
    const auto step = index.slope(inst.arguments[0], column);
    if (step != int64_t{0} && step != int64_t{1}) return false;
  }
  return true;
}

// How many times as many columns as there are have a lane.
double idle(int64_t columns, int64_t per_group) {
  return static_cast<double>(ceil_div(columns, per_group) * per_group) /
         static_cast<double>(columns);
}

// Too many lanes would have no column.
kernel::Refusal idle_lanes(int64_t columns, int64_t per_group) {
  return fmt::format(
      "{} columns for lanes that do {} at a time: {:.2f} times as many, more than {}", columns,
      per_group, idle(columns, per_group), kMostIdle);
}

Answer choose_tile(const kernel::IndexAnalysis& index, const Target& t, uint32_t most) {
  const kernel::Kernel& kernel = index.kernel();
  if (!t.is_cpu) return "for devices of type CPU";
  const TileAnalysis analysis = analyse_tile(index);
  if (kernel::Refusal why = why_no_tile(kernel, analysis, t); !why.empty()) return why;
  const size_t rank = kernel.grid.size();
  const int64_t columns = kernel.grid[rank - 1];
  const int64_t rows = rank > 1 ? kernel.grid[rank - 2] : 1;
  const int64_t carried = std::max<int64_t>(analysis.carried, 1);
  TileShape shape;
  const uint32_t lanes = std::min(std::clamp(t.subgroup_size, 1u, kCpuLanes), std::bit_floor(most));
  shape.lanes_x = lanes;
  if (!analysis.shares_by_rows && !analysis.shares_by_columns) {
    // Several columns of a lane share an address, so few columns go to few lanes.
    while (shape.lanes_x > 1 && shape.lanes_x * kCpuColumns > columns) shape.lanes_x /= 2;
    shape.lanes_y = lanes / shape.lanes_x;
    if (idle(rows, shape.lanes_y) > kMostIdle) {
      shape.lanes_x = lanes;
      shape.lanes_y = 1;
    }
  }
  if (idle(columns, shape.lanes_x) > kMostIdle) return idle_lanes(columns, shape.lanes_x);
  const int64_t most_instructions = analysis.shares_by_rows && analysis.shares_by_columns
                                        ? kMostOfContraction
                                        : kMostInstructions;
  const auto fits = [&](const TileShape& s) {
    return s.rows * s.columns * carried <= kCpuTileValues &&
           tile_instructions(kernel.body, analysis, s.columns, s.rows) <= most_instructions &&
           idle(columns, s.lanes_x * s.columns) <= kMostIdle &&
           tiled(kernel, s, 0).group_count >= kCpuTileGroups;
  };
  for (TileShape wider = shape; wider.columns < kCpuColumns;) {
    wider.columns *= 2;
    if (!fits(wider)) break;
    shape = wider;
  }
  for (TileShape taller = shape; analysis.shares_by_rows && taller.rows < kCpuRows;) {
    taller.rows *= 2;
    if (taller.rows > rows || !fits(taller)) break;
    shape = taller;
  }
  if (t.tile_columns != 0) shape.columns = t.tile_columns;
  if (t.tile_rows != 0) shape.rows = t.tile_rows;
  Schedule s = tiled(kernel, shape, 0);
  s.long_accesses = t.int64;
  s.broadcasts = t.subgroup_shuffle && s.workgroup_size == t.subgroup_size && s.lanes_y == 1;
  s.is_adjacent = s.columns > 1 && columns % s.columns == 0;
  return s;
}

// The sums of an invocation, at most. Vulkan does not say how many registers there are: Adreno and
// Apple's GPUs, whose drivers spill with more sums than this (Mesa 26.2's Turnip and Honeykrisp),
// offer less shared memory than those of AMD, Intel and NVIDIA.
int64_t tile_values(const Target& t) {
  return t.max_shared_memory_bytes > kMobileSharedBytes ? kGpuTileValues : kGpuTileValues / 2;
}

// In shared memory where a workgroup's lanes load the same, so contractions.
Answer choose_shared_tile(const kernel::IndexAnalysis& index, const Target& t, uint32_t most) {
  const kernel::Kernel& kernel = index.kernel();
  if (t.is_cpu) return "for GPUs";
  const TileAnalysis analysis = analyse_tile(index);
  if (kernel::Refusal why = why_no_tile(kernel, analysis, t); !why.empty()) return why;
  const int64_t carried = std::max<int64_t>(analysis.carried, 1);
  if (!analysis.shares_by_rows) return "no load of an innermost loop is that of all rows";
  if (!analysis.shares_by_columns) return "no load of an innermost loop is that of all columns";
  std::optional<Schedule> best;
  const int64_t most_values = tile_values(t);
  constexpr TileShape kShapes[] = {
      {16, 16, 8, 1}, {16, 16, 4, 1}, {16, 8, 4, 1}, {8, 8, 4, 1}, {8, 8, 2, 1}};
  for (const TileShape& shape : kShapes) {
    // A narrower one leaves less to lanes that compute a column once more.
    if (idle(kernel.grid.back(), shape.lanes_x * shape.columns) > kMostIdle &&
        &shape != &std::end(kShapes)[-1]) {
      continue;
    }
    const uint32_t lanes = shape.lanes_x * shape.lanes_y;
    if (tile_instructions(kernel.body, analysis, shape.columns, shape.rows) > kMostOfContraction ||
        lanes > most || shape.columns * carried > most_values)
      continue;
    if (best && best->group_count >= kGpuTileGroups) break;
    const bool is_small = lanes <= kSmallTile, has_registers = most_values == kGpuTileValues;
    best = tiled(kernel, shape, is_small && has_registers ? kStagedDepthOfSmall : kStagedDepth);
    // What waits in registers for the next block is a quarter of the sums, but of small tiles.
    best->prefetches = !is_small && has_registers;
    best->is_adjacent = kernel.grid.back() % shape.columns == 0 && may_be_adjacent(kernel, t);
    best->long_accesses = best->is_adjacent && t.int64;
  }
  if (best) return *best;
  return fmt::format(
      "no tile has {} instructions, {} values that loops carry and {} invocations at most: one of "
      "8 x 8 invocations with two columns each has {} and {}",
      kMostOfContraction, most_values, most, tile_instructions(kernel.body, analysis, 2, 1),
      2 * carried);
}

// Many points that each go along contiguous memory, a row each: on a GPU the lanes of a
// workgroup load the iterations of a block together, in the order of memory, into shared memory.
constexpr int64_t kFewestStagedPoints = 4096;
constexpr uint32_t kMostStagedLanes = 128;
constexpr uint32_t kFewestStagedLanes = 8;
constexpr int64_t kMostStagedBytes = 24576;  // of a workgroup, so that several fit a core

Answer choose_staged_rows(const kernel::IndexAnalysis& index, const Target& t, uint32_t most) {
  const kernel::Kernel& kernel = index.kernel();
  if (t.is_cpu) return "for GPUs";
  if (kernel.points() <= kFewestStagedPoints) {
    return fmt::format("{} points, not more than {}", kernel.points(), kFewestStagedPoints);
  }
  const kernel::Function& f = kernel.body;
  const TileAnalysis analysis = analyse_tile(index);
  if (kernel::Refusal why = why_no_tile(kernel, analysis, t); !why.empty()) return why;
  if (analysis.carried > kGpuTileValues) {
    return fmt::format("loops carry {} values, more than {}", analysis.carried, kGpuTileValues);
  }
  int64_t bytes_of_lane = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kFor || f[inst.arguments[0]].op != Op::kConstant) continue;
    const auto trips = static_cast<int64_t>(f[inst.arguments[0]].immediate);
    if (trips < kStagedDepthOfSmall) continue;
    for (const StagedLoad& load :
         staged_loads(index, static_cast<int32_t>(inst.immediate), trips, analysis.depends,
                      /*has_rows=*/false)) {
      if (!load.is_along_iteration) continue;
      bytes_of_lane += kStagedDepthOfSmall * kernel::bit_width(f.type(load.load)) / 8;
    }
  }
  if (bytes_of_lane == 0) {
    return fmt::format("no loop of {} iterations or more goes along memory", kStagedDepthOfSmall);
  }
  uint32_t lanes = std::min(kMostStagedLanes, std::bit_floor(most));
  while (lanes > kFewestStagedLanes && (idle(kernel.grid.back(), lanes) > kMostIdle ||
                                        (lanes + 1) * bytes_of_lane > kMostStagedBytes)) {
    lanes /= 2;
  }
  if (idle(kernel.grid.back(), lanes) > kMostIdle) return idle_lanes(kernel.grid.back(), lanes);
  return tiled(kernel, {lanes, 1, 1, 1}, kStagedDepthOfSmall);
}

// Few points with much to add up each: on a GPU a subgroup for each, so that its lanes load
// neighbours and wait for memory together. An NVIDIA H100 takes 6 us instead of 70 to 175 for the
// rows of layer norms, and 45 instead of 270 for a product with transposed weights.
constexpr int64_t kMostSharedPoints = 8192;
constexpr int64_t kFewestSharedIterations = 16;
// Where adjacent points rather than iterations are contiguous in memory.
constexpr int64_t kMostScatteredPoints = 2048;
// Elements between iterations whose loads are contiguous all together (unrolled sums).
constexpr int64_t kMostStep = 16;

Answer choose_shared_point(const kernel::IndexAnalysis& index, const Target& t, uint32_t) {
  const kernel::Kernel& kernel = index.kernel();
  if (t.is_cpu) return "for GPUs";
  if (kernel.points() > kMostSharedPoints) {
    return fmt::format("{} points, more than {}", kernel.points(), kMostSharedPoints);
  }
  Answer shared = shared_point(kernel, t);
  if (std::holds_alternative<kernel::Refusal>(shared)) return shared;
  const kernel::Function& f = kernel.body;
  int64_t along = 0, across = 0;
  bool is_worth_it = false;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kFor) continue;
    const auto region = static_cast<int32_t>(inst.immediate);
    if (passed_values(f, region).passed.empty()) continue;
    is_worth_it |= index.trips(static_cast<kernel::Value>(i)) >= kFewestSharedIterations;
    const kernel::RegionBody& body = f.region(region);
    for (const kernel::Value v : body.instructions) {
      if (f[v].op != Op::kLoad) continue;
      const auto step = index.slope(f[v].arguments[0], index.iteration(region));
      if (step == int64_t{0}) continue;
      ++(step > 0 && step <= kMostStep ? along : across);
    }
  }
  if (!is_worth_it) return fmt::format("no loop has {} iterations", kFewestSharedIterations);
  if (along <= across && kernel.points() > kMostScatteredPoints) {
    return fmt::format("{} points, more than {} where memory lies along them", kernel.points(),
                       kMostScatteredPoints);
  }
  return shared;
}

// Iterations whose loads an invocation of a team waits for together.
constexpr uint32_t kTeamUnroll = 8;

// On a GPU as many teams as fill a workgroup: those whose points are contiguous in memory, or, of
// points that are not, neighbouring teams.
Answer choose_teams(const kernel::IndexAnalysis& index, const Target& t, uint32_t most) {
  const kernel::Kernel& kernel = index.kernel();
  if (kernel::Refusal why = why_no_teams(kernel, t); !why.empty()) return why;
  const uint32_t points = team_points(kernel);
  uint32_t invocations = t.is_cpu ? t.subgroup_size : kGpuWorkgroup;
  invocations = std::min(std::max(std::bit_ceil(invocations), points), std::bit_floor(most));
  invocations = std::min(invocations, points * most_teams(kernel, t));
  Schedule s = teams(kernel, t, invocations, team_stride(kernel) == 1, /*shuffles=*/true);
  if (!t.is_cpu) {
    s.long_accesses = t.int64;
    s.most_unroll = kTeamUnroll;
  }
  return s;
}

// Points whose loads and stores are contiguous along different dimensions: on a GPU tiles of them,
// which go through shared memory.
constexpr int64_t kFewestTransposed = 8192;
constexpr uint32_t kTransposedSide = 32;
// Of elements that a word has several of, so that subgroups still read and write whole lines.
constexpr uint32_t kTransposedSideOfNarrow = 64;

Answer choose_transposes(const kernel::IndexAnalysis& index, const Target& t, uint32_t most) {
  const kernel::Kernel& kernel = index.kernel();
  if (t.is_cpu) return "for GPUs";
  if (kernel.points() < kFewestTransposed) {
    return fmt::format("{} points, fewer than {}", kernel.points(), kFewestTransposed);
  }
  const TransposedTile tile = transposed_tile(index);
  if (kernel::Refusal why = why_no_transposes(kernel, tile, t); !why.empty()) return why;
  TransposedShape shape;
  shape.columns = unit_columns(index, t, 4);
  uint32_t side = shape.columns > 1 ? kTransposedSideOfNarrow : kTransposedSide;
  for (const kernel::Value v : tile.loads) {
    if (elements_of_word(kernel.body, v) > 1) side = kTransposedSideOfNarrow;
  }
  const auto sides = [&](uint64_t few, uint64_t many) {
    return std::pair(static_cast<uint32_t>(few),
                     static_cast<uint32_t>(std::min(many, uint64_t{side} * side / few)));
  };
  const auto columns = std::bit_ceil(static_cast<uint64_t>(points_of(kernel, tile.columns)));
  const auto rows = std::bit_ceil(static_cast<uint64_t>(points_of(kernel, tile.rows)));
  for (;; side /= 2) {
    if (columns < side) {
      std::tie(shape.tile_columns, shape.tile_rows) = sides(columns, rows);
    } else {
      std::tie(shape.tile_rows, shape.tile_columns) =
          sides(std::min<uint64_t>(rows, side), columns);
    }
    shape.invocations = std::min({kGpuWorkgroup, std::bit_floor(most),
                                  shape.tile_columns * shape.tile_rows / shape.columns});
    Answer answer = transposed(kernel, tile, shape, t);
    const auto* s = std::get_if<Schedule>(&answer);
    if (side <= 8 || (s != nullptr && tile_instructions(kernel.body, {.depends = tile.depends},
                                                        s->columns, s->rows) <= kMostInstructions))
      return answer;
  }
}

Answer choose_points(const kernel::IndexAnalysis& index, const Target& t, uint32_t most) {
  const kernel::Kernel& kernel = index.kernel();
  const int64_t points = kernel.points();
  Schedule s;
  if (t.is_cpu) {
    s.workgroup_size = std::clamp(t.subgroup_size, 1u, kCpuLanes);
    s.long_accesses = t.int64;
    s.columns = unit_columns(index, t, t.int64 ? kLongAccessBytes : 4);
    const int64_t share = points / s.columns / (kCpuGroups * s.workgroup_size);
    s.points_per_invocation = static_cast<uint32_t>(std::clamp<int64_t>(share, 1, kCpuPoints));
  } else {
    s.workgroup_size = kGpuWorkgroup;
    // A word that one invocation fills needs no atomics.
    if (points >= kGpuPlenty && t.int64 && !kernel.grid.empty() && loads_are_in_order(index)) {
      s.long_accesses = true;
      s.columns = unit_columns(index, t, kLongestRunBytes);
    } else if (!t.storage_8 || !t.storage_16) {
      s.columns = unit_columns(index, t, 4);
    }
    s.rows = units_side_by_side(index, t, s.columns);
  }
  s.is_adjacent = s.columns > 1;
  s.workgroup_size = std::min(s.workgroup_size, std::bit_floor(most));
  if (t.workgroup_size != 0) s.workgroup_size = std::min(t.workgroup_size, most);
  if (t.points_per_invocation != 0) s.points_per_invocation = t.points_per_invocation;
  return s;
}

// Those before the last one are for kernels whose workgroups nobody has given a size.
struct Way {
  std::string_view name;
  Answer (*choose)(const kernel::IndexAnalysis& index, const Target& target, uint32_t most);
};
constexpr Way kWays[] = {{kTeams, choose_teams},
                         {kTile, choose_tile},
                         {kSharedTile, choose_shared_tile},
                         {kSharedRows, choose_staged_rows},
                         {kSubgroupPerPoint, choose_shared_point},
                         {kTransposes, choose_transposes},
                         {kPoints, choose_points}};

}  // namespace

Schedule choose_schedule(const kernel::IndexAnalysis& index, const Target& t,
                         kernel::Implementations* asked) {
  kernel::Implementations own;
  kernel::Implementations& ways = asked == nullptr ? own : *asked;
  if (t.schedule_seed != 0) return draw_schedule(index, t, ways);
  const bool is_given = t.workgroup_size != 0 || t.points_per_invocation != 0;
  const bool has_teams = team_points(index.kernel()) > 0;
  Schedule s;
  for (const Way& way : kWays) {
    Answer answer;
    if (has_teams && way.name != kTeams) {
      answer = kernel::Refusal("points exchange values");
    } else if (is_given && way.name != kPoints && way.name != kTeams) {
      answer = kernel::Refusal("the size of a workgroup is given");
    } else if (ways.taken().empty()) {
      answer = way.choose(index, t, most_invocations(t));
    }
    const auto* refusal = std::get_if<kernel::Refusal>(&answer);
    if (ways.ask(way.name, refusal == nullptr ? "" : *refusal)) s = std::get<Schedule>(answer);
  }
  limit_iterations(index, t, s);
  if (s.is_tiled || s.shares_point || s.transposed_loads > 0 || has_teams) return s;
  const int64_t per_group = int64_t{s.workgroup_size} * s.points_per_invocation * s.rows;
  s.group_count = ceil_div(index.kernel().points() / s.columns, per_group);
  return s;
}

namespace {

constexpr std::string_view kNames[] = {"points",
                                       "points, adjacent columns",
                                       "tile",
                                       "tile, adjacent columns",
                                       "tile, lanes load for each other",
                                       "tile, adjacent columns, lanes load for each other",
                                       "shared memory",
                                       "subgroup per point",
                                       "teams, shared memory",
                                       "teams, subgroups",
                                       "transposed in shared memory"};

}  // namespace

std::string_view schedule_name(const Schedule& s) {
  if (s.transposed_loads > 0) return kNames[10];
  if (s.team_points > 0) return kNames[s.shuffles ? 9 : 8];
  if (s.shares_point) return kNames[7];
  if (s.staged_depth > 0) return kNames[6];
  if (!s.is_tiled) return kNames[s.is_adjacent ? 1 : 0];
  return kNames[2 + (s.is_adjacent ? 1 : 0) + (s.broadcasts ? 2 : 0)];
}

std::span<const std::string_view> schedule_names() { return kNames; }

std::vector<bool> chain_stores(const kernel::Function& f) {
  // Lengths of the longest chains. Values come before their uses but for carried ones: what comes
  // out of a loop is no chain, since it goes through the loop's variables.
  std::vector<int> length(f.size(), 0);
  std::vector<bool> result(f.size(), false);
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    switch (inst.op) {
      case Op::kConstant:
      case Op::kParameter:
      case Op::kLoad:
      case Op::kTeamLoad:
      case Op::kTeamStore:
      case Op::kTeamAdd:
      case Op::kTeamStoreWide:
      case Op::kSumsClear:
      case Op::kSumsMultiply:
      case Op::kSumsScale:
      case Op::kSumsStore:
      case Op::kFor:
      case Op::kForResult:
        break;
      case Op::kStore:
        result[i] = length[static_cast<size_t>(inst.arguments[1])] >= kLongChain;
        break;
      default:
        for (kernel::Value a : inst.arguments) {
          length[i] = std::max(length[i], length[static_cast<size_t>(a)]);
        }
        length[i] += 1;
    }
  }
  return result;
}

std::vector<bool> foldable_values(const kernel::Function& f) {
  std::vector<bool> result(f.size(), false);
  auto at = [&](kernel::Value v) { return static_cast<bool>(result[static_cast<size_t>(v)]); };
  // A loop's parameters come before the loop, so they are found through the loop.
  std::vector<const kernel::Instruction*> loops(f.region_count(), nullptr);
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op == Op::kFor) loops[inst.immediate] = &inst;
  }
  // An unrolled loop knows what it starts with and what is yielded.
  auto carried = [&](const kernel::Instruction& loop, uint64_t which) {
    const kernel::RegionBody& region = f.region(static_cast<int32_t>(loop.immediate));
    return at(region.yields[which]) || at(loop.arguments[which + 1]);
  };
  auto is_foldable = [&](const kernel::Instruction& inst) {
    if (kernel::is_float(inst.type) && inst.op != Op::kConstant) return false;
    switch (inst.op) {
      case Op::kConstant:
        return true;
      case Op::kParameter: {
        const kernel::Instruction* loop = loops[static_cast<size_t>(inst.region)];
        return loop == nullptr || inst.immediate == 0 || carried(*loop, inst.immediate - 1);
      }
      case Op::kForResult:
        return carried(f[inst.arguments[0]], inst.immediate);
      case Op::kLoad:
      case Op::kStore:
      case Op::kTeamLoad:
      case Op::kTeamStore:
      case Op::kTeamAdd:
      case Op::kTeamStoreWide:
      case Op::kSumsClear:
      case Op::kSumsMultiply:
      case Op::kSumsScale:
      case Op::kSumsStore:
      case Op::kFor:
        return false;
      default:
        return std::all_of(inst.arguments.begin(), inst.arguments.end(), at);
    }
  };
  // Yields come after their parameters: again until nothing is new, mostly twice.
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (size_t i = 0; i < f.size(); ++i) {
      if (result[i] || !is_foldable(f[static_cast<kernel::Value>(i)])) continue;
      result[i] = is_new = true;
    }
  }
  return result;
}

}  // namespace hekla::vulkan::codegen
