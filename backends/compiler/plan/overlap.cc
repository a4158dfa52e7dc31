// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/overlap.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

// What a step and all inside of it do with a buffer.
struct BufferUse {
  bool is_read = false;
  bool is_written = false;
};
using BufferUses = std::unordered_map<Buffer, BufferUse, BufferHash>;

class Overlap {
 public:
  Overlap(LaunchPlan& plan, bool keeps_order) : plan_(plan), keeps_order_(keeps_order) {}

  void run(Steps& steps) const {
    for (Step& step : steps) {
      for_each_list(step, [&](Steps& inner) { run(inner); });
    }
    const bool has_any = std::any_of(steps.begin(), steps.end(), [](const Step& step) {
      return std::holds_alternative<StartStep>(step.what);
    });
    if (!has_any) return;
    std::vector<Entry> entries;
    for (Step& step : steps) {
      BufferUses uses = uses_of(step);
      entries.push_back({std::move(step), std::move(uses)});
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!std::holds_alternative<StartStep>(entries[i].step.what)) continue;
      size_t to = i;
      while (to > 0 && may_start_before(entries[to - 1], entries[i])) --to;
      // Behind those that begin at the same moment.
      while (to < i && std::holds_alternative<StartStep>(entries[to].step.what)) ++to;
      move(entries, i, to);
    }
    for (size_t i = entries.size(); i-- > 0;) {
      if (!std::holds_alternative<DoneStep>(entries[i].step.what)) continue;
      size_t to = i;
      while (to + 1 < entries.size() && are_independent(entries[i], entries[to + 1])) ++to;
      // Before those that are awaited at the same moment.
      while (to > i && std::holds_alternative<DoneStep>(entries[to].step.what)) --to;
      move(entries, i, to);
    }
    for (size_t i = 0; i < entries.size(); ++i) steps[i] = std::move(entries[i].step);
  }

 private:
  struct Entry {
    Step step;
    BufferUses uses;
  };

  BufferUses uses_of(const Step& step) const {
    BufferUses uses;
    for_each_slice_within(step, plan_, [&](const Slice& slice, const Use& use) {
      BufferUse& one = uses[buffer_of(slice)];
      one.is_read |= use.is_read;
      one.is_written |= use.is_written;
    });
    return uses;
  }

  static bool are_independent(const Entry& a, const Entry& b) {
    const auto& [fewer, more] =
        a.uses.size() < b.uses.size() ? std::tie(a.uses, b.uses) : std::tie(b.uses, a.uses);
    return std::all_of(fewer.begin(), fewer.end(), [&more = more](const auto& entry) {
      const auto other = more.find(entry.first);
      return other == more.end() || !(entry.second.is_written || other->second.is_written);
    });
  }

  // A start stays behind what may itself wait for peers or end the launch.
  bool may_start_before(const Entry& other, const Entry& start) const {
    const bool is_start = std::holds_alternative<StartStep>(other.step.what);
    if (holds<HostStep>(other.step) || (!is_start && holds<StartStep>(other.step))) return false;
    if (is_start && keeps_order_) return false;
    return are_independent(other, start);
  }

  static void move(std::vector<Entry>& entries, size_t from, size_t to) {
    const auto at = [&](size_t i) { return entries.begin() + static_cast<std::ptrdiff_t>(i); };
    if (to < from) std::rotate(at(to), at(from), at(from + 1));
    if (to > from) std::rotate(at(from), at(from + 1), at(to + 1));
  }

  const LaunchPlan& plan_;
  const bool keeps_order_;
};

}  // namespace

void number_collectives(LaunchPlan& plan) {
  int32_t next = 0;
  for_each_step(plan.steps, [&](Step& step) {
    if (auto* start = std::get_if<StartStep>(&step.what)) start->number = next;
    if (auto* done = std::get_if<DoneStep>(&step.what)) done->number = next++;
  });
}

void overlap_collectives(LaunchPlan& plan, bool keeps_order) {
  Overlap(plan, keeps_order).run(plan.steps);
}

}  // namespace hekla::plan
