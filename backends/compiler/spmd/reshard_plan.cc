// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/reshard_plan.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace hekla::spmd {

using StepKind = ReshardStep::Kind;

namespace {

// Tilings that a search looks at, orders of axes that it tries in one permutation, and partitions
// whose blocks it follows through permutations in all: a tenth of a second at most.
constexpr size_t kMaxVisited = 2000;
constexpr size_t kMaxPermutations = 64;
constexpr int64_t kMaxFollowed = 100'000;

bool begins_with(const Axes& axes, const Axes& beginning) {
  return axes.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), axes.begin());
}

Axes cut_out(const Axes& axes, size_t begin, size_t end) {
  return {axes.begin() + static_cast<std::ptrdiff_t>(begin),
          axes.begin() + static_cast<std::ptrdiff_t>(end)};
}

Axes joined(Axes axes, const Axes& more) {
  axes.insert(axes.end(), more.begin(), more.end());
  return axes;
}

// Texts that differ where tilings or shapes do.
std::string key_of(const Tiling& tiling) {
  std::string key;
  const auto add = [&](const Axes& axes) {
    for (int axis : axes) key += static_cast<char>(axis + 1);
    key += '\0';
  };
  for (const Axes& axes : tiling.dims) add(axes);
  add(tiling.partial);
  return key;
}

std::string key_of(const Tiling& from, const Tiling& to, const Dims& whole) {
  std::string key = key_of(from) + key_of(to);
  for (int64_t n : whole) key += fmt::format("{},", n);
  return key;
}

// The cheapest way by Dijkstra's algorithm over tilings.
class ReshardSearch {
 public:
  ReshardSearch(const PrimeMesh& mesh, const Tiling& from, const Tiling& to, const Dims& whole)
      : mesh_(mesh), from_(from), to_(to), whole_(whole) {
    for (const Tiling* tiling : {&from, &to}) {
      for (const Axes& axes : tiling->dims) {
        for (int axis : axes) {
          if (!contains(pool_, axis)) pool_.push_back(axis);
        }
      }
    }
    std::sort(pool_.begin(), pool_.end());
    std::set_difference(from.partial.begin(), from.partial.end(), to.partial.begin(),
                        to.partial.end(), std::back_inserter(summed_));
  }

  ReshardPlan run() {
    if (std::optional<ReshardPlan> simple = without_moves()) return *std::move(simple);
    ReshardPlan best = by_whole_dimensions();
    bound_ = best.elements;
    offer(from_, StepKind::kSlice, 0, 0);
    while (!queue_.empty()) {
      const size_t at = std::get<2>(queue_.top());
      queue_.pop();
      if (nodes_[at].is_done) continue;
      nodes_[at].is_done = true;
      if (nodes_[at].tiling == to_) {
        ReshardPlan found = finished(path_to(at));
        if (found.elements <= best.elements) best = std::move(found);
        break;
      }
      if (++visited_ > kMaxVisited) break;
      current_ = at;
      const Tiling tiling = nodes_[at].tiling;
      offer_slices(tiling);
      offer_sums(tiling);
      offer_permutations(tiling);
      offer_exchanges(tiling);
      offer_gathers(tiling);
    }
    return best;
  }

 private:
  struct Node {
    Tiling tiling;
    StepKind kind = StepKind::kSlice;
    size_t parent = 0;
    double elements = 0;
    int collectives = 0;
    bool is_done = false;
  };

  int64_t block(size_t d, const Axes& axes) const {
    return sharding::block_of(whole_[d], mesh_.parts(axes), 0).size;
  }
  // Whether blocks by `axes` fall into blocks by `axes` and `more`.
  bool is_nested(size_t d, const Axes& axes, const Axes& more) const {
    return axes.empty() || block(d, axes) % mesh_.parts(more) == 0;
  }

