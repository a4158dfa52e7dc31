// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/op_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hekla::spmd {
namespace {

using sharding::ShardingRule;

// Arrays whose tilings are tried as the beginning of a cut, in every order: 3 give 16 orders.
constexpr size_t kMaxSources = 3;

bool uses(const OpCut& cut, int axis) {
  return std::any_of(cut.begin(), cut.end(),
                     [axis](const Axes& axes) { return contains(axes, axis); });
}

class Chooser {
 public:
  explicit Chooser(const CutProblem& problem)
      : problem_(problem), mesh_(problem.mesh), rule_(problem.rule) {}

  OpCut best() {
    collect_sources();
    OpCut best(rule_.factor_sizes.size());
    Cost lowest = cost_of(best);
    std::vector<size_t> order;
    try_orders(order, best, lowest);
    return best;
  }

  double bytes(const OpCut& cut) const { return cost_of(cut).bytes; }

  std::optional<OpCut> of_result() {
    const Tiling& wanted = problem_.results[0].tilings.front();
    OpCut cut(rule_.factor_sizes.size());
    extend(cut, {&rule_.results[0], &wanted, true, 0}, /*with_reductions=*/false);
    const std::optional<Tiling> made = tiling_under(cut, rule_, rule_.results[0], mesh_);
    const bool is_wanted = made && *made == wanted;
    return is_wanted ? std::optional(std::move(cut)) : std::nullopt;
  }

 private:
  struct Source {
    const ShardingRule::Tensor* dimensions;
    const Tiling* tiling;
    bool is_result;
    int64_t elements;
  };
  // Bytes first, then the share of the work that each device has.
  struct Cost {
    double bytes = 0;
    int64_t parts = 1;
    bool operator<(const Cost& other) const {
      return bytes != other.bytes ? bytes < other.bytes : parts > other.parts;
    }
  };

  void collect_sources() {
    const auto add = [&](const std::vector<CutArray>& arrays,
                         const std::vector<ShardingRule::Tensor>& rules, bool is_result) {
      for (size_t i = 0; i < arrays.size() && i < rules.size(); ++i) {
        for (const Tiling& tiling : arrays[i].tilings) {
          if (tiling.is_replicated()) continue;
          const bool is_known =
              std::any_of(sources_.begin(), sources_.end(), [&](const Source& other) {
                return *other.dimensions == rules[i] && *other.tiling == tiling;
              });
          if (is_known) continue;
          sources_.push_back({&rules[i], &tiling, is_result, element_count(arrays[i].type.dims())});
        }
      }
    };
    add(problem_.results, rule_.results, true);
    add(problem_.operands, rule_.operands, false);
    if (sources_.size() > kMaxSources) {
      std::stable_sort(sources_.begin(), sources_.end(), [](const Source& a, const Source& b) {
        return std::pair(a.is_result, a.elements) > std::pair(b.is_result, b.elements);
      });
      sources_.resize(kMaxSources);
    }
  }

  void try_orders(std::vector<size_t>& order, OpCut& best, Cost& lowest) {
    if (!order.empty()) {
      for (const bool with_reductions : {true, false}) {
        OpCut cut(rule_.factor_sizes.size());
        for (size_t source : order) extend(cut, sources_[source], with_reductions);
        offer_moves(cut, best, lowest);
        offer(std::move(cut), best, lowest);
        if (rule_.reduction.empty()) break;
      }
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (std::find(order.begin(), order.end(), i) != order.end()) continue;
      order.push_back(i);
      try_orders(order, best, lowest);
      order.pop_back();
    }
  }

  void offer(OpCut cut, OpCut& best, Cost& lowest) const {
    const Cost cost = cost_of(cut);
    if (!(cost < lowest)) return;
    lowest = cost;
    best = std::move(cut);
  }

  // What cuts a dimension that must be whole may cut another one meanwhile.
  void offer_moves(const OpCut& cut, OpCut& best, Cost& lowest) const {
    Axes moved;
    for (const Source& source : sources_) {
      for (size_t d = 0; d < source.dimensions->size() && d < source.tiling->dims.size(); ++d) {
        if (!contains(rule_.need_replication, (*source.dimensions)[d].front())) continue;
        for (int axis : source.tiling->dims[d]) {
          if (!uses(cut, axis) && !contains(moved, axis) && !contains(problem_.addends, axis)) {
            moved.push_back(axis);
          }
        }
      }
    }
    if (moved.empty()) return;
    for (size_t f = 0; f < cut.size(); ++f) {
      const auto factor = static_cast<int64_t>(f);
      const bool passes = !contains(rule_.need_replication, factor) &&
                          !contains(rule_.reduction, factor) &&
                          !contains(rule_.permutation, factor);
      OpCut other = cut;
      other[f].insert(other[f].end(), moved.begin(), moved.end());
      if (passes && rule_.factor_sizes[f] % mesh_.parts(other[f]) == 0 &&
          problem_.may_cut(factor, /*is_even=*/true)) {
        offer(std::move(other), best, lowest);
      }
    }
  }

