// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/tile.h"

#include <algorithm>
#include <functional>
#include <map>

namespace hekla::vulkan::codegen {
namespace {

using kernel::Function;
using kernel::Instruction;
using kernel::Op;
using kernel::Value;

size_t at(Value v) { return static_cast<size_t>(v); }

// The loop instruction of each region; kNoValue for the body.
std::vector<Value> loops_of(const Function& f) {
  std::vector<Value> loops(f.region_count(), kernel::kNoValue);
  for (size_t i = 0; i < f.size(); ++i) {
    const Instruction& inst = f[static_cast<Value>(i)];
    if (inst.op == Op::kFor) loops[inst.immediate] = static_cast<Value>(i);
  }
  return loops;
}

bool is_innermost(const Function& f, int32_t region) {
  const auto& list = f.region(region).instructions;
  return std::none_of(list.begin(), list.end(),
                      [&](Value v) { return f[v].op == Op::kFor || f[v].op == Op::kStore; });
}

// The values that `value` is made of must be computable for any iteration, and without `at_point`
// for any row and column.
constexpr int kMostReplayed = 64;

bool is_replayable(const Function& f, Value value, int32_t region,
                   const std::vector<uint8_t>& depends, bool at_point, int& budget) {
  const Instruction& inst = f[value];
  if (inst.op == Op::kConstant) return true;
  if (at_point && inst.region != region) return true;
  if (inst.op == Op::kParameter) {
    if (inst.region == 0) return true;
    if (inst.region == region) return inst.immediate == 0;  // not what it carries
  }
  if (inst.region != region && depends[at(value)] == 0) return true;  // as it is
  if (kernel::is_float(inst.type)) return false;
  if (inst.op == Op::kParameter || inst.op == Op::kForResult || inst.op == Op::kFor ||
      inst.op == Op::kStore || --budget < 0) {
    return false;
  }
  return std::all_of(inst.arguments.begin(), inst.arguments.end(), [&](Value a) {
    return is_replayable(f, a, region, depends, at_point, budget);
  });
}

}  // namespace

TileAnalysis analyse_tile(const kernel::Kernel& kernel) {
  const Function& f = kernel.body;
  TileAnalysis result;
  result.depends.assign(f.size(), 0);
  const std::vector<Value> loops = loops_of(f);
  const auto& parameters = f.body().parameters;
  if (parameters.empty()) return result;
  result.depends[at(parameters.back())] = kOnColumn;
  if (parameters.size() > 1) result.depends[at(parameters[parameters.size() - 2])] = kOnRow;
  auto depends_on = [&](const Instruction& inst) {
    uint8_t all = 0;
    switch (inst.op) {
      case Op::kConstant:
        return all;
      case Op::kParameter: {
        if (inst.region == 0 || inst.immediate == 0) return all;
        const Instruction& loop = f[loops[static_cast<size_t>(inst.region)]];
        return static_cast<uint8_t>(
            result.depends[at(f.region(inst.region).yields[inst.immediate - 1])] |
            result.depends[at(loop.arguments[inst.immediate])]);
      }
      case Op::kForResult: {
        const auto region = static_cast<int32_t>(f[inst.arguments[0]].immediate);
        return result.depends[at(f.region(region).parameters[inst.immediate + 1])];
      }
      default:
        for (Value a : inst.arguments) all |= result.depends[at(a)];
        return all;
    }
  };
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (size_t i = 0; i < f.size(); ++i) {
      const auto all =
          static_cast<uint8_t>(result.depends[i] | depends_on(f[static_cast<Value>(i)]));
      if (all == result.depends[i]) continue;
      result.depends[i] = all;
      is_new = true;
    }
  }
  result.is_possible = f.region_count() > 1;
  for (size_t r = 1; r < loops.size(); ++r) {
    const auto region = static_cast<int32_t>(r);
    const Instruction& loop = f[loops[r]];
    result.is_possible &= result.depends[at(loop.arguments[0])] == 0;
    result.carried = std::max(result.carried, static_cast<int64_t>(f.region(region).yields.size()));
    if (!is_innermost(f, region)) continue;
    for (Value v : f.region(region).instructions) {
      if (f[v].op != Op::kLoad) continue;
      result.shares_by_rows |= result.depends[at(v)] == kOnColumn;
      result.shares_by_columns |= result.depends[at(v)] == kOnRow;
    }
  }
  return result;
}

