// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/schedule.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "backends/vulkan/codegen/memory.h"
#include "backends/vulkan/codegen/tile.h"

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

// A tile's sums. More rows and columns mean fewer loads for each product; on llvmpipe, where loads
// are dear and what does not fit into registers is on a stack in the cache, 16 x 8 takes four
// fifths of the time of 16 x 4, and twice as many a tenth less but thrice as long to compile.
constexpr int64_t kCpuTileValues = 128;
constexpr int64_t kCpuColumns = 8;
constexpr int64_t kCpuRows = 2;
constexpr int64_t kGpuTileValues = 64;
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
uint32_t unit_columns(const kernel::Kernel& kernel, const Target& t, uint32_t word_bytes) {
  const kernel::Function& f = kernel.body;
  if (kernel.points() == 0 || kernel.points() > t.max_narrow_points || f.region_count() > 1 ||
      kernel.grid.empty()) {
    return 1;
  }
  uint32_t columns = 1;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kLoad && inst.op != Op::kStore) continue;
    const kernel::Access access = kernel::unpack_access(inst.immediate);
    if (slope(f, inst.arguments[0], f.body().parameters.back()) != int64_t{1}) continue;
    columns = std::max<uint32_t>(columns, word_bytes / access.bytes);
  }
  const TileAnalysis analysis = analyse_tile(kernel);
  while (columns > 1 && (kernel.grid.back() % columns != 0 ||
                         tile_instructions(f, analysis, columns, 1) > kMostInstructions)) {
    columns /= 2;
  }
  return columns;
}

// Lanes that follow each other read neighbours, or all the same: what words of several columns
// keep.
bool loads_are_in_order(const kernel::Function& f) {
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kLoad) continue;
    const auto step = slope(f, inst.arguments[0], f.body().parameters.back());
    if (step != int64_t{0} && step != int64_t{1}) return false;
  }
  return true;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// More would be compiled for minutes.
constexpr uint32_t kMostTurnsAtOnce = 64;
constexpr int64_t kManyTurns = int64_t{1} << 40;

// An upper bound of a loop's count. One that is computed is a search, of a few turns, unless it is
// the smaller of something and a constant.
int64_t most_trips(const kernel::Function& f, const kernel::Instruction& count) {
  constexpr int64_t kComputedCount = 64;
  if (count.op == Op::kConstant) return static_cast<int64_t>(count.immediate);
  if (count.op == Op::kBoolToInt) return 1;
  if (count.op != Op::kSelect) return kComputedCount;
  const kernel::Instruction& condition = f[count.arguments[0]];
  const kernel::Instruction& bound = f[count.arguments[2]];
  const bool is_smaller = condition.op == Op::kLtS &&
                          condition.arguments[0] == count.arguments[1] &&
                          condition.arguments[1] == count.arguments[2];
  if (!is_smaller || bound.op != Op::kConstant) return kComputedCount;
  return static_cast<int64_t>(bound.immediate);
}

// How often an invocation comes to the end of a loop's body for one point, when `at_once` turns of
// innermost loops are written out: once a turn, and once more to leave the loop.
int64_t loop_turns(const kernel::Function& f, int32_t region, uint32_t at_once) {
  int64_t sum = 0;
  for (const kernel::Value v : f.region(region).instructions) {
    if (f[v].op != Op::kFor) continue;
    const kernel::Instruction& count = f[f[v].arguments[0]];
    const int64_t trips = most_trips(f, count);
    const int64_t inner = loop_turns(f, static_cast<int32_t>(f[v].immediate), at_once);
    // Lanes that load for each other have a loop over their turns around, a quarter more.
    int64_t turns = trips + trips / 4 + 2;
    if (inner == 0 && count.op == Op::kConstant) turns = turns / at_once + at_once + 2;
    sum += std::min(kManyTurns, turns) + std::min(kManyTurns, trips) * inner;
    if (sum > kManyTurns) return kManyTurns;
  }
  return sum;
}

// Keeps the loops of an invocation below the driver's limit.
void limit_turns(const kernel::Kernel& kernel, const Target& t, Schedule& s) {
  if (t.max_loop_turns == 0) return;
  const auto turns = [&](int64_t points) {
    return points * (loop_turns(kernel.body, 0, s.least_turns_at_once) + 1) + 1;
  };
  if (turns(s.points_per_invocation) <= t.max_loop_turns) return;
  while (turns(1) > t.max_loop_turns && s.least_turns_at_once < kMostTurnsAtOnce) {
    s.least_turns_at_once *= 2;
  }
  s.has_too_many_turns = turns(1) > t.max_loop_turns;
  const int64_t most = t.max_loop_turns / turns(1);
  s.points_per_invocation =
      static_cast<uint32_t>(std::clamp<int64_t>(most, 1, s.points_per_invocation));
}

