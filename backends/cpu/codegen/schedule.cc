// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "backends/compiler/kernel/draw.h"
#include "backends/compiler/kernel/row_access.h"
#include "backends/cpu/codegen/narrow_values.h"

namespace hekla::cpu {
namespace {

using kernel::Draw;
using kernel::Instruction;
using kernel::Op;

constexpr int kLaneBits = 32;
constexpr int64_t kFewestTileRows = 4;

// Nanoseconds of one vector instruction, from the rates of a current core at 3 to 4 GHz: about two
// simple instructions a cycle, and what is done lane by lane counted per lane.
double cost(const kernel::Function& f, const LaneAnalysis& analysis, kernel::Value v, int lanes) {
  constexpr double kSimple = 0.15;
  const Instruction& inst = f[v];
  if (!analysis.is_needed(v) || analysis.resolved(v) != v) return 0;
  if (inst.op != Op::kStore && analysis.shape(v).kind != LaneKind::kVarying) {
    return analysis.level(v) == Level::kPoint ? kSimple : 0;
  }
  // In vectors of eight elements of 32 bits.
  const double wide = std::max(1.0, lanes / 8.0) * (bit_width(inst.type) == 64 ? 2 : 1);
  switch (inst.op) {
    case Op::kDiv:
    case Op::kSqrt:
      return 1.5 * wide;
    case Op::kDivS:
    case Op::kDivU:
    case Op::kRemS:
    case Op::kRemU:
      return bit_width(inst.type) == 32 ? 4 * wide : 3.0 * lanes;
    case Op::kMulHighU:
      return 1.5 * wide;
    case Op::kLoad:
    case Op::kStore: {
      const LaneShape index = analysis.shape(inst.arguments[0]);
      if (index.kind == LaneKind::kUniform) return kSimple;
      const bool is_vector = index.kind == LaneKind::kAffine && index.stride == 1;
      return is_vector ? 0.4 * wide : 0.4 * lanes;
    }
    default:
      return kSimple * wide;
  }
}

double region_cost(const kernel::Function& f, const LaneAnalysis& analysis, int32_t number,
                   int lanes) {
  double total = 0;
  for (kernel::Value v : f.region(number).instructions) {
    const Instruction& inst = f[v];
    if (!analysis.is_needed(v)) continue;
    if (inst.op != Op::kFor) {
      total += cost(f, analysis, v, lanes);
      continue;
    }
    total += static_cast<double>(analysis.index().trips(v)) *
             (0.3 + region_cost(f, analysis, static_cast<int32_t>(inst.immediate), lanes));
  }
  return total;
}

// What says how many vectors of a body fit into the registers at a time.
struct BodySize {
  int varying = 0;  // instructions on vectors, of 32 bits; twice for 64
  int carried = 0;  // vectors that loops carry
  bool has_loop = false;
  bool by_lane = false;  // something goes lane by lane, or lanes diverge
};

void measure(const kernel::Function& f, const LaneAnalysis& analysis, int32_t region,
             BodySize& size) {
  for (kernel::Value v : f.region(region).instructions) {
    const Instruction& inst = f[v];
    if (!analysis.is_needed(v) || analysis.resolved(v) != v) continue;
    if (inst.op == Op::kFor) {
      const auto inner = static_cast<int32_t>(inst.immediate);
      size.has_loop = true;
      if (analysis.is_divergent(v)) size.by_lane = true;
      const auto& parameters = f.region(inner).parameters;
      for (size_t i = 1; i < parameters.size(); ++i) {
        if (!analysis.is_varying(parameters[i])) continue;
        size.carried += bit_width(f.type(parameters[i])) == 64 ? 2 : 1;
      }
      measure(f, analysis, inner, size);
      continue;
    }
    if (inst.op == Op::kLoad || inst.op == Op::kStore) {
      const LaneShape index = analysis.shape(inst.arguments[0]);
      const bool is_vector = index.kind == LaneKind::kAffine && index.stride == 1;
      if (index.kind != LaneKind::kUniform && !is_vector) size.by_lane = true;
    }
    if (inst.op == Op::kStore || !analysis.is_varying(v)) continue;
    // By a constant it is a multiplication.
    const bool divides = inst.op >= Op::kDivS && inst.op <= Op::kRemU &&
                         f[analysis.resolved(inst.arguments[1])].op != Op::kConstant;
    if (divides) size.by_lane = true;
    size.varying += bit_width(inst.type) == 64 ? 2 : 1;
  }
}

// Loads and stores of the body whose lanes lie apart for no rule.
int scattered_accesses(const kernel::Function& f, const LaneAnalysis& analysis) {
  int count = 0;
  for (kernel::Value v : f.body().instructions) {
    const Instruction& inst = f[v];
    if ((inst.op != Op::kLoad && inst.op != Op::kStore) || !analysis.is_needed(v)) continue;
    count += analysis.is_varying(inst.arguments[0]) ? 1 : 0;
  }
  return count;
}

// How many vectors run at a time: 1, 2 or 4.
int choose_vectors(const kernel::Function& f, const LaneAnalysis& analysis) {
  BodySize size;
  measure(f, analysis, 0, size);
  if (size.by_lane) return 1;
  // Narrow lanes fill what holds as many wide ones and more.
  const int filled = NarrowValues::kWide / NarrowValues(f, analysis).widest();
  if (filled == 4) return 4;
  constexpr int kRegisters = 8;  // half of what there are
  if (size.has_loop) {
    if (size.carried * 4 <= kRegisters * filled && size.varying <= 12) return 4;
    return size.carried * 2 <= kRegisters && size.varying <= 24 ? 2 : filled;
  }
  return size.varying <= 24 ? 2 : filled;
}

// The dimension along which the loads are contiguous whose lanes lie in different lines of the
// cache; -1 when there is no such load, or none that has such a dimension.
int choose_tile_dimension(const kernel::Kernel& kernel, const LaneAnalysis& analysis) {
  constexpr int64_t kLineBytes = 64;
  constexpr int64_t kNearBytes = 16;
  const kernel::Function& f = kernel.body;
  const int lane = analysis.lane_dimension();
  if (lane < 0 || f.region_count() > 1) return -1;
  for (kernel::Value v : f.body().instructions) {
    const Instruction& inst = f[v];
    if (inst.op != Op::kLoad || !analysis.is_needed(v)) continue;
    const int64_t bytes = kernel::unpack_access(inst.immediate).bytes;
    const auto step = [&](int dimension) {
      return std::abs(
                 analysis.index().slope_of_dimension(inst.arguments[0], dimension).value_or(0)) *
             bytes;
    };
    if (step(lane) < kLineBytes) continue;
    for (int d = 0; d < static_cast<int>(kernel.grid.size()); ++d) {
      const int64_t here = d == lane ? 0 : step(d);
      if (here > 0 && here <= kNearBytes &&
          kernel.grid[static_cast<size_t>(d)] >= kFewestTileRows) {
        return d;
      }
    }
  }
  return -1;
}

// The loads whose lanes read apart what neighbouring rows read side by side.
std::vector<kernel::Value> loads_to_stage(const kernel::Kernel& kernel,
                                          const LaneAnalysis& analysis, int tile_dimension) {
  constexpr size_t kMostLoads = 8;  // a kilobyte of the stack each, at 16 lanes
  std::vector<kernel::Value> loads;
  const kernel::Function& f = kernel.body;
  for (kernel::Value v : f.body().instructions) {
    const Instruction& inst = f[v];
    if (inst.op != Op::kLoad || !analysis.is_needed(v) || analysis.resolved(v) != v) continue;
    const kernel::Access access = kernel::unpack_access(inst.immediate);
    const bool is_written = kernel.operands[static_cast<size_t>(access.operand)].is_written;
    const LaneShape shape = analysis.shape(inst.arguments[0]);
    if (access.bytes != 4 || is_written || shape.kind != LaneKind::kAffine || shape.stride == 1) {
      continue;
    }
    if (analysis.index().slope_of_dimension(inst.arguments[0], tile_dimension) == 1 &&
        loads.size() < kMostLoads) {
      loads.push_back(v);
    }
  }
  return loads;
}

// How blocks of rows lie in the units of a grid.
struct BlockFit {
  int64_t chunk = 0;  // points of a unit, where the lane dimension numbers rows; 0: any
  int64_t units = 0;  // of a block; where chunks may be chosen, rows of points
  // Consecutive indices of the last dimension that numbers rows which no block cuts; 0: none.
  int64_t tile = 0;
  int tile_dimension = -1;
};

std::optional<BlockFit> fit_blocks(const kernel::Kernel& kernel, int dimension,
                                   const RowBlocks& blocks) {
  const auto& grid = kernel.grid;
  const std::optional<kernel::RowCut> cut = kernel::cut_rows(grid, blocks.rows);
  if (!cut || dimension < 0 || blocks.size < 1 || blocks.size > blocks.rows) return std::nullopt;
  const auto lane = static_cast<size_t>(dimension);
  BlockFit fit;
  if (lane > cut->leading || (lane == cut->leading && cut->parts == 1)) {
    fit.units = blocks.size;
    for (size_t d = cut->leading; d < grid.size(); ++d) {
      if (d != lane) fit.units *= d == cut->leading ? grid[d] / cut->parts : grid[d];
    }
    if (cut->parts == 1 && cut->leading > 0 && lane >= cut->leading) {
      fit.tile_dimension = static_cast<int>(cut->leading) - 1;
      // The last block has the rest too.
      fit.tile = std::gcd(grid[cut->leading - 1], blocks.size);
    }
    return fit;
  }
  for (size_t d = lane + 1; d < grid.size(); ++d) {
    if (grid[d] != 1) return std::nullopt;
  }
  const int64_t rows = lane == cut->leading ? cut->parts : grid[lane];
  if (blocks.size % rows == 0) return BlockFit{grid[lane], blocks.size / rows};
  if (blocks.size > rows || (rows != blocks.rows && rows % blocks.size != 0)) return std::nullopt;
  return BlockFit{blocks.size * (grid[lane] / rows), 1};
}

Schedule cut(const kernel::Kernel& kernel, const LaneAnalysis& analysis, int64_t row, int lanes,
             const std::optional<BlockFit>& fit, Draw& draw, int tile_dimension = -1,
             std::vector<kernel::Value> staged = {}) {
  Schedule schedule;
  schedule.row = row;
  schedule.rows = kernel.points() / row;
  schedule.lanes = lanes;
  if (tile_dimension >= 0) {
    constexpr int64_t kTileRows = 16;  // a line of the cache
    const int64_t size = kernel.grid[static_cast<size_t>(tile_dimension)];
    schedule.tile_dimension = tile_dimension;
    schedule.tile_rows = std::min(kTileRows, fit ? fit->tile & -fit->tile : size);
    if (!staged.empty()) {
      schedule.tile_rows =
          static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(schedule.tile_rows)));
    }
    schedule.staged = std::move(staged);
    schedule.rows = schedule.rows / size * ((size + schedule.tile_rows - 1) / schedule.tile_rows);
  }
  // Units of about this size: long against the 0.1 us of handing one over, short against a launch.
  constexpr double kUnitNs = 4000;
  constexpr double kVectorOverheadNs = 0.5;
  constexpr double kRowOverheadNs = 5;
  const double vector_ns =
      static_cast<double>(schedule.tile_rows) *
      (kVectorOverheadNs + region_cost(kernel.body, analysis, 0, schedule.lanes));
  const double blocks = std::clamp(kUnitNs / vector_ns, 1.0, 1e12);
  int64_t chunk = static_cast<int64_t>(blocks) * schedule.lanes;
  if (draw.chance(70)) chunk = draw.any(1, 5) * schedule.lanes;
  if (fit && fit->chunk > 0) chunk = fit->chunk;
  if (chunk >= schedule.row) chunk = schedule.row;
  // Equal chunks, the last one not shorter than the others.
  schedule.chunks = std::max<int64_t>(1, schedule.row / chunk);
  if (schedule.chunks == 1) chunk = schedule.row;
  schedule.chunk = chunk;
  if (fit) {
    schedule.block_units =
        fit->chunk > 0 ? fit->units : fit->units / schedule.tile_rows * schedule.chunks;
  }
  schedule.unit_ns =
      kRowOverheadNs + vector_ns * static_cast<double>(chunk) / static_cast<double>(schedule.lanes);
  // Costly enough to be shared out over threads, or too cheap.
  if (draw.chance(70)) schedule.unit_ns *= draw.chance(70) ? 1e4 : 1e-4;
  return schedule;
}