int64_t tile_instructions(const Function& f, const TileAnalysis& analysis, int64_t columns,
                          int64_t rows) {
  int64_t sum = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    const Op op = f[static_cast<Value>(i)].op;
    if (op == Op::kConstant || op == Op::kParameter || op == Op::kForResult) continue;
    const uint8_t on = op == Op::kStore ? kOnColumn | kOnRow : analysis.depends[i];
    sum += ((on & kOnColumn) != 0 ? columns : 1) * ((on & kOnRow) != 0 ? rows : 1);
  }
  return sum;
}

PassedValues passed_values(const Function& f, int32_t region) {
  PassedValues result;
  result.needed.assign(f.size(), false);
  if (!is_innermost(f, region)) return result;
  const kernel::RegionBody& body = f.region(region);
  std::vector<bool> is_carried(f.size(), false), is_loaded(f.size(), false);
  for (size_t i = 1; i < body.parameters.size(); ++i) is_carried[at(body.parameters[i])] = true;
  for (Value v : body.instructions) {
    is_loaded[at(v)] = f[v].op == Op::kLoad;
    for (Value a : f[v].arguments) {
      if (is_carried[at(a)]) is_carried[at(v)] = true;
      if (is_loaded[at(a)]) is_loaded[at(v)] = true;
    }
  }
  std::vector<Value> open = body.yields;
  for (Value v : body.instructions) {
    if (is_carried[at(v)]) open.push_back(v);
  }
  while (!open.empty()) {
    const Value v = open.back();
    open.pop_back();
    if (f[v].region != region || f[v].op == Op::kConstant || result.needed[at(v)]) continue;
    result.needed[at(v)] = true;
    if (is_loaded[at(v)] && !is_carried[at(v)]) {
      result.passed.push_back(v);
    } else {
      open.insert(open.end(), f[v].arguments.begin(), f[v].arguments.end());
    }
  }
  std::sort(result.passed.begin(), result.passed.end());
  return result;
}

Slopes::Slopes(const Function& f, Value by) : f_(f), by_(by), depends_(f.size(), false) {
  const std::vector<Value> loops = loops_of(f);
  std::vector<bool> is_written;
  for (size_t i = 0; i < f.size(); ++i) {
    const Instruction& inst = f[static_cast<Value>(i)];
    if (inst.op != Op::kStore) continue;
    const auto operand = static_cast<size_t>(kernel::unpack_access(inst.immediate).operand);
    if (is_written.size() <= operand) is_written.resize(operand + 1, false);
    is_written[operand] = true;
  }
  depends_[at(by)] = true;
  const auto does = [&](Value v) { return static_cast<bool>(depends_[at(v)]); };
  const auto depends = [&](const Instruction& inst) {
    switch (inst.op) {
      case Op::kParameter: {
        // What a loop carries differs between its own iterations, whatever it is made of.
        if (inst.region == 0 || inst.immediate == 0) return false;
        if (inst.region == f[by].region) return true;
        const Instruction& loop = f[loops[static_cast<size_t>(inst.region)]];
        return does(loop.arguments[inst.immediate]) ||
               does(f.region(inst.region).yields[inst.immediate - 1]);
      }
      case Op::kForResult: {
        const Instruction& loop = f[inst.arguments[0]];
        const auto region = static_cast<int32_t>(loop.immediate);
        return does(loop.arguments[0]) || does(f.region(region).parameters[inst.immediate + 1]);
      }
      case Op::kLoad: {
        const auto operand = static_cast<size_t>(kernel::unpack_access(inst.immediate).operand);
        return (operand < is_written.size() && is_written[operand]) || does(inst.arguments[0]);
      }
      default:
        return std::any_of(inst.arguments.begin(), inst.arguments.end(), does);
    }
  };
  // Yields come after their parameters: again until nothing is new, mostly twice.
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (size_t i = 0; i < f.size(); ++i) {
      if (depends_[i] || !depends(f[static_cast<Value>(i)])) continue;
      depends_[i] = is_new = true;
    }
  }
}