struct TileShape {
  uint32_t lanes_x = 1, lanes_y = 1, columns = 1, rows = 1;
};

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

// How many times as many columns as there are have a lane.
double idle(int64_t columns, int64_t per_group) {
  return static_cast<double>(ceil_div(columns, per_group) * per_group) /
         static_cast<double>(columns);
}

std::optional<Schedule> choose_tile(const kernel::Kernel& kernel, const Target& t, uint32_t most) {
  if (kernel.points() == 0 || kernel.points() > t.max_narrow_points) return std::nullopt;
  const TileAnalysis analysis = analyse_tile(kernel);
  if (!analysis.is_possible) return std::nullopt;
  const size_t rank = kernel.grid.size();
  const int64_t columns = kernel.grid[rank - 1];
  const int64_t rows = rank > 1 ? kernel.grid[rank - 2] : 1;
  const int64_t carried = std::max<int64_t>(analysis.carried, 1);
  if (t.is_cpu) {
    TileShape shape;
    const uint32_t lanes =
        std::min(std::clamp(t.subgroup_size, 1u, kCpuLanes), std::bit_floor(most));
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
    if (idle(columns, shape.lanes_x) > kMostIdle) return std::nullopt;
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
  // In shared memory where a workgroup's lanes load the same, so contractions.
  if (!analysis.shares_by_rows || !analysis.shares_by_columns) return std::nullopt;
  std::optional<Schedule> best;
  for (const TileShape& shape : {TileShape{16, 16, 4, 1}, TileShape{16, 8, 4, 1},
                                 TileShape{8, 8, 4, 1}, TileShape{8, 8, 2, 1}}) {
    if (tile_instructions(kernel.body, analysis, shape.columns, shape.rows) > kMostOfContraction ||
        shape.lanes_x * shape.lanes_y > most || shape.columns * carried > kGpuTileValues)
      continue;
    if (best && best->group_count >= kGpuTileGroups) break;
    best = tiled(kernel, shape,
                 shape.lanes_x * shape.lanes_y <= kSmallTile ? kStagedDepthOfSmall : kStagedDepth);
  }
  return best;
}

// Where lanes load for each other in loops, and wait for each other there. So that no load comes
// too late in kernels that update an operand, all stores come after them.
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

// Many points that each go along neighbours in memory, a row each: on a GPU the lanes of a
// workgroup load the turns of a block together, neighbours by neighbours, into shared memory.
constexpr int64_t kFewestStagedPoints = 4096;
constexpr uint32_t kMostStagedLanes = 128;
constexpr uint32_t kFewestStagedLanes = 8;
constexpr int64_t kMostStagedBytes = 24576;  // of a workgroup, so that several fit a core

std::optional<Schedule> choose_staged_rows(const kernel::Kernel& kernel, const Target& t,
                                           uint32_t most) {
  if (t.is_cpu || kernel.points() <= kFewestStagedPoints || kernel.points() > t.max_narrow_points) {
    return std::nullopt;
  }
  const kernel::Function& f = kernel.body;
  const TileAnalysis analysis = analyse_tile(kernel);
  if (!analysis.is_possible || analysis.carried > kGpuTileValues) return std::nullopt;
  int64_t bytes_of_lane = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kFor || f[inst.arguments[0]].op != Op::kConstant) continue;
    const auto trips = static_cast<int64_t>(f[inst.arguments[0]].immediate);
    if (trips < kStagedDepthOfSmall) continue;
    for (const StagedLoad& load :
         staged_loads(f, static_cast<int32_t>(inst.immediate), trips, analysis.depends,
                      kernel::kNoValue, f.body().parameters.back())) {
      if (!load.is_along_iteration) continue;
      bytes_of_lane += kStagedDepthOfSmall * kernel::bit_width(f.type(load.load)) / 8;
    }
  }
  if (bytes_of_lane == 0) return std::nullopt;
  uint32_t lanes = std::min(kMostStagedLanes, std::bit_floor(most));
  while (lanes > kFewestStagedLanes && (idle(kernel.grid.back(), lanes) > kMostIdle ||
                                        (lanes + 1) * bytes_of_lane > kMostStagedBytes)) {
    lanes /= 2;
  }
  if (idle(kernel.grid.back(), lanes) > kMostIdle) return std::nullopt;
  return tiled(kernel, {lanes, 1, 1, 1}, kStagedDepthOfSmall);
}

