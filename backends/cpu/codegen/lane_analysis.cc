// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/lane_analysis.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace hekla::cpu {
namespace {

using kernel::Instruction;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

constexpr LaneShape kUniformShape{LaneKind::kUniform, 0};
constexpr LaneShape kVaryingShape{LaneKind::kVarying, 0};

}  // namespace

int choose_lane_dimension(const kernel::Kernel& kernel, int lanes) {
  const int last = static_cast<int>(kernel.grid.size()) - 1;
  int largest = last;
  for (int d = last; d >= 0; --d) {
    const int64_t extent = kernel.grid[static_cast<size_t>(d)];
    if (extent >= (d == last ? lanes / 2 : lanes)) return d;
    if (extent > kernel.grid[static_cast<size_t>(largest)]) largest = d;
  }
  return largest;
}

LaneAnalysis::LaneAnalysis(const kernel::Kernel& kernel, int lane_dimension, int block)
    : index_(kernel,
             block > 1 ? kernel::IndexBlocks{lane_dimension, block} : kernel::IndexBlocks()),
      f_(kernel.body),
      lane_dimension_(lane_dimension) {
  analyse();
}

LaneAnalysis::LaneAnalysis(const kernel::Kernel& kernel, int lane_dimension, Box box)
    : index_(kernel, std::move(box)), f_(kernel.body), lane_dimension_(lane_dimension) {
  analyse();
}

void LaneAnalysis::analyse() {
  facts_.resize(f_.size());
  varies_.resize(f_.size(), false);
  const auto& parameters = f_.body().parameters;
  for (size_t d = 0; d < parameters.size(); ++d) {
    const bool is_lane = static_cast<int>(d) == lane_dimension_;
    at(parameters[d]) = {shape_of(parameters[d]), is_lane ? Level::kPoint : Level::kRow};
  }
  // Shapes only get worse, so this ends; mostly at once.
  do {
    is_new_ = false;
    analyse_region(0);
  } while (is_new_);
  mark_needed();
}

void LaneAnalysis::mark_needed() {
  needed_.assign(f_.size(), false);
  std::vector<Value> loops(f_.region_count(), kernel::kNoValue);
  for (size_t i = 0; i < f_.size(); ++i) {
    const Instruction& inst = f_[static_cast<Value>(i)];
    if (inst.op == Op::kFor) loops[inst.immediate] = static_cast<Value>(i);
  }
  for (size_t i = 0; i < f_.size(); ++i) {
    if (f_[static_cast<Value>(i)].op == Op::kStore) mark(static_cast<Value>(i), loops);
  }
}

void LaneAnalysis::mark(Value v, const std::vector<Value>& loops) {
  v = resolved(v);
  if (needed_[static_cast<size_t>(v)]) return;
  needed_[static_cast<size_t>(v)] = true;
  if (known(v) >= 0) return;
  const Instruction& inst = f_[v];
  if (inst.region != 0) mark(loops[static_cast<size_t>(inst.region)], loops);
  for (Value a : inst.arguments) mark(a, loops);
  if (inst.op != Op::kFor) return;
  for (Value y : f_.region(static_cast<int32_t>(inst.immediate)).yields) mark(y, loops);
}

int LaneAnalysis::scattered_loads() const {
  int count = 0;
  for (size_t i = 0; i < f_.size(); ++i) {
    const Instruction& inst = f_[static_cast<Value>(i)];
    if (inst.op != Op::kLoad || !needed_[i]) continue;
    count += is_varying(inst.arguments[0]);
  }
  return count;
}