std::optional<int64_t> Slopes::of(Value v) {
  if (v == by_) return 1;
  if (!depends_[at(v)]) return 0;
  if (const auto it = known_.find(v); it != known_.end()) return it->second;
  const Instruction& inst = f_[v];
  const auto constant = [&](Value c) -> std::optional<int64_t> {
    if (f_[c].op != Op::kConstant) return std::nullopt;
    return f_[c].type == kernel::ScalarType::kI64
               ? static_cast<int64_t>(f_[c].immediate)
               : static_cast<int64_t>(static_cast<int32_t>(f_[c].immediate));
  };
  std::optional<int64_t> result;
  switch (inst.op) {
    case Op::kAdd:
    case Op::kSub: {
      if (kernel::is_float(inst.type)) break;
      const auto a = of(inst.arguments[0]), b = of(inst.arguments[1]);
      if (!a || !b) break;
      // Indices wrap, and so do their slopes.
      const auto x = static_cast<uint64_t>(*a), y = static_cast<uint64_t>(*b);
      result = static_cast<int64_t>(inst.op == Op::kAdd ? x + y : x - y);
      break;
    }
    case Op::kMul:
      if (kernel::is_float(inst.type)) break;
      for (const size_t i : {size_t{0}, size_t{1}}) {
        const auto factor = constant(inst.arguments[1 - i]);
        if (!factor) continue;
        if (const auto s = of(inst.arguments[i])) {
          result = static_cast<int64_t>(static_cast<uint64_t>(*s) * static_cast<uint64_t>(*factor));
        }
      }
      break;
    case Op::kSignExtend:
    case Op::kZeroExtend:
      result = of(inst.arguments[0]);
      break;
    default:
      break;
  }
  return known_[v] = result;
}

uint64_t known_factor(const Function& f, Value value, const std::map<Value, uint64_t>& known) {
  // More than any access needs; the product of two fits.
  constexpr uint64_t kMost = uint64_t{1} << 16;
  std::map<Value, uint64_t> factors = known;
  std::function<uint64_t(Value)> of = [&](Value v) -> uint64_t {
    if (const auto it = factors.find(v); it != factors.end()) return it->second;
    const Instruction& inst = f[v];
    uint64_t result = 1;
    switch (inst.op) {
      case Op::kConstant: {
        const uint64_t bits = inst.immediate;
        result = bits == 0 ? kMost : bits & (~bits + 1);
        break;
      }
      case Op::kAdd:
      case Op::kSub:
        result = std::min(of(inst.arguments[0]), of(inst.arguments[1]));
        break;
      case Op::kMul:
        result = of(inst.arguments[0]) * of(inst.arguments[1]);
        break;
      case Op::kSelect:
        result = std::min(of(inst.arguments[1]), of(inst.arguments[2]));
        break;
      case Op::kSignExtend:
      case Op::kZeroExtend:
      case Op::kTruncate:
        result = of(inst.arguments[0]);
        break;
      default:
        break;
    }
    return factors[v] = std::min(result, kMost);
  };
  return of(value);
}

namespace {

// Of each region, whether it or one inside stores.
std::vector<bool> regions_with_stores(const Function& f) {
  std::vector<bool> result(f.region_count(), false);
  for (size_t i = 0; i < f.size(); ++i) {
    const Instruction& inst = f[static_cast<Value>(i)];
    if (inst.op != Op::kStore) continue;
    for (int32_t r = inst.region; r >= 0; r = f.region(r).parent) {
      result[static_cast<size_t>(r)] = true;
    }
  }
  return result;
}

// A sum of products of values with constants.
struct Sum {
  std::map<Value, int64_t> factors;
  int64_t constant = 0;
};

// Terms are taken apart while `budget`, a number of instructions, lasts.
Sum sum_of(const Function& f, Value v, int64_t times, int& budget) {
  const Instruction& inst = f[v];
  Sum result;
  const auto add = [&](const Sum& other) {
    for (const auto& [value, factor] : other.factors) {
      if ((result.factors[value] += factor) == 0) result.factors.erase(value);
    }
    result.constant += other.constant;
  };
  const auto small = [&](Value c) -> std::optional<int64_t> {
    if (f[c].op != Op::kConstant || f[c].type != kernel::ScalarType::kI32) return std::nullopt;
    return static_cast<int32_t>(f[c].immediate);
  };
  if (const std::optional<int64_t> c = small(v)) {
    result.constant = *c * times;
  } else if (--budget < 0) {
    result.factors[v] = times;
  } else if (inst.op == Op::kAdd || inst.op == Op::kSub) {
    add(sum_of(f, inst.arguments[0], times, budget));
    add(sum_of(f, inst.arguments[1], inst.op == Op::kAdd ? times : -times, budget));
  } else if (inst.op == Op::kMul && small(inst.arguments[1])) {
    add(sum_of(f, inst.arguments[0], times * *small(inst.arguments[1]), budget));
  } else {
    result.factors[v] = times;
  }
  return result;
}

}  // namespace