  // What a step makes each device send on average.
  double cost(StepKind kind, const Tiling& from, const Tiling& to) const {
    double local = 1;   // with the padding that the step needs
    double before = 1;  // parts of the array
    double after = 1;
    double moved = 1;  // parts along the axes that dimensions lose
    for (size_t d = 0; d < whole_.size(); ++d) {
      const int64_t parts = mesh_.parts(from.dims[d]);
      const int64_t parts_after = mesh_.parts(to.dims[d]);
      const int64_t ratio = parts_after > parts ? parts_after / parts : 1;
      local *=
          static_cast<double>(ratio > 1 ? ratio * block(d, to.dims[d]) : block(d, from.dims[d]));
      before *= static_cast<double>(parts);
      after *= static_cast<double>(parts_after);
      if (parts_after < parts) moved *= static_cast<double>(parts / parts_after);
    }
    double summed = 1;
    for (int axis : from.partial) {
      if (!contains(to.partial, axis)) summed *= static_cast<double>(mesh_.size(axis));
    }
    switch (kind) {
      case StepKind::kSlice:
      case StepKind::kPlace:
      case StepKind::kKeepFirst:
        break;
      case StepKind::kPermute: {
        const std::vector<int64_t> sources = permutation_sources(mesh_, from, to);
        int64_t fixed = 0;
        for (size_t p = 0; p < sources.size(); ++p) fixed += sources[p] == static_cast<int64_t>(p);
        return local * (1 - static_cast<double>(fixed) / static_cast<double>(sources.size()));
      }
      case StepKind::kExchange:
        return local * (moved - 1) / moved;
      case StepKind::kGather:
        return local * (before / after - 1);
      case StepKind::kReduceScatter:
        return local * (summed - 1) / summed;
      case StepKind::kAllReduce:
        return 2 * local * (summed - 1) / summed;
    }
    return 0;
  }

  // Every dimension only loses axes from its end or only gets ones that nobody used: nothing to
  // search for.
  std::optional<ReshardPlan> without_moves() const {
    if (!summed_.empty()) return std::nullopt;
    Tiling sliced = from_;
    for (size_t d = 0; d < whole_.size(); ++d) {
      const Axes& now = from_.dims[d];
      const Axes& then = to_.dims[d];
      const bool is_longer = begins_with(then, now);
      if (!is_longer && !begins_with(now, then)) return std::nullopt;
      const Axes& base = is_longer ? now : then;
      const Axes& all = is_longer ? then : now;
      const Axes more = cut_out(all, base.size(), all.size());
      if (more.empty()) continue;
      if (!is_nested(d, base, more)) return std::nullopt;
      if (!is_longer) continue;
      for (int axis : more) {
        if (from_.uses(axis)) return std::nullopt;
      }
      sliced.dims[d] = then;
    }
    return finished({{StepKind::kSlice, sliced}, {StepKind::kGather, to_}});
  }

  // What is always possible.
  ReshardPlan by_whole_dimensions() const {
    Tiling summed = from_;
    summed.partial = to_.partial;
    Tiling gathered = summed;
    for (size_t d = 0; d < whole_.size(); ++d) {
      if (from_.dims[d] != to_.dims[d]) gathered.dims[d].clear();
    }
    return finished(
        {{StepKind::kAllReduce, summed}, {StepKind::kGather, gathered}, {StepKind::kSlice, to_}});
  }