  // Adds what the array is cut by, as far as it fits.
  void extend(OpCut& cut, const Source& source, bool with_reductions) {
    for (size_t d = 0; d < source.dimensions->size() && d < source.tiling->dims.size(); ++d) {
      const ShardingRule::Dimension& factors = (*source.dimensions)[d];
      size_t k = 0;
      size_t place = 0;  // in the factor's list
      int64_t rest = rule_.factor_sizes[static_cast<size_t>(factors[0])];
      for (int axis : source.tiling->dims[d]) {
        const bool is_single = factors.size() == 1;
        while (rest == 1 && k + 1 < factors.size()) {
          ++k;
          place = 0;
          rest = rule_.factor_sizes[static_cast<size_t>(factors[k])];
        }
        const int64_t factor = factors[k];
        const bool divides = rest % mesh_.size(axis) == 0;
        if (!divides && !is_single) break;
        rest = divides ? rest / mesh_.size(axis) : 0;
        Axes& axes = cut[static_cast<size_t>(factor)];
        if (place < axes.size()) {
          if (axes[place] != axis) break;  // cut in another way already
        } else if (uses(cut, axis) || contains(problem_.addends, axis) ||
                   !may_cut(factor, divides, with_reductions)) {
          break;
        } else {
          axes.push_back(axis);
        }
        ++place;
      }
    }
  }

  bool may_cut(int64_t factor, bool is_even, bool with_reductions) const {
    if (contains(rule_.need_replication, factor)) return false;
    if (!with_reductions && contains(rule_.reduction, factor)) return false;
    return problem_.may_cut(factor, is_even);
  }

  Cost cost_of(const OpCut& cut) const {
    constexpr Cost kNever = {std::numeric_limits<double>::infinity(), 1};
    Cost cost;
    for (const Axes& axes : cut) cost.parts *= mesh_.parts(axes);
    for (size_t i = 0; i < problem_.operands.size(); ++i) {
      const CutArray& operand = problem_.operands[i];
      if (operand.tilings.empty()) continue;
      if (!tiling_under(cut, rule_, rule_.operands[i], mesh_)) return kNever;
      cost.bytes += problem_.operand_bytes(cut, i);
    }
    for (size_t i = 0; i < problem_.results.size(); ++i) {
      const CutArray& result = problem_.results[i];
      std::optional<Tiling> made = tiling_under(cut, rule_, rule_.results[i], mesh_);
      if (!made) return kNever;
      made->partial = all_axes(reduction_axes(cut, rule_), problem_.addends);
      cost.bytes += problem_.bytes(*made, result.tilings.front(), result.type);
    }
    return cost;
  }

  const CutProblem& problem_;
  const PrimeMesh& mesh_;
  const ShardingRule& rule_;
  std::vector<Source> sources_;
};

}  // namespace

OpCut choose_cut(const CutProblem& problem) { return Chooser(problem).best(); }

double bytes_of(const CutProblem& problem, const OpCut& cut) { return Chooser(problem).bytes(cut); }

std::optional<OpCut> cut_of_result(const CutProblem& problem) {
  return Chooser(problem).of_result();
}

std::optional<Tiling> tiling_under(const OpCut& cut, const ShardingRule& rule,
                                   const ShardingRule::Tensor& dimensions, const PrimeMesh& mesh) {
  Tiling tiling = Tiling::replicated(dimensions.size());
  for (size_t d = 0; d < dimensions.size(); ++d) {
    bool is_full = true;  // every factor before is one element a part
    for (int64_t factor : dimensions[d]) {
      const auto f = static_cast<size_t>(factor);
      const Axes& axes = cut[f];
      if (!axes.empty() && !is_full) return std::nullopt;
      is_full = is_full && mesh.parts(axes) == rule.factor_sizes[f];
      tiling.dims[d].insert(tiling.dims[d].end(), axes.begin(), axes.end());
    }
  }
  return tiling;
}

Axes all_axes(Axes axes, const Axes& others) {
  axes.insert(axes.end(), others.begin(), others.end());
  std::sort(axes.begin(), axes.end());
  return axes;
}

Axes reduction_axes(const OpCut& cut, const ShardingRule& rule) {
  Axes axes;
  for (int64_t factor : rule.reduction) {
    const Axes& own = cut[static_cast<size_t>(factor)];
    axes.insert(axes.end(), own.begin(), own.end());
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace hekla::spmd