std::map<Value, Value> paired_loads(const Function& f) {
  std::map<Value, Value> pairs;
  const std::vector<bool> stores = regions_with_stores(f);
  // By what is loaded and the index without its constant; then by the constant.
  using Key = std::pair<std::pair<uint64_t, kernel::ScalarType>, std::map<Value, int64_t>>;
  std::map<Key, std::map<int64_t, Value>> loads;
  const auto pair_up = [&] {
    for (const auto& [key, places] : loads) {
      for (const auto& [place, v] : places) {
        const auto next = places.find(place + 1);
        // In the order of their numbers, which is that of the region.
        if (next == places.end() || next->second < v ||
            known_factor(f, f[v].arguments[0], {}) < 2) {
          continue;
        }
        pairs.emplace(v, next->second);
      }
    }
    loads.clear();
  };
  for (size_t r = 0; r < f.region_count(); ++r) {
    for (Value v : f.region(static_cast<int32_t>(r)).instructions) {
      const Instruction& inst = f[v];
      // A load must see the stores that come before it.
      if (inst.op == Op::kStore || (inst.op == Op::kFor && stores[inst.immediate])) pair_up();
      if (inst.op != Op::kLoad || kernel::unpack_access(inst.immediate).bytes != 4 ||
          f.type(inst.arguments[0]) != kernel::ScalarType::kI32) {
        continue;
      }
      int budget = kMostReplayed;
      const Sum sum = sum_of(f, inst.arguments[0], 1, budget);
      loads[{{inst.immediate, inst.type}, sum.factors}].emplace(sum.constant, v);
    }
    pair_up();
  }
  return pairs;
}

std::vector<StagedLoad> staged_loads(const Function& f, int32_t region, int64_t trip_count,
                                     const std::vector<uint8_t>& depends, Value row, Value column) {
  std::vector<StagedLoad> result;
  if (trip_count <= 0 || !is_innermost(f, region)) return result;
  Slopes by_iteration(f, f.region(region).parameters[0]);
  for (Value v : f.region(region).instructions) {
    if (f[v].op != Op::kLoad) continue;
    const int mask = row == kernel::kNoValue ? kOnColumn : kOnColumn | kOnRow;
    const int on = depends[at(v)] & mask;
    if (on != kOnRow && on != kOnColumn) continue;
    int budget = kMostReplayed;
    const Value index = f[v].arguments[0];
    if (!is_replayable(f, index, region, depends, false, budget)) continue;
    StagedLoad staged;
    staged.load = v;
    staged.is_by_row = on == kOnRow;
    const auto along = by_iteration.of(index);
    const auto across = Slopes(f, staged.is_by_row ? row : column).of(index);
    staged.is_along_iteration = along == int64_t{1} && across != int64_t{1};
    result.push_back(staged);
  }
  return result;
}

std::vector<Value> uniform_loads(const Function& f, int32_t region,
                                 const std::vector<uint8_t>& depends) {
  std::vector<Value> result;
  if (!is_innermost(f, region)) return result;
  for (Value v : f.region(region).instructions) {
    if (f[v].op != Op::kLoad || (depends[at(v)] & kOnColumn) != 0) continue;
    int budget = kMostReplayed;
    if (is_replayable(f, f[v].arguments[0], region, depends, true, budget)) result.push_back(v);
  }
  return result;
}

}  // namespace hekla::vulkan::codegen