  std::vector<ReshardStep> path_to(size_t at) const {
    std::vector<ReshardStep> steps;
    for (; at != 0; at = nodes_[at].parent) steps.push_back({nodes_[at].kind, nodes_[at].tiling});
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  // Without steps that do nothing, neighbours of one kind as one where that is one operation.
  ReshardPlan finished(const std::vector<ReshardStep>& steps) const {
    ReshardPlan plan;
    for (const ReshardStep& step : steps) {
      const Tiling& last = plan.steps.empty() ? from_ : plan.steps.back().to;
      if (step.to == last) continue;
      if (!plan.steps.empty() && plan.steps.back().kind == step.kind && is_one(plan.steps, step)) {
        plan.steps.back().to = step.to;
      } else {
        plan.steps.push_back(step);
      }
    }
    const Tiling* last = &from_;
    for (const ReshardStep& step : plan.steps) {
      plan.elements += cost(step.kind, *last, step.to);
      last = &step.to;
    }
    return plan;
  }

  // Whether the last of `steps` and `next`, of one kind, are one operation.
  bool is_one(const std::vector<ReshardStep>& steps, const ReshardStep& next) const {
    if (next.kind == StepKind::kSlice || next.kind == StepKind::kGather) return true;
    if (next.kind != StepKind::kExchange) return false;
    const Tiling& first = steps.size() == 1 ? from_ : steps[steps.size() - 2].to;
    for (size_t d = 0; d < whole_.size(); ++d) {
      const bool is_longer = begins_with(next.to.dims[d], first.dims[d]);
      const Axes& base = is_longer ? first.dims[d] : next.to.dims[d];
      const Axes& all = is_longer ? next.to.dims[d] : first.dims[d];
      // Blocks that lay in each other on the way need not do so without it.
      if (!begins_with(all, base) || !is_nested(d, base, cut_out(all, base.size(), all.size()))) {
        return false;
      }
    }
    return true;
  }

  // From the tiling that is looked at.
  void offer(const Tiling& tiling, StepKind kind) {
    const auto known = numbers_.find(key_of(tiling));
    if (known != numbers_.end() && nodes_[known->second].is_done) return;
    const Node& now = nodes_[current_];
    offer(tiling, kind, now.elements + cost(kind, now.tiling, tiling),
          now.collectives + (kind == StepKind::kSlice ? 0 : 1));
  }

  void offer(const Tiling& tiling, StepKind kind, double elements, int collectives) {
    if (elements > bound_) return;
    const auto [known, is_new] = numbers_.emplace(key_of(tiling), nodes_.size());
    const size_t at = known->second;
    if (is_new) {
      nodes_.push_back({tiling});
    } else if (nodes_[at].is_done || std::tie(nodes_[at].elements, nodes_[at].collectives) <=
                                         std::tie(elements, collectives)) {
      return;
    }
    Node& node = nodes_[at];
    node.kind = kind;
    node.parent = current_;
    node.elements = elements;
    node.collectives = collectives;
    queue_.emplace(elements, collectives, at);
  }

  // As the goal goes on; where its next axis is in use, by another one of that size for now.
  void offer_slices(const Tiling& tiling) {
    for (size_t d = 0; d < whole_.size(); ++d) {
      const Axes& now = tiling.dims[d];
      const Axes& goal = to_.dims[d];
      const auto append = [&](const Axes& more) {
        if (!is_nested(d, now, more)) return;
        Tiling next = tiling;
        next.dims[d] = joined(now, more);
        offer(next, StepKind::kSlice);
      };
      if (now.size() >= goal.size()) continue;
      const int wanted = goal[now.size()];
      if (tiling.uses(wanted)) {
        for (int axis : pool_) {
          if (!tiling.uses(axis) && mesh_.size(axis) == mesh_.size(wanted)) append({axis});
        }
        continue;
      }
      append({wanted});
      if (!now.empty()) continue;
      // Uneven blocks may have to be made at once.
      for (size_t end = 2; end <= goal.size() && !tiling.uses(goal[end - 1]); ++end) {
        append(cut_out(goal, 0, end));
      }
    }
  }

  void offer_sums(const Tiling& tiling) {
    const auto is_summed = [&](int axis) {
      return contains(tiling.partial, axis) && contains(summed_, axis);
    };
    if (std::none_of(summed_.begin(), summed_.end(), is_summed)) return;
    Tiling all = tiling;
    all.partial = to_.partial;
    offer(all, StepKind::kAllReduce);
    for (size_t d = 0; d < whole_.size(); ++d) {
      const Axes& now = tiling.dims[d];
      const Axes& goal = to_.dims[d];
      Axes more;
      const bool is_on_the_way = begins_with(goal, now);
      for (size_t i = is_on_the_way ? now.size() : 0; i < goal.size(); ++i) {
        if (is_summed(goal[i])) {
          more.push_back(goal[i]);
        } else if (is_on_the_way) {
          break;
        }
      }
      if (more.empty() || !is_nested(d, now, more)) continue;
      Tiling next = tiling;
      next.dims[d] = joined(now, more);
      std::erase_if(next.partial, [&](int axis) { return contains(more, axis); });
      offer(next, StepKind::kReduceScatter);
    }
  }

  // Into dimensions that are the beginning of the goal, or the goal and more; those whose parts do
  // not allow it stay.
  void offer_permutations(const Tiling& tiling) {
    Tiling next = tiling;
    Axes taken = tiling.partial;
    std::vector<std::pair<size_t, int64_t>> open;  // dimensions to be filled up, by so many parts
    for (size_t d = 0; d < whole_.size(); ++d) {
      const int64_t parts = mesh_.parts(tiling.dims[d]);
      const Axes& goal = to_.dims[d];
      size_t end = 0;
      while (end < goal.size() && mesh_.parts(cut_out(goal, 0, end)) < parts) ++end;
      const Axes beginning = cut_out(goal, 0, end);
      if (const int64_t reached = mesh_.parts(beginning); reached == parts) {
        next.dims[d] = beginning;
      } else if (end == goal.size() && parts % reached == 0) {
        next.dims[d] = goal;
        open.emplace_back(d, parts / reached);
      }
      for (int axis : next.dims[d]) {
        if (contains(taken, axis)) return;
        taken.push_back(axis);
      }
    }
    size_t tried = 0;
    const std::function<void(size_t, int64_t)> fill = [&](size_t i, int64_t rest) {
      if (tried >= kMaxPermutations || followed_ > kMaxFollowed) return;
      if (i == open.size()) {
        ++tried;
        followed_ += mesh_.partitions();
        if (!(next == tiling)) offer(next, StepKind::kPermute);
        return;
      }
      const size_t d = open[i].first;
      if (rest == 1) {
        fill(i + 1, i + 1 < open.size() ? open[i + 1].second : 1);
        return;
      }
      // Those that are there already first: what stays is not sent.
      Axes candidates = tiling.dims[d];
      for (int axis : pool_) {
        if (!contains(candidates, axis)) candidates.push_back(axis);
      }
      for (int axis : candidates) {
        if (contains(taken, axis) || rest % mesh_.size(axis) != 0) continue;
        taken.push_back(axis);
        next.dims[d].push_back(axis);
        fill(i, rest / mesh_.size(axis));
        next.dims[d].pop_back();
        taken.pop_back();
      }
    };
    fill(0, open.empty() ? 1 : open[0].second);
  }

  void offer_exchanges(const Tiling& tiling) {
    for (size_t i = 0; i < whole_.size(); ++i) {
      const Axes& giver = tiling.dims[i];
      for (size_t kept = 0; kept < giver.size(); ++kept) {
        const Axes rest = cut_out(giver, 0, kept);
        const Axes given = cut_out(giver, kept, giver.size());
        if (!is_nested(i, rest, given)) continue;
        for (size_t j = 0; j < whole_.size(); ++j) {
          if (i == j) continue;
          const Axes& taker = tiling.dims[j];
          const Axes& goal = to_.dims[j];
          Axes order = given;
          if (begins_with(goal, taker) && goal.size() >= taker.size() + given.size()) {
            const Axes wanted = cut_out(goal, taker.size(), taker.size() + given.size());
            if (std::is_permutation(wanted.begin(), wanted.end(), given.begin())) order = wanted;
          }
          if (!is_nested(j, taker, order)) continue;
          Tiling next = tiling;
          next.dims[i] = rest;
          next.dims[j] = joined(taker, order);
          offer(next, StepKind::kExchange);
        }
      }
    }
  }

  void offer_gathers(const Tiling& tiling) {
    for (size_t d = 0; d < whole_.size(); ++d) {
      const Axes& now = tiling.dims[d];
      for (size_t kept = 0; kept < now.size(); ++kept) {
        Tiling next = tiling;
        next.dims[d] = cut_out(now, 0, kept);
        if (!is_nested(d, next.dims[d], cut_out(now, kept, now.size()))) continue;
        offer(next, StepKind::kGather);
      }
    }
  }

  const PrimeMesh& mesh_;
  const Tiling& from_;
  const Tiling& to_;
  const Dims& whole_;
  Axes pool_;    // of dimensions of either
  Axes summed_;  // of the sum, not partial any more at the end
  double bound_ = std::numeric_limits<double>::infinity();
  size_t current_ = 0;
  size_t visited_ = 0;
  int64_t followed_ = 0;
  std::deque<Node> nodes_;
  std::unordered_map<std::string, size_t> numbers_;
  using Entry = std::tuple<double, int, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// Where axes that cut a dimension are to be those of a sum, nothing has to move: `from` with these
// at the ends of dimensions as axes of the sum.
Tiling placed(const PrimeMesh& mesh, const Tiling& from, const Tiling& to, const Dims& whole) {
  Tiling found = from;
  for (size_t d = 0; d < whole.size(); ++d) {
    const Axes& now = from.dims[d];
    size_t kept = now.size();
    while (kept > 0 && contains(to.partial, now[kept - 1])) --kept;
    const Axes rest = cut_out(now, 0, kept);
    const Axes given = cut_out(now, kept, now.size());
    const int64_t block = sharding::block_of(whole[d], mesh.parts(rest), 0).size;
    if (given.empty() || (kept > 0 && block % mesh.parts(given) != 0)) continue;
    found.dims[d] = rest;
    found.partial = joined(std::move(found.partial), given);
  }
  std::sort(found.partial.begin(), found.partial.end());
  return found;
}

}  // namespace

std::vector<int64_t> permutation_sources(const PrimeMesh& mesh, const Tiling& from,
                                         const Tiling& to) {
  const auto axes_of = [&](const Tiling& tiling) {
    Axes axes;
    for (const Axes& one : tiling.dims) axes = joined(std::move(axes), one);
    return axes;
  };
  const std::vector<int64_t> held = mesh.part_of_partitions(axes_of(from));
  const std::vector<int64_t> wanted = mesh.part_of_partitions(axes_of(to));
  // Partitions that differ in other axes travel together: addends of one sum, which elsewhere may
  // have others, and arrays of a manual computation, which are others there.
  Axes others;
  const Axes pool = joined(axes_of(from), axes_of(to));
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    if (!contains(pool, axis)) others.push_back(axis);
  }
  const std::vector<std::vector<int64_t>> rows = mesh.groups(others);
  const auto of = [&](const std::vector<int64_t>& numbers, size_t row) {
    return numbers[static_cast<size_t>(rows[row].front())];
  };
  std::unordered_map<int64_t, std::deque<size_t>> spare;  // rows that want other blocks
  for (size_t row = 0; row < rows.size(); ++row) {
    if (of(held, row) != of(wanted, row)) spare[of(held, row)].push_back(row);
  }
  std::vector<int64_t> sources(static_cast<size_t>(mesh.partitions()));
  for (size_t row = 0; row < rows.size(); ++row) {
    size_t source = row;
    if (of(held, row) != of(wanted, row)) {
      std::deque<size_t>& candidates = spare[of(wanted, row)];
      source = candidates.front();
      candidates.pop_front();
    }
    for (size_t i = 0; i < rows[row].size(); ++i) {
      sources[static_cast<size_t>(rows[row][i])] = rows[source][i];
    }
  }
  return sources;
}

const ReshardPlan& ReshardPlanner::plan(const Tiling& from, const Tiling& to, const Dims& whole) {
  const auto [place, is_new] = plans_.try_emplace(key_of(from, to, whole));
  if (!is_new) return place->second;
  const Tiling begin = placed(*mesh_, from, to, whole);
  // Other sums become partial at the very end.
  Tiling summed = to;
  std::erase_if(summed.partial, [&](int axis) { return !contains(begin.partial, axis); });
  place->second = ReshardSearch(*mesh_, begin, summed, whole).run();
  if (!(begin == from)) {
    std::vector<ReshardStep>& steps = place->second.steps;
    steps.insert(steps.begin(), {StepKind::kPlace, begin});
  }
  if (!(summed == to)) place->second.steps.push_back({StepKind::kKeepFirst, to});
  return place->second;
}

}  // namespace hekla::spmd