std::vector<int64_t> LaneAnalysis::changes(int dimension) const {
  std::vector<int64_t> points;
  const Range& range = index_.box()[static_cast<size_t>(dimension)];
  const std::array<kernel::IndexAnalysis::Variable, 1> variable{index_.dimension(dimension)};
  using Line = kernel::IndexAnalysis::Line;
  const auto line = [&](Value v) -> std::optional<Line> {
    if (index_.depends(v, variable[0])) return index_.line(v, variable);
    return Line{{0}, index_.bounds(v).low, index_.bounds(v).high};
  };
  auto add = [&](__int128 point) {
    if (point > range.begin && point < range.end) points.push_back(static_cast<int64_t>(point));
  };
  auto floor_div = [](__int128 a, __int128 b) {
    const __int128 q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  };
  for (size_t i = 0; i < f_.size(); ++i) {
    const Instruction& inst = f_[static_cast<Value>(i)];
    if (!needed_[i] || known(static_cast<Value>(i)) >= 0) continue;
    const bool is_order = inst.op == Op::kLtS || inst.op == Op::kLeS;
    if (!is_order && inst.op != Op::kEq && inst.op != Op::kNe) continue;
    if (!is_integer(f_.type(inst.arguments[0]))) continue;
    const std::optional<Line> a = line(inst.arguments[0]), b = line(inst.arguments[1]);
    if (!a || !b || !a->is_flat || !b->is_flat || a->slopes == b->slopes) continue;
    // a - b = slope * i + [low, high]
    const __int128 slope = __int128{a->slopes[0]} - b->slopes[0];
    const __int128 low = a->low - b->high;
    const __int128 high = a->high - b->low;
    // The ends of the points where a - b may be 0, or may change its sign.
    const __int128 first = slope > 0 ? -floor_div(high, slope) : -floor_div(low, slope);
    const __int128 last = slope > 0 ? floor_div(-low, slope) : floor_div(-high, slope);
    // Before `first` and after `last` a - b has one sign and is not 0.
    const bool includes_zero = inst.op == Op::kLeS;
    if (is_order && low == high) {
      // One point divides both parts.
      const bool is_exact = -low == slope * last;
      const bool zero_is_left = (slope > 0) == includes_zero;
      add(is_exact ? (zero_is_left ? last + 1 : last) : last + 1);
    } else {
      add(first);
      add(last + 1);
    }
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

bool LaneAnalysis::is_divergent(Value loop) const {
  return shape(f_[loop].arguments[0]).kind != LaneKind::kUniform;
}

void LaneAnalysis::analyse_region(int32_t region) {
  for (Value v : f_.region(region).instructions) analyse(v);
}

// From what the index analysis says. What is made of vectors is one, though it may be uniform:
// there is no lane 0 of it.
LaneShape LaneAnalysis::shape_of(Value v) const {
  const bool has_lanes =
      lane_dimension_ >= 0 && index_.kernel().grid[static_cast<size_t>(lane_dimension_)] > 1;
  const auto lane = index_.dimension(lane_dimension_);
  if (!has_lanes || !index_.depends(v, lane)) return kUniformShape;
  const std::optional<int64_t> slope = index_.slope(v, lane);
  if (!slope) return kVaryingShape;
  const int64_t stride = f_.type(v) == ScalarType::kI32 ? static_cast<int32_t>(*slope) : *slope;
  return stride == 0 ? kUniformShape : LaneShape{LaneKind::kAffine, stride};
}

void LaneAnalysis::analyse(Value v) {
  const Instruction& inst = f_[v];
  if (inst.op == Op::kFor) return analyse_loop(v);
  Facts& facts = at(v);
  if (inst.op == Op::kForResult) {
    const Instruction& loop = f_[inst.arguments[0]];
    const auto& parameters = f_.region(static_cast<int32_t>(loop.immediate)).parameters;
    facts = {at(parameters[inst.immediate + 1]).shape, Level::kPoint};
    return;
  }
  if (resolved(v) != v) {
    facts = at(resolved(v));
    return;
  }
  if (known(v) >= 0) {
    facts = {kUniformShape, Level::kCall};
    return;
  }
  const auto& a = inst.arguments;
  const bool is_vector = inst.op == Op::kStore ||
                         std::any_of(a.begin(), a.end(), [&](Value x) { return is_varying(x); });
  facts.shape = is_vector ? kVaryingShape : shape_of(v);
  // Only uniform values of the body itself may move: a loop may run zero times. What is read from
  // memory that the kernel writes stays behind the stores before it.
  const bool may_change =
      inst.op == Op::kLoad && index_.is_written(kernel::unpack_access(inst.immediate).operand);
  const bool moves = inst.region == 0 && facts.shape == kUniformShape && !may_change;
  facts.level = moves ? Level::kCall : Level::kPoint;
  for (Value x : a) facts.level = std::max(facts.level, at(x).level);
}

void LaneAnalysis::analyse_loop(Value v) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  at(v).level = Level::kPoint;
  at(region.parameters[0]) = {kUniformShape, Level::kPoint};
  for (size_t i = 1; i < region.parameters.size(); ++i) {
    const Value carried = region.parameters[i];
    // Lanes stop at different iterations where the count differs.
    if (is_divergent(v) || is_varying(inst.arguments[i]))
      varies_[static_cast<size_t>(carried)] = true;
    const bool varies = varies_[static_cast<size_t>(carried)];
    at(carried) = {varies ? kVaryingShape : shape_of(carried), Level::kPoint};
  }
  analyse_region(number);
  for (size_t i = 1; i < region.parameters.size(); ++i) {
    const Value carried = region.parameters[i];
    if (is_varying(carried) || shape(region.yields[i - 1]) == shape(carried)) continue;
    varies_[static_cast<size_t>(carried)] = is_new_ = true;
  }
}

}  // namespace hekla::cpu
