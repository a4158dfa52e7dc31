// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/drawn_schedule.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>

#include "backends/compiler/kernel/draw.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/codegen/memory.h"
#include "backends/vulkan/codegen/schedule_rules.h"

namespace hekla::vulkan {
namespace codegen {
namespace {

// Of a tile or unit, so that drivers compile it in a moment.
constexpr int64_t kMostDrawnInstructions = 1500;
// Of a workgroup that llvmpipe runs on one thread; GPUs do not mind.
constexpr uint32_t kMostDrawnLanes = 256;

class DrawnSchedule {
 public:
  DrawnSchedule(const kernel::IndexAnalysis& index, const Target& target)
      : index_(index),
        kernel_(index.kernel()),
        target_(target),
        most_(std::min(kMostDrawnLanes, std::bit_floor(most_invocations(target)))),
        analysis_(analyse_tile(index)),
        draw_(kernel_, target.schedule_seed) {}

  Schedule run(kernel::Implementations& asked) {
    const bool has_loops = kernel_.body.region_count() > 1;
    const uint64_t kind = below(has_loops ? 5 : 3);
    std::optional<Schedule> s;
    const auto ask = [&](std::string_view name, bool is_drawn, const auto& answer) {
      Answer said = s || is_drawn ? Answer() : kernel::Refusal("not drawn");
      if (!s && is_drawn) said = answer();
      const auto* refusal = std::get_if<kernel::Refusal>(&said);
      if (asked.ask(name, refusal == nullptr ? "" : *refusal)) s = std::get<Schedule>(said);
    };
    const bool has_teams = team_points(kernel_) > 0;
    if (has_teams) {
      ask(kTeams, true, [&] { return drawn_teams(); });
    } else {
      asked.ask(kTeams, "points exchange no values");
    }
    ask(kSubgroupPerPoint, kind == 4, [&] { return shared_point(kernel_, target_); });
    ask(kSharedRows, kind == 3, [&] { return staged_rows(); });
    ask(kSharedTile, kind == 2, [&] { return staged_tile(); });
    ask(kTransposes, !has_loops && kind > 0, [&] { return transposes(); });
    // Half of the loops that allow no other schedule, and of those that got it.
    ask(kTile, has_loops && kind > 0, [&] { return tile(); });
    ask(kPoints, !has_teams, [&] { return Answer(points()); });
    if (!s) return Schedule();
    if (has_loops) s->least_unroll = pick({1, 1, 1, 2, 4, 8});
    limit_iterations(index_, target_, *s);
    if (!s->is_tiled && !s->shares_point && s->transposed_loads == 0 && !has_teams) {
      const int64_t per_group = int64_t{s->workgroup_size} * s->points_per_invocation * s->rows;
      s->group_count = ceil_div(kernel_.points() / s->columns, per_group);
    }
    return *s;
  }

 private:
  uint64_t below(uint64_t n) { return draw_.below(n); }
  bool chance(uint64_t percent) { return draw_.chance(percent); }
  uint32_t pick(std::initializer_list<uint32_t> values) { return draw_.pick(values); }
  uint32_t power_of_two(uint32_t most) {
    return 1U << below(static_cast<uint64_t>(std::bit_width(most)));
  }

  bool fits(uint32_t columns, uint32_t rows) const {
    return tile_instructions(kernel_.body, analysis_, columns, rows) <= kMostDrawnInstructions;
  }

  Answer drawn_teams() {
    if (kernel::Refusal why = why_no_teams(kernel_, target_); !why.empty()) return why;
    const uint32_t points = team_points(kernel_);
    const uint32_t most = std::min(std::max(points, most_), points * most_teams(kernel_, target_));
    const uint32_t invocations = points * power_of_two(most / points);
    Schedule s = teams(kernel_, target_, invocations, chance(50), chance(50));
    s.long_accesses = target_.int64 && chance(50);
    s.most_unroll = pick({1, 1, 2, 8});
    return s;
  }

  // Points one by one, or several columns that fill a word.
  Schedule points() {
    Schedule s;
    s.workgroup_size = chance(50) ? power_of_two(most_) : std::min(pick({3, 24, 96, 250}), most_);
    s.points_per_invocation = pick({1, 1, 2, 4, 7});
    s.long_accesses = target_.int64 && chance(50);
    if (kernel_.body.region_count() == 1 && !kernel_.grid.empty() && kernel_.points() > 0 &&
        kernel_.points() <= target_.max_narrow_points) {
      uint32_t columns = may_be_adjacent(kernel_, target_) ? power_of_two(8) : 1;
      while (columns > 1 && (kernel_.grid.back() % columns != 0 || !fits(columns, 1))) columns /= 2;
      s.columns = columns;
      s.rows = pick({1, 1, 2, 3});
      while (s.rows > 1 && tile_instructions(kernel_.body, {.depends = analyse_units(index_)},
                                             s.columns, s.rows) > kMostDrawnInstructions) {
        --s.rows;
      }
    }
    s.is_adjacent = s.columns > 1;
    return s;
  }

  kernel::Refusal why_no_tile() const { return codegen::why_no_tile(kernel_, analysis_, target_); }