constexpr size_t kMostInstructions = 3000;  // of all segments

// Of so many points that follow each other: whole vectors, then halves of them for the rest.
double row_cost(const kernel::Function& f, const LaneAnalysis& analysis, int64_t points,
                int one_vector) {
  double total = 0;
  for (int lanes = one_vector; lanes > 0 && points > 0; lanes /= 2) {
    total += static_cast<double>(points / lanes) * region_cost(f, analysis, 0, lanes);
    points %= lanes;
  }
  return total;
}

// Cuts the rows of a box where conditions on the lane's index change, if that gives contiguous
// loads and does not cost more by short pieces, or always. `why`: why they stay whole.
std::vector<Range> cut_row(const kernel::Kernel& kernel, int dimension, const Box& box,
                           int one_vector, bool always, kernel::Refusal& why) {
  constexpr size_t kMostSegments = 6;
  why = "the grid has no dimension";
  if (dimension < 0) return {{0, 1}};
  const auto lane = static_cast<size_t>(dimension);
  const std::vector<Range> whole{box[lane]};
  const LaneAnalysis analysis(kernel, dimension, box);
  const int scattered = analysis.scattered_loads();
  why = "no load is scattered";
  if (scattered == 0 && !always) return whole;
  std::vector<Range> waiting = whole, done;
  int64_t longest = 0;
  int scattered_in_longest = 0;
  double pieces_cost = 0;
  while (!waiting.empty()) {
    const Range range = waiting.back();
    waiting.pop_back();
    Box part = box;
    part[lane] = range;
    const LaneAnalysis inner(kernel, dimension, part);
    const std::vector<int64_t> cuts = inner.changes(dimension);
    if (cuts.size() + 1 + waiting.size() + done.size() > kMostSegments) {
      why = fmt::format("conditions cut a row into more than {} segments", kMostSegments);
      return whole;
    }
    if (cuts.empty()) {
      if (range.size() > longest) {
        longest = range.size();
        scattered_in_longest = inner.scattered_loads();
      }
      pieces_cost += row_cost(kernel.body, inner, range.size(), one_vector);
      done.push_back(range);
      continue;
    }
    int64_t begin = range.begin;
    for (const int64_t cut : cuts) {
      waiting.push_back({begin, cut});
      begin = cut;
    }
    waiting.push_back({begin, range.end});
  }
  const bool pays = scattered_in_longest < scattered &&
                    pieces_cost < row_cost(kernel.body, analysis, box[lane].size(), one_vector);
  why = done.size() == 1 ? "no condition changes along a row"
                         : "segments would not cost less: short ones, or as many scattered loads";
  if (!pays && !always) return whole;
  if (done.size() * kernel.body.size() > kMostInstructions) {
    why = fmt::format("{} segments of {} instructions, more than {}", done.size(),
                      kernel.body.size(), kMostInstructions);
    return whole;
  }
  std::sort(done.begin(), done.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return done;
}

// The largest part of the grid in which no condition changes from row to row.
Box inside_of(const kernel::Kernel& kernel, int dimension) {
  constexpr size_t kMostCuts = 16;
  Box box = whole_grid(kernel);
  for (size_t d = 0; d < box.size(); ++d) {
    if (static_cast<int>(d) == dimension) continue;
    for (bool changed = true; changed;) {
      changed = false;
      const LaneAnalysis analysis(kernel, dimension, box);
      const std::vector<int64_t> cuts = analysis.changes(static_cast<int>(d));
      if (cuts.empty() || cuts.size() > kMostCuts) break;
      Range most;
      int64_t begin = box[d].begin;
      for (size_t i = 0; i <= cuts.size(); ++i) {
        const int64_t end = i < cuts.size() ? cuts[i] : box[d].end;
        if (end - begin > most.size()) most = {begin, end};
        begin = end;
      }
      changed = most.size() * 2 > box[d].size() && !(most == box[d]);
      if (changed) box[d] = most;
    }
  }
  return box;
}

RowKind make_kind(const kernel::Kernel& kernel, int dimension, Box box,
                  const std::vector<Range>& ranges) {
  RowKind kind;
  for (const Range& range : ranges) {
    Box part = box;
    part[static_cast<size_t>(dimension)] = range;
    kind.segments.push_back({range, LaneAnalysis(kernel, dimension, std::move(part))});
  }
  kind.box = std::move(box);
  return kind;
}

constexpr std::string_view kNames[] = {"points one by one", "vectors",        "tiles of rows",
                                       "segments",          "blocks of rows", "staged tiles"};

// The ways to run a kernel, by the number of their names, in the order in which they are asked.
// Blocks of rows are of any of them.
enum class Way : uint8_t { kPoints = 0, kVectors = 1, kTiles = 2, kSegments = 3, kStagedTiles = 5 };
constexpr Way kWays[] = {Way::kSegments, Way::kStagedTiles, Way::kTiles, Way::kVectors,
                         Way::kPoints};
std::string_view name_of(Way way) { return kNames[static_cast<size_t>(way)]; }

KernelPlan plan_segments(const kernel::Kernel& kernel, int dimension, int one_vector,
                         const std::vector<Range>& ranges, const std::optional<BlockFit>& fit,
                         Draw& draw) {
  KernelPlan plan;
  const Box whole = whole_grid(kernel);
  const Box inside = inside_of(kernel, dimension);
  size_t instructions = ranges.size() * kernel.body.size();
  if (inside != whole) {
    kernel::Refusal why;
    const std::vector<Range> inner = cut_row(kernel, dimension, inside, one_vector, false, why);
    instructions += inner.size() * kernel.body.size();
    if (instructions <= kMostInstructions) {
      plan.kinds.push_back(make_kind(kernel, dimension, inside, inner));
    }
  }
  plan.kinds.push_back(make_kind(kernel, dimension, whole, ranges));
  const auto& segments = plan.kinds.front().segments;
  const Segment& longest = *std::max_element(
      segments.begin(), segments.end(),
      [](const Segment& a, const Segment& b) { return a.range.size() < b.range.size(); });
  int lanes = one_vector * choose_vectors(kernel.body, longest.analysis);
  if (draw.is_on()) lanes = one_vector * (1 << draw.any(0, 2)) >> draw.any(0, 2);
  lanes = std::max(lanes, 1);
  while (lanes > 1 && lanes > longest.range.size()) lanes /= 2;
  const int64_t row = whole[static_cast<size_t>(dimension)].size();
  while (fit && fit->chunk > 0 && lanes > fit->chunk) lanes /= 2;
  plan.schedule = cut(kernel, longest.analysis, row, lanes, fit, draw);
  return plan;
}

}  // namespace

