// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/tile.h"

#include <algorithm>
#include <iterator>

namespace hekla::vulkan::codegen {
namespace {

using kernel::Function;
using kernel::Instruction;
using kernel::Op;
using kernel::Value;

size_t at(Value v) { return static_cast<size_t>(v); }

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

TileAnalysis analyse_tile(const kernel::IndexAnalysis& index) {
  const Function& f = index.kernel().body;
  TileAnalysis result;
  result.depends.assign(f.size(), 0);
  const auto rank = static_cast<int>(f.body().parameters.size());
  if (rank == 0) return result;
  std::vector<Value> loops(f.region_count(), kernel::kNoValue);
  for (size_t i = 0; i < f.size(); ++i) {
    const auto v = static_cast<Value>(i);
    if (f[v].op == Op::kFor) loops[f[v].immediate] = v;
    if (index.depends_on_dimension(v, rank - 1)) result.depends[i] |= kOnColumn;
    if (rank > 1 && index.depends_on_dimension(v, rank - 2)) result.depends[i] |= kOnRow;
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

std::vector<uint8_t> analyse_units(const kernel::IndexAnalysis& index) {
  std::vector<uint8_t> depends = analyse_tile(index).depends;
  const auto rank = static_cast<int>(index.kernel().body.body().parameters.size());
  for (size_t i = 0; i < depends.size(); ++i) {
    for (int d = 0; d < rank; ++d) {
      if (index.depends_on_dimension(static_cast<Value>(i), d)) depends[i] |= kOnRow;
    }
  }
  return depends;
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

}  // namespace

std::map<Value, std::vector<Value>> adjacent_loads(const kernel::IndexAnalysis& index,
                                                   uint32_t most_bytes, uint32_t least_element) {
  const Function& f = index.kernel().body;
  std::map<Value, std::vector<Value>> groups;
  const std::vector<bool> stores = regions_with_stores(f);
  // By what is loaded and the index without its constant; then by the constant.
  using Terms = std::vector<std::pair<Value, int64_t>>;
  using Key = std::pair<std::pair<uint64_t, kernel::ScalarType>, Terms>;
  std::map<Key, std::map<int64_t, Value>> loads;
  // Those of a group of `count`; none where there is none.
  const auto following = [&](const std::map<int64_t, Value>& places, auto first, uint32_t count) {
    std::vector<Value> others;
    if (index.factor(f[first->second].arguments[0]) < count) return others;
    for (uint32_t i = 1; i < count; ++i) {
      const auto next = places.find(first->first + i);
      // In the order of their numbers, which is that of the region.
      if (next == places.end() || next->second < first->second) return std::vector<Value>();
      others.push_back(next->second);
    }
    return others;
  };
  const auto group = [&] {
    for (const auto& [key, places] : loads) {
      const uint32_t bytes = kernel::unpack_access(key.first.first).bytes;
      for (auto it = places.begin(); it != places.end();) {
        std::vector<Value> others;
        for (uint32_t count = most_bytes / bytes; count >= 2 && count * bytes >= 4; count /= 2) {
          others = following(places, it, count);
          if (!others.empty()) break;
        }
        if (!others.empty()) groups.emplace(it->second, others);
        std::advance(it, 1 + others.size());
      }
    }
    loads.clear();
  };
  for (size_t r = 0; r < f.region_count(); ++r) {
    for (Value v : f.region(static_cast<int32_t>(r)).instructions) {
      const Instruction& inst = f[v];
      // A load must see the stores that come before it.
      if (inst.op == Op::kStore || (inst.op == Op::kFor && stores[inst.immediate])) group();
      if (inst.op != Op::kLoad || kernel::unpack_access(inst.immediate).bytes > 4 ||
          kernel::unpack_access(inst.immediate).bytes < least_element ||
          f.type(inst.arguments[0]) != kernel::ScalarType::kI32) {
        continue;
      }
      Terms terms;
      for (const auto& term : index.terms(inst.arguments[0])) {
        terms.emplace_back(term.term, term.factor);
      }
      loads[{{inst.immediate, inst.type}, terms}].emplace(index.constant(inst.arguments[0]), v);
    }
    group();
  }
  return groups;
}

std::map<Value, std::vector<Value>> adjacent_stores(const kernel::IndexAnalysis& index,
                                                    uint32_t most_bytes) {
  const Function& f = index.kernel().body;
  std::map<Value, std::vector<Value>> groups;
  using Terms = std::vector<std::pair<Value, int64_t>>;
  using Key = std::pair<std::pair<uint64_t, kernel::ScalarType>, Terms>;
  // By operand, which has but one key at a time: other places might be the same.
  std::map<int32_t, std::pair<Key, std::map<int64_t, Value>>> open;
  const auto close = [&](const std::map<int64_t, Value>& places, uint32_t bytes) {
    for (auto it = places.begin(); it != places.end();) {
      std::vector<Value> group;
      for (uint32_t count = most_bytes / bytes; count >= 2 && count * bytes >= 4; count /= 2) {
        group.clear();
        if (index.factor(f[it->second].arguments[0]) < count) continue;
        for (uint32_t i = 0; i < count; ++i) {
          const auto next = places.find(it->first + i);
          if (next == places.end()) break;
          group.push_back(next->second);
        }
        if (group.size() == count) break;
        group.clear();
      }
      const size_t done = std::max<size_t>(1, group.size());
      if (!group.empty()) groups.emplace(*std::max_element(group.begin(), group.end()), group);
      std::advance(it, done);
    }
  };
  const auto close_all = [&] {
    for (const auto& [operand, stores] : open) {
      close(stores.second, kernel::unpack_access(stores.first.first.first).bytes);
    }
    open.clear();
  };
  for (size_t r = 0; r < f.region_count(); ++r) {
    for (Value v : f.region(static_cast<int32_t>(r)).instructions) {
      const Instruction& inst = f[v];
      if (inst.op == Op::kLoad || inst.op == Op::kFor || inst.op == Op::kShuffleXor) close_all();
      if (inst.op != Op::kStore) continue;
      const kernel::Access access = kernel::unpack_access(inst.immediate);
      if (access.bytes > 4 || f.type(inst.arguments[0]) != kernel::ScalarType::kI32) {
        close_all();
        continue;
      }
      Terms terms;
      for (const auto& term : index.terms(inst.arguments[0])) {
        terms.emplace_back(term.term, term.factor);
      }
      const Key key{{inst.immediate, f.type(inst.arguments[1])}, terms};
      auto& [of, places] = open[access.operand];
      const int64_t place = index.constant(inst.arguments[0]);
      if (!places.empty() && (of != key || places.contains(place))) {
        close(places, access.bytes);
        places.clear();
      }
      of = key;
      places.emplace(place, v);
    }
    close_all();
  }
  return groups;
}

std::vector<StagedLoad> staged_loads(const kernel::IndexAnalysis& index, int32_t region,
                                     int64_t trip_count, const std::vector<uint8_t>& depends,
                                     bool has_rows) {
  const Function& f = index.kernel().body;
  std::vector<StagedLoad> result;
  if (trip_count <= 0 || !is_innermost(f, region)) return result;
  const auto rank = static_cast<int>(f.body().parameters.size());
  for (Value v : f.region(region).instructions) {
    if (f[v].op != Op::kLoad) continue;
    const int on = depends[at(v)] & (has_rows ? kOnColumn | kOnRow : kOnColumn);
    if (on != kOnRow && on != kOnColumn) continue;
    int budget = kMostReplayed;
    const Value element = f[v].arguments[0];
    if (!is_replayable(f, element, region, depends, false, budget)) continue;
    StagedLoad staged;
    staged.load = v;
    staged.is_by_row = on == kOnRow;
    staged.is_along_iteration =
        index.slope(element, index.iteration(region)) == int64_t{1} &&
        index.slope(element, index.dimension(rank - (staged.is_by_row ? 2 : 1))) != int64_t{1};
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