  // As small as it must be to be compiled in a moment.
  TileShape shape() {
    TileShape shape;
    shape.columns = pick({1, 2, 3, 4, 5, 8});
    shape.rows = kernel_.grid.size() > 1 ? pick({1, 1, 2, 3}) : 1;
    while (shape.columns > 1 && !fits(shape.columns, shape.rows)) shape.columns /= 2;
    while (shape.rows > 1 && !fits(shape.columns, shape.rows)) shape.rows /= 2;
    shape.lanes_x = power_of_two(most_);
    if (kernel_.grid.size() > 1) shape.lanes_y = power_of_two(most_ / shape.lanes_x);
    return shape;
  }

  Answer tile() {
    if (kernel::Refusal why = why_no_tile(); !why.empty()) return why;
    TileShape chosen = shape();
    // Mostly columns that divide the grid, which alone can lie side by side.
    if (chance(60)) {
      chosen.columns = std::bit_floor(std::max(chosen.columns, 2U));
      while (chosen.columns > 1 &&
             (kernel_.grid.back() % chosen.columns != 0 || !fits(chosen.columns, chosen.rows))) {
        chosen.columns /= 2;
      }
    }
    if (target_.subgroup_shuffle && target_.subgroup_size <= most_ && chance(50)) {
      chosen.lanes_x = target_.subgroup_size;
      chosen.lanes_y = 1;
    }
    Schedule s = tiled(kernel_, chosen, 0);
    s.long_accesses = target_.int64 && chance(50);
    s.broadcasts =
        target_.subgroup_shuffle && s.workgroup_size == target_.subgroup_size && s.lanes_y == 1;
    s.is_adjacent = s.columns > 1 && kernel_.grid.back() % s.columns == 0 &&
                    may_be_adjacent(kernel_, target_) && chance(75);
    return s;
  }

  Answer transposes() {
    const TransposedTile tile = transposed_tile(index_);
    if (kernel::Refusal why = why_no_transposes(kernel_, tile, target_); !why.empty()) return why;
    TransposedShape shape;
    shape.tile_columns = power_of_two(64);
    shape.tile_rows = power_of_two(64);
    shape.columns =
        may_be_adjacent(kernel_, target_) ? power_of_two(std::min(shape.tile_columns, 8U)) : 1;
    while (shape.columns > 1 && kernel_.grid.back() % shape.columns != 0) shape.columns /= 2;
    shape.invocations = power_of_two(most_);
    while (shape.tile_rows > 1 &&
           tile_instructions(kernel_.body, {.depends = tile.depends}, shape.columns,
                             shape.tile_rows) > kMostDrawnInstructions) {
      shape.tile_rows /= 2;
    }
    return transposed(kernel_, tile, shape, target_);
  }

  Answer staged_tile() {
    if (kernel::Refusal why = why_no_tile(); !why.empty()) return why;
    TileShape chosen = shape();
    // Columns of whole words, and of words that lie side by side in memory.
    if (chance(50)) {
      chosen.columns = pick({4, 8});
      while (chosen.columns > 1 && !fits(chosen.columns, chosen.rows)) chosen.columns /= 2;
    }
    Schedule s = tiled(kernel_, chosen, pick({2, 3, 16, 32}));
    s.prefetches = chance(50);
    s.is_adjacent = s.columns > 1 && (s.columns & (s.columns - 1)) == 0 &&
                    kernel_.grid.back() % s.columns == 0 && may_be_adjacent(kernel_, target_) &&
                    chance(60);
    s.long_accesses = target_.int64 && chance(50);
    return s;
  }

  Answer staged_rows() {
    if (kernel::Refusal why = why_no_tile(); !why.empty()) return why;
    Schedule s = tiled(kernel_, {power_of_two(most_), 1, 1, 1}, pick({2, 5, 32}));
    s.prefetches = chance(50);
    return s;
  }

  const kernel::IndexAnalysis& index_;
  const kernel::Kernel& kernel_;
  const Target& target_;
  const uint32_t most_;
  const TileAnalysis analysis_;
  kernel::Draw draw_;
};

}  // namespace

Schedule draw_schedule(const kernel::IndexAnalysis& index, const Target& target,
                       kernel::Implementations& asked) {
  return DrawnSchedule(index, target).run(asked);
}

}  // namespace codegen

bool is_drawn_for_host(const kernel::Kernel& kernel, const Target& target) {
  constexpr uint64_t kPercent = 6;
  constexpr int64_t kMostSteps = 1'000'000;  // 20 ms of the interpreter
  if (target.schedule_seed == 0 || !target.is_cpu || !keeps_f32_subnormals(target) ||
      !keeps_f64_subnormals(target) || kernel::has_sums(kernel.body)) {
    return false;
  }
  if (!kernel::Draw(kernel, ~target.schedule_seed).chance(kPercent)) return false;
  const kernel::IndexAnalysis index(kernel);
  const int64_t iterations = codegen::loop_iterations(index, 0, 1) + 1;
  return iterations <= kMostSteps &&
         kernel.points() <= kMostSteps / iterations / static_cast<int64_t>(kernel.body.size());
}

}  // namespace hekla::vulkan