bool has_blocks(const kernel::Kernel& kernel, int vector_bits, const RowBlocks& blocks) {
  const int dimension = choose_lane_dimension(kernel, vector_bits / kLaneBits);
  return fit_blocks(kernel, dimension, blocks).has_value();
}

KernelPlan plan_kernel(const kernel::Kernel& kernel, int vector_bits, const RowBlocks& blocks,
                       uint64_t seed, TileUse tiles, StridedUse strided,
                       kernel::Implementations* asked) {
  kernel::Implementations own;
  kernel::Implementations& ways = asked == nullptr ? own : *asked;
  Draw draw(kernel, seed);
  if (draw.chance(30)) tiles = draw.chance(50) ? TileUse::kNotStaged : TileUse::kNone;
  if (draw.chance(30)) strided = StridedUse::kByLane;
  const int one_vector = vector_bits / kLaneBits;
  const auto rank = static_cast<int64_t>(kernel.grid.size());
  int dimension = choose_lane_dimension(kernel, one_vector);
  // Blocks are cut for the dimension that was chosen before.
  if (draw.chance(50) && rank > 0 && blocks.rows == 0) {
    dimension = static_cast<int>(draw.any(0, rank - 1));
  }
  const std::optional<BlockFit> fit =
      blocks.rows == 0 ? std::nullopt : fit_blocks(kernel, dimension, blocks);
  const int64_t row = dimension < 0 ? 1 : kernel.grid[static_cast<size_t>(dimension)];
  kernel::Refusal why_whole = "not drawn";
  if (!draw.chance(30)) {
    const std::vector<Range> ranges =
        cut_row(kernel, dimension, whole_grid(kernel), one_vector, draw.chance(60), why_whole);
    if (ranges.size() > 1) {
      for (const Way way : kWays) ways.ask(name_of(way), "");
      KernelPlan plan = plan_segments(kernel, dimension, one_vector, ranges, fit, draw);
      plan.schedule.strided = strided;
      return plan;
    }
  }
  // Points that are sure to follow each other.
  const int64_t length = fit && fit->chunk > 0 ? std::min(fit->chunk, row) : row;
  // The most vectors that suit both the row and the body; what the body is depends on their number.
  constexpr int kMostVectors = 4;
  constexpr int kFew = 16;  // blocks of a row, below which none should be left over
  for (int vectors = kMostVectors;; vectors /= 2) {
    int lanes = one_vector * vectors;
    if (draw.is_on()) {
      vectors = 1;
      lanes = std::max<int>(1, one_vector * (1 << draw.any(0, 2)) >> draw.any(0, 2));
      while (lanes > length) lanes /= 2;
    }
    const bool is_whole = row % lanes == 0 && length % lanes == 0;
    if (vectors > 1 && !is_whole && length < int64_t{kFew} * lanes) continue;
    LaneAnalysis whole(kernel, dimension, is_whole ? lanes : 1);
    if (vectors > 1 && choose_vectors(kernel.body, whole) < vectors) continue;
    int used = lanes;
    while (used > length) used /= 2;
    // Half a vector may end where the rule of the addresses does.
    const int half = lanes / 2;
    std::optional<LaneAnalysis> narrow;
    if (vectors == 1 && strided == StridedUse::kShuffles && half >= 4 && row % half == 0 &&
        length % half == 0 && used == lanes) {
      const int scattered = scattered_accesses(kernel.body, whole);
      if (scattered > 0) narrow.emplace(kernel, dimension, half);
      if (narrow && scattered_accesses(kernel.body, *narrow) == 0) {
        used = half;
      } else {
        narrow.reset();
      }
    }
    LaneAnalysis& analysis = narrow ? *narrow : whole;
    KernelPlan plan;
    const bool may_tile = used > 1 && tiles != TileUse::kNone;
    int tile = may_tile ? choose_tile_dimension(kernel, analysis) : -1;
    kernel::Refusal why_untiled, why_unstaged;
    if (tile < 0) why_untiled = "no load is far apart along the lanes and contiguous across them";
    if (tiles == TileUse::kNone) why_untiled = "not drawn";
    if (used == 1) why_untiled = "a lane is a point";
    if (may_tile && rank > 1 && kernel.body.region_count() == 1 && draw.chance(40)) {
      tile = static_cast<int>((dimension + draw.any(1, rank - 1)) % rank);
      why_untiled.clear();
    }
    // Blocks hold whole tiles of a power of two.
    if (tile >= 0 && fit && (tile != fit->tile_dimension || fit->tile % kFewestTileRows != 0)) {
      tile = -1;
      why_untiled = fmt::format("blocks of rows hold no whole tiles of {} rows", kFewestTileRows);
    }
    std::vector<kernel::Value> staged;
    if (tile >= 0 && used >= kFewestTileRows && tiles == TileUse::kChosen &&
        kernel.grid[static_cast<size_t>(tile)] >= kFewestTileRows) {
      staged = loads_to_stage(kernel, analysis, tile);
    }
    if (staged.empty()) {
      why_unstaged = tile < 0 ? why_untiled
                              : fmt::format("no load of 4 bytes to be read by {} lanes across rows",
                                            kFewestTileRows);
    }
    const kernel::Refusal why_points =
        used > 1 ? "" : fmt::format("rows of {} points, {} lanes", length, lanes);
    ways.ask(name_of(Way::kSegments), why_whole);
    ways.ask(name_of(Way::kStagedTiles), why_unstaged);
    ways.ask(name_of(Way::kTiles), why_untiled);
    ways.ask(name_of(Way::kVectors), why_points);
    ways.ask(name_of(Way::kPoints), "");
    plan.schedule = cut(kernel, analysis, row, used, fit, draw, tile, std::move(staged));
    plan.schedule.strided = strided;
    plan.kinds.push_back({whole_grid(kernel), {}});
    plan.kinds.back().segments.push_back({{0, row}, std::move(analysis)});
    return plan;
  }
}

std::string_view schedule_name(const KernelPlan& plan) {
  const bool has_segments = plan.kinds.size() > 1 || plan.kinds.back().segments.size() > 1;
  if (!plan.schedule.staged.empty()) return kNames[5];
  if (plan.schedule.block_units > 0) return kNames[4];
  if (has_segments) return kNames[3];
  if (plan.schedule.tile_dimension >= 0) return kNames[2];
  return kNames[plan.schedule.lanes > 1 ? 1 : 0];
}

std::span<const std::string_view> schedule_names() { return kNames; }

}  // namespace hekla::cpu