// Few points with much to add up each: on a GPU a subgroup for each, so that its lanes load
// neighbours and wait for memory together. An NVIDIA H100 takes 6 us instead of 70 to 175 for the
// rows of layer norms, and 45 instead of 270 for a product with transposed weights.
constexpr int64_t kMostSharedPoints = 8192;
constexpr int64_t kFewestSharedTurns = 16;
// Where neighbouring points rather than turns are neighbours in memory.
constexpr int64_t kMostScatteredPoints = 2048;
constexpr size_t kMostPassed = 40;
// Elements between turns whose loads are neighbours all together (unrolled sums).
constexpr int64_t kMostStep = 16;

std::optional<Schedule> choose_shared_point(const kernel::Kernel& kernel, const Target& t,
                                            uint32_t most) {
  const kernel::Function& f = kernel.body;
  if (t.is_cpu || !t.subgroup_shuffle || t.subgroup_size > most || kernel.points() == 0 ||
      kernel.points() > kMostSharedPoints || !stores_after_loops(f)) {
    return std::nullopt;
  }
  int64_t along = 0, across = 0;
  bool is_worth_it = false;
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kFor) continue;
    const auto region = static_cast<int32_t>(inst.immediate);
    const PassedValues values = passed_values(f, region);
    if (values.passed.empty()) continue;
    if (values.passed.size() > kMostPassed) return std::nullopt;
    is_worth_it |= most_trips(f, f[inst.arguments[0]]) >= kFewestSharedTurns;
    const kernel::RegionBody& body = f.region(region);
    for (const kernel::Value v : body.instructions) {
      if (f[v].op != Op::kLoad) continue;
      const auto step = slope(f, f[v].arguments[0], body.parameters[0]);
      if (step == int64_t{0}) continue;
      ++(step > 0 && step <= kMostStep ? along : across);
    }
  }
  if (!is_worth_it || (along <= across && kernel.points() > kMostScatteredPoints)) {
    return std::nullopt;
  }
  Schedule s;
  s.workgroup_size = t.subgroup_size;
  s.group_count = kernel.points();
  s.broadcasts = s.shares_point = true;
  return s;
}

}  // namespace

Schedule choose_schedule(const kernel::Kernel& kernel, const Target& t) {
  const int64_t points = kernel.points();
  const uint32_t most = std::max(1u, std::min(t.max_workgroup_invocations, t.max_workgroup_size_x));
  if (t.workgroup_size == 0 && t.points_per_invocation == 0) {
    if (std::optional<Schedule> tile = choose_tile(kernel, t, most)) {
      limit_turns(kernel, t, *tile);
      return *tile;
    }
    if (std::optional<Schedule> staged = choose_staged_rows(kernel, t, most)) {
      limit_turns(kernel, t, *staged);
      return *staged;
    }
    if (std::optional<Schedule> shared = choose_shared_point(kernel, t, most)) {
      limit_turns(kernel, t, *shared);
      return *shared;
    }
  }
  Schedule s;
  if (t.is_cpu) {
    s.workgroup_size = std::clamp(t.subgroup_size, 1u, kCpuLanes);
    s.long_accesses = t.int64;
    s.columns = unit_columns(kernel, t, t.int64 ? kLongAccessBytes : 4);
    const int64_t share = points / s.columns / (kCpuGroups * s.workgroup_size);
    s.points_per_invocation = static_cast<uint32_t>(std::clamp<int64_t>(share, 1, kCpuPoints));
  } else {
    s.workgroup_size = kGpuWorkgroup;
    // A word that one invocation fills needs no atomics.
    if (points >= kGpuPlenty && t.int64 && !kernel.grid.empty() &&
        loads_are_in_order(kernel.body)) {
      s.long_accesses = true;
      s.columns = unit_columns(kernel, t, kLongAccessBytes);
    } else if (!t.storage_8 || !t.storage_16) {
      s.columns = unit_columns(kernel, t, 4);
    }
    s.points_per_invocation = points >= kGpuPlenty ? kGpuPoints : 1;
  }
  s.is_adjacent = s.columns > 1;
  s.workgroup_size = std::min(s.workgroup_size, std::bit_floor(most));
  if (t.workgroup_size != 0) s.workgroup_size = std::min(t.workgroup_size, most);
  if (t.points_per_invocation != 0) s.points_per_invocation = t.points_per_invocation;
  limit_turns(kernel, t, s);
  const int64_t per_group = int64_t{s.workgroup_size} * s.points_per_invocation;
  s.group_count = ceil_div(points / s.columns, per_group);
  return s;
}

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
