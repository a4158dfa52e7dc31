// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/lane_analysis.h"

#include <algorithm>
#include <limits>

namespace hekla::cpu {
namespace {

using kernel::Instruction;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

int64_t wrap(ScalarType type, uint64_t value) {
  return type == ScalarType::kI32 ? static_cast<int32_t>(value) : static_cast<int64_t>(value);
}

// Of zero, every power of two: the largest that is used.
constexpr int64_t kMostFactor = int64_t{1} << 30;

// The largest power of two in a number.
int64_t factor(uint64_t value) {
  const uint64_t lowest = value & (~value + 1);
  return lowest == 0 || lowest > static_cast<uint64_t>(kMostFactor) ? kMostFactor
                                                                    : static_cast<int64_t>(lowest);
}

constexpr LaneShape kUniformShape{LaneKind::kUniform, 0};
constexpr LaneShape kVaryingShape{LaneKind::kVarying, 0};

LaneShape affine(ScalarType type, uint64_t stride) {
  const int64_t wrapped = wrap(type, stride);
  return wrapped == 0 ? kUniformShape : LaneShape{LaneKind::kAffine, wrapped};
}

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

Box whole_grid(const kernel::Kernel& kernel) {
  Box box;
  for (const int64_t size : kernel.grid) box.push_back({0, size});
  return box;
}

LaneAnalysis::LaneAnalysis(const kernel::Kernel& kernel, int lane_dimension, int block)
    : f_(kernel.body),
      lane_dimension_(lane_dimension),
      block_(block),
      box_(whole_grid(kernel)),
      facts_(f_.size()) {
  analyse_all(kernel);
}

LaneAnalysis::LaneAnalysis(const kernel::Kernel& kernel, int lane_dimension, Box box)
    : f_(kernel.body),
      lane_dimension_(lane_dimension),
      block_(1),
      box_(std::move(box)),
      facts_(f_.size()) {
  analyse_all(kernel);
}

void LaneAnalysis::analyse_all(const kernel::Kernel& kernel) {
  loop_of_.assign(f_.region_count(), kernel::kNoValue);
  for (size_t i = 0; i < facts_.size(); ++i) {
    const Instruction& inst = f_[static_cast<Value>(i)];
    facts_[i].resolved = static_cast<Value>(i);
    if (inst.op == Op::kFor) loop_of_[inst.immediate] = static_cast<Value>(i);
    if (inst.op != Op::kConstant) continue;
    facts_[i].depends = 0;
    if (inst.type == ScalarType::kBool) {
      facts_[i].is_exact = true;
      facts_[i].low = facts_[i].high = inst.immediate != 0;
      continue;
    }
    const int64_t value = wrap(inst.type, inst.immediate);
    set_bounds(facts_[i], inst.type, value, value);
    facts_[i].factor = factor(inst.immediate);
  }
  const auto& parameters = f_.body().parameters;
  for (size_t d = 0; d < parameters.size(); ++d) {
    Facts& facts = at(parameters[d]);
    const bool is_lane = static_cast<int>(d) == lane_dimension_;
    facts.level = is_lane ? Level::kPoint : Level::kRow;
    if (is_lane && kernel.grid[d] > 1) facts.shape = {LaneKind::kAffine, 1};
    if (is_lane) facts.factor = block_;
    set_bounds(facts, kernel.index_type, box_[d].begin, box_[d].end - 1);
    if (d < 63) facts.depends = uint64_t{1} << d;
  }
  analyse_region(0);
  mark_needed();
}

int LaneAnalysis::known(Value v) const {
  const Facts& facts = facts_[static_cast<size_t>(v)];
  if (f_.type(v) != ScalarType::kBool || !facts.is_exact || facts.low != facts.high) return -1;
  return static_cast<int>(facts.low);
}

void LaneAnalysis::mark_loop_of(int32_t region) {
  if (region != 0) mark(loop_of_[static_cast<size_t>(region)]);
}

void LaneAnalysis::mark(Value v) {
  v = resolved(v);
  if (needed_[static_cast<size_t>(v)]) return;
  needed_[static_cast<size_t>(v)] = true;
  if (known(v) >= 0) return;
  const Instruction& inst = f_[v];
  mark_loop_of(inst.region);
  for (Value a : inst.arguments) mark(a);
  if (inst.op != Op::kFor) return;
  for (Value y : f_.region(static_cast<int32_t>(inst.immediate)).yields) mark(y);
}

void LaneAnalysis::mark_needed() {
  needed_.assign(f_.size(), false);
  for (size_t i = 0; i < f_.size(); ++i) {
    if (f_[static_cast<Value>(i)].op == Op::kStore) mark(static_cast<Value>(i));
  }
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

std::optional<LaneAnalysis::Line> LaneAnalysis::line(Value v, int dimension) const {
  v = resolved(v);
  const Facts& facts = facts_[static_cast<size_t>(v)];
  if (!facts.is_exact || !is_integer(f_.type(v))) return std::nullopt;
  if ((facts.depends >> dimension & 1) == 0) return Line{0, facts.low, facts.high};
  const Instruction& inst = f_[v];
  if (v == f_.body().parameters[static_cast<size_t>(dimension)]) return Line{1, 0, 0};
  if (inst.op != Op::kAdd && inst.op != Op::kSub && inst.op != Op::kMul) return std::nullopt;
  const std::optional<Line> a = line(inst.arguments[0], dimension);
  const std::optional<Line> b = line(inst.arguments[1], dimension);
  if (!a || !b) return std::nullopt;
  switch (inst.op) {
    case Op::kAdd:
      return Line{a->slope + b->slope, a->low + b->low, a->high + b->high};
    case Op::kSub:
      return Line{a->slope - b->slope, a->low - b->high, a->high - b->low};
    default: {
      if (b->slope != 0 || b->low != b->high) return std::nullopt;
      const __int128 c = b->low;
      return Line{a->slope * c, c < 0 ? a->high * c : a->low * c, c < 0 ? a->low * c : a->high * c};
    }
  }
}

std::optional<int64_t> LaneAnalysis::slope(Value v, int dimension) const {
  const std::optional<Line> found = line(v, dimension);
  constexpr __int128 kMost = std::numeric_limits<int64_t>::max();
  if (!found || found->slope > kMost || found->slope < -kMost) return std::nullopt;
  return static_cast<int64_t>(found->slope);
}

std::vector<int64_t> LaneAnalysis::changes(int dimension) const {
  std::vector<int64_t> points;
  const Range& range = box_[static_cast<size_t>(dimension)];
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
    const std::optional<Line> a = line(inst.arguments[0], dimension);
    const std::optional<Line> b = line(inst.arguments[1], dimension);
    if (!a || !b || a->slope == b->slope) continue;
    // a - b = slope * i + [low, high]
    const __int128 slope = a->slope - b->slope;
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

void LaneAnalysis::set_bounds(Facts& facts, ScalarType type, __int128 low, __int128 high) {
  const bool is_wide = bit_width(type) == 64;
  const int64_t least =
      is_wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  const int64_t most =
      is_wide ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
  facts.is_exact = low >= least && high <= most;
  facts.low = facts.is_exact ? static_cast<int64_t>(low) : least;
  facts.high = facts.is_exact ? static_cast<int64_t>(high) : most;
}

void LaneAnalysis::analyse_region(int32_t region) {
  for (Value v : f_.region(region).instructions) analyse(v);
}

void LaneAnalysis::analyse(Value v) {
  const Instruction& inst = f_[v];
  if (inst.op == Op::kFor) return analyse_loop(v);
  Facts& facts = at(v);
  if (inst.op == Op::kForResult) {
    const Instruction& loop = f_[inst.arguments[0]];
    const auto& parameters = f_.region(static_cast<int32_t>(loop.immediate)).parameters;
    facts = at(parameters[inst.immediate + 1]);
    facts.level = Level::kPoint;
    facts.resolved = v;
    facts.depends = ~uint64_t{0};
    return;
  }
  facts.resolved = v;
  facts.depends = 0;
  for (Value a : inst.arguments) facts.depends |= at(a).depends;
  if (inst.op == Op::kSelect && known(inst.arguments[0]) >= 0) {
    const Value chosen = resolved(inst.arguments[known(inst.arguments[0]) == 1 ? 1 : 2]);
    facts = at(chosen);
    facts.resolved = chosen;
    return;
  }
  facts.shape = inst.op == Op::kStore ? kVaryingShape : shape_of(inst);
  // Only uniform values of the body itself may move: a loop may run zero times.
  const bool moves = inst.region == 0 && facts.shape.kind == LaneKind::kUniform;
  facts.level = moves ? Level::kCall : Level::kPoint;
  for (Value a : inst.arguments) facts.level = std::max(facts.level, at(a).level);
  facts.factor = is_integer(inst.type) ? factor_of(inst) : 1;
  bound(v);
  if (known(v) >= 0) {
    facts.shape = kUniformShape;
    facts.level = Level::kCall;
  }
}

void LaneAnalysis::analyse_loop(Value v) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  const bool diverges = is_divergent(v);
  const Facts count = at(inst.arguments[0]);
  Facts& iteration = at(region.parameters[0]);
  iteration.level = Level::kPoint;
  iteration.shape = kUniformShape;
  iteration.depends = count.depends;
  set_bounds(iteration, f_.type(region.parameters[0]), 0,
             std::max<int64_t>(count.high, 1) - static_cast<int64_t>(1));
  for (size_t i = 1; i < region.parameters.size(); ++i) {
    Facts& carried = at(region.parameters[i]);
    carried.level = Level::kPoint;
    carried.shape = diverges ? kVaryingShape : at(inst.arguments[i]).shape;
    // What later iterations hold is not known.
    set_bounds(carried, f_.type(region.parameters[i]), 0, static_cast<__int128>(1) << 64);
  }
  // Shapes only get worse, so this ends: at most once per carried value.
  for (bool changed = true; changed;) {
    changed = false;
    analyse_region(number);
    for (size_t i = 1; i < region.parameters.size(); ++i) {
      Facts& carried = at(region.parameters[i]);
      if (carried.shape != at(region.yields[i - 1]).shape && carried.shape != kVaryingShape) {
        carried.shape = kVaryingShape;
        changed = true;
      }
    }
  }
  at(v).level = Level::kPoint;
}

LaneShape LaneAnalysis::shape_of(const Instruction& inst) {
  const auto& a = inst.arguments;
  const bool all_uniform =
      std::all_of(a.begin(), a.end(), [&](Value x) { return shape(x).kind == LaneKind::kUniform; });
  if (all_uniform) return kUniformShape;
  if (std::any_of(a.begin(), a.end(), [&](Value x) { return is_varying(x); })) {
    return kVaryingShape;
  }
  // Uniform and affine arguments: shape(x).stride is right for both.
  auto stride = [&](size_t i) { return static_cast<uint64_t>(shape(a[i]).stride); };
  auto constant = [&](size_t i) -> const uint64_t* {
    return f_[a[i]].op == Op::kConstant ? &f_[a[i]].immediate : nullptr;
  };
  switch (inst.op) {
    case Op::kAdd:
      return affine(inst.type, stride(0) + stride(1));
    case Op::kSub:
      return affine(inst.type, stride(0) - stride(1));
    case Op::kMul:
      if (const uint64_t* c = constant(1)) return affine(inst.type, stride(0) * *c);
      if (const uint64_t* c = constant(0)) return affine(inst.type, stride(1) * *c);
      break;
    case Op::kShl:
      if (const uint64_t* c = constant(1); c != nullptr && *c < 63) {
        return affine(inst.type, stride(0) << *c);
      }
      break;
    case Op::kTruncate:
      return affine(inst.type, stride(0));
    case Op::kSignExtend:
      if (at(a[0]).is_exact) return affine(inst.type, stride(0));
      break;
    case Op::kZeroExtend:
      if (at(a[0]).is_exact && at(a[0]).low >= 0) return affine(inst.type, stride(0));
      break;
    case Op::kSelect:
      if (shape(a[0]).kind == LaneKind::kUniform && stride(1) == stride(2)) {
        return affine(inst.type, stride(1));
      }
      break;
    default:
      return shape_of_parts(inst);
  }
  return kVaryingShape;
}

// Quotients, remainders and comparisons by a constant: the lanes of a vector lie between two
// multiples of a power of two, so also between two multiples of a number that it divides.
LaneShape LaneAnalysis::shape_of_parts(const Instruction& inst) {
  const auto& a = inst.arguments;
  if (a.size() != 2 || f_[a[1]].op != Op::kConstant) return kVaryingShape;
  const Facts& x = at(a[0]);
  const ScalarType type = f_.type(a[0]);
  if (!is_integer(type) || !x.is_exact || x.low < 0 || x.shape.stride <= 0 || block_ <= 1) {
    return kVaryingShape;
  }
  const int64_t span = x.shape.stride * (block_ - 1);
  auto together = [&](int64_t number) {
    return number > 0 && span < std::min(x.factor, factor(static_cast<uint64_t>(number)));
  };
  const int64_t c = wrap(type, f_[a[1]].immediate);
  switch (inst.op) {
    case Op::kDivU:
    case Op::kDivS:
      return together(c) ? kUniformShape : kVaryingShape;
    case Op::kRemU:
    case Op::kRemS:
      return together(c) ? x.shape : kVaryingShape;
    case Op::kShrU:
    case Op::kShrS:
      return c < 31 && together(int64_t{1} << c) ? kUniformShape : kVaryingShape;
    case Op::kAnd:
      return (c & (c + 1)) == 0 && together(c + 1) ? x.shape : kVaryingShape;
    case Op::kLtS:
    case Op::kLtU:
      return together(c) ? kUniformShape : kVaryingShape;
    default:
      return kVaryingShape;
  }
}

int64_t LaneAnalysis::factor_of(const Instruction& inst) {
  const auto& a = inst.arguments;
  auto of = [&](size_t i) { return at(a[i]).factor; };
  const uint64_t* second =
      a.size() == 2 && f_[a[1]].op == Op::kConstant ? &f_[a[1]].immediate : nullptr;
  switch (inst.op) {
    case Op::kAdd:
    case Op::kSub:
      return std::min(of(0), of(1));
    case Op::kMul:
      return std::min(of(0) * of(1), kMostFactor);
    case Op::kShl:
      return second != nullptr && *second < 30 ? std::min(of(0) << *second, kMostFactor) : 1;
    case Op::kAnd:
      return std::max(of(0), of(1));
    case Op::kSelect:
      return std::min(of(1), of(2));
    case Op::kSignExtend:
    case Op::kZeroExtend:
    case Op::kTruncate:
      return of(0);
    case Op::kRemU:
    case Op::kRemS:
      // x - q * c
      return second != nullptr && *second != 0 ? std::min(of(0), of(1)) : 1;
    case Op::kDivU:
    case Op::kDivS:
      // Exact quotients by a power of two.
      return second != nullptr && *second == static_cast<uint64_t>(of(1)) && of(0) > of(1)
                 ? of(0) / of(1)
                 : 1;
    default:
      return 1;
  }
}

// A condition whose outcome is the same at all points.
bool LaneAnalysis::compare_known(const Instruction& inst, Facts& facts) {
  const auto& a = inst.arguments;
  auto decide = [&](bool outcome) {
    facts.is_exact = true;
    facts.low = facts.high = outcome;
    return true;
  };
  if (inst.op == Op::kAnd || inst.op == Op::kOr) {
    const int decisive = inst.op == Op::kOr;
    if (known(a[0]) == decisive || known(a[1]) == decisive) return decide(decisive != 0);
    return known(a[0]) >= 0 && known(a[1]) >= 0 && decide(decisive == 0);
  }
  if (a.size() != 2 || !is_integer(f_.type(a[0]))) return false;
  const Facts &x = at(a[0]), &y = at(a[1]);
  if (!x.is_exact || !y.is_exact) return false;
  const bool is_unsigned = inst.op == Op::kLtU || inst.op == Op::kLeU;
  if (is_unsigned && (x.low < 0 || y.low < 0)) return false;
  switch (inst.op) {
    case Op::kLtS:
    case Op::kLtU:
      return (x.high < y.low && decide(true)) || (x.low >= y.high && decide(false));
    case Op::kLeS:
    case Op::kLeU:
      return (x.high <= y.low && decide(true)) || (x.low > y.high && decide(false));
    case Op::kEq:
    case Op::kNe:
      if (x.high < y.low || x.low > y.high) return decide(inst.op == Op::kNe);
      return x.low == x.high && y.low == y.high && x.low == y.low && decide(inst.op == Op::kEq);
    default:
      return false;
  }
}

void LaneAnalysis::bound(Value v) {
  const Instruction& inst = f_[v];
  Facts& facts = at(v);
  if (inst.type == ScalarType::kBool && inst.op != Op::kStore) {
    facts.is_exact = false;
    compare_known(inst, facts);
    return;
  }
  const auto& a = inst.arguments;
  const __int128 unknown = static_cast<__int128>(1) << 64;
  set_bounds(facts, inst.type, 0, unknown);
  if (!is_integer(inst.type)) return;
  auto low = [&](size_t i) { return static_cast<__int128>(at(a[i]).low); };
  auto high = [&](size_t i) { return static_cast<__int128>(at(a[i]).high); };
  auto exact = [&](size_t i) { return at(a[i]).is_exact; };
  switch (inst.op) {
    case Op::kAdd:
      if (exact(0) && exact(1)) set_bounds(facts, inst.type, low(0) + low(1), high(0) + high(1));
      break;
    case Op::kSub:
      if (exact(0) && exact(1)) set_bounds(facts, inst.type, low(0) - high(1), high(0) - low(1));
      break;
    case Op::kMul:
      if (exact(0) && exact(1)) {
        // Halves of 63 bits: their products fit.
        const __int128 products[] = {low(0) * low(1), low(0) * high(1), high(0) * low(1),
                                     high(0) * high(1)};
        const auto [least, most] = std::minmax_element(std::begin(products), std::end(products));
        set_bounds(facts, inst.type, *least, *most);
      }
      break;
    case Op::kShl:
      if (exact(0) && f_[a[1]].op == Op::kConstant && f_[a[1]].immediate < 63) {
        const __int128 factor = static_cast<__int128>(1) << f_[a[1]].immediate;
        set_bounds(facts, inst.type, low(0) * factor, high(0) * factor);
      }
      break;
    case Op::kDivU:
    case Op::kDivS:
    case Op::kRemU:
    case Op::kRemS:
      if (exact(0) && exact(1) && low(0) >= 0 && low(1) > 0) {
        const bool divides = inst.op == Op::kDivU || inst.op == Op::kDivS;
        if (divides) {
          set_bounds(facts, inst.type, low(0) / high(1), high(0) / low(1));
        } else {
          set_bounds(facts, inst.type, 0, std::min(high(0), high(1) - 1));
        }
      }
      break;
    case Op::kShrU:
    case Op::kShrS:
      if (exact(0) && low(0) >= 0) set_bounds(facts, inst.type, 0, high(0));
      break;
    case Op::kAnd:
      if (exact(1) && low(1) >= 0) set_bounds(facts, inst.type, 0, high(1));
      break;
    case Op::kSelect:
      if (exact(1) && exact(2)) {
        set_bounds(facts, inst.type, std::min(low(1), low(2)), std::max(high(1), high(2)));
      }
      break;
    case Op::kSignExtend:
      if (exact(0)) set_bounds(facts, inst.type, low(0), high(0));
      break;
    case Op::kZeroExtend:
      if (exact(0) && low(0) >= 0) set_bounds(facts, inst.type, low(0), high(0));
      break;
    default:
      break;
  }
}

}  // namespace hekla::cpu
