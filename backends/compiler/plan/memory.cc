// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/memory.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

using Space = Slice::Space;

struct Life {
  int64_t first = 0;
  int64_t last = 0;
  int64_t bytes = 0;
  std::vector<int64_t> times;  // of every use
};

class Lives {
 public:
  explicit Lives(const LaunchPlan& plan) : plan_(plan) {
    walk(plan.steps);
    // A loop that names a buffer which lives outside of it as well keeps it all through; inner
    // loops first, so that what they add reaches the outer ones.
    for (const auto& [begin, end] : loops_) {
      for (auto& [buffer, life] : lives_) {
        const bool inside =
            std::any_of(life.times.begin(), life.times.end(),
                        [&begin = begin, &end = end](int64_t t) { return t >= begin && t <= end; });
        if (inside && (life.first < begin || life.last > end)) {
          life.first = std::min(life.first, begin);
          life.last = std::max(life.last, end);
          life.times.push_back(begin);
          life.times.push_back(end);
        }
      }
    }
  }
  std::unordered_map<int32_t, Life>& lives() { return lives_; }

 private:
  void use(const Slice& slice) {
    if (slice.space != Space::kArena) return;
    auto [it, is_new] = lives_.emplace(slice.index, Life{now_, now_, slice.bytes, {}});
    Life& life = it->second;
    life.first = std::min(life.first, now_);
    life.last = std::max(life.last, now_);
    life.bytes = std::max(life.bytes, slice.offset + slice.bytes);
    life.times.push_back(now_);
  }

  void walk(const Steps& steps) {
    for (const Step& step : steps) {
      const int64_t begin = ++now_;
      const auto* loop = std::get_if<WhileStep>(&step.what);
      if (loop != nullptr) {
        // The predicate is made by the condition.
        walk(loop->condition);
        ++now_;
        use(loop->predicate);
        walk(loop->body);
      } else {
        for_each_slice(step, plan_, [&](const Slice& slice, const Use&) { use(slice); });
        for_each_list(step, [&](const Steps& inner) { walk(inner); });
      }
      if (loop != nullptr || std::holds_alternative<RepeatStep>(step.what)) {
        loops_.emplace_back(begin, ++now_);
      }
    }
  }

  const LaunchPlan& plan_;
  std::unordered_map<int32_t, Life> lives_;
  std::vector<std::pair<int64_t, int64_t>> loops_;  // inner before outer
  int64_t now_ = 0;
};

class CopyElision {
 public:
  explicit CopyElision(LaunchPlan& plan) : plan_(plan) {
    for_each_slice_within(plan.steps, plan,
                          [&](const Slice& s, const Use&) { ++uses_[buffer_of(s)]; });
  }
  void run() { run(plan_.steps); }

 private:
  void run(Steps& steps) {
    for (Step& step : steps) {
      for_each_list(step, [&](Steps& inner) { run(inner); });
    }
    for (size_t i = 0; i < steps.size();) {
      const auto* copy = std::get_if<CopyStep>(&steps[i].what);
      if (copy != nullptr && try_rename(steps, i, copy->from, copy->to)) {
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

  // Makes `from` in the place of `to` when all that names `from` are steps of this list, and `to`
  // is neither read nor written from the first of them to the copy, but by that first step itself
  // when it may update in place.
  bool try_rename(Steps& steps, size_t at, const Slice from, const Slice to) {
    if (from.space != Space::kArena || from.bytes != to.bytes || from.offset != 0 ||
        to.offset != 0) {
      return false;
    }
    const Buffer source = buffer_of(from);
    int64_t here = 0;
    size_t first = steps.size();
    for (size_t i = 0; i < steps.size(); ++i) {
      for_each_slice_within(steps[i], plan_, [&](const Slice& s, const Use&) {
        if (buffer_of(s) != source) return;
        ++here;
        first = std::min(first, i);
      });
    }
    if (here != uses_[source] || first >= at || !makes(steps[first], source)) return false;
    for (size_t i = first; i < at; ++i) {
      if (!names(steps[i], buffer_of(to))) continue;
      const bool is_update = i == first || is_done_of(steps[i], steps[first]);
      if (!is_update || !updates(steps[first], to)) return false;
    }
    // After the copy both hold the same until somebody writes one of them.
    for (size_t i = at + 1; i < steps.size(); ++i) {
      if (names(steps[i], source) &&
          (writes(steps[i], source) || writes_before(steps, at, i, to))) {
        return false;
      }
    }
    uses_[source] = 0;
    uses_[buffer_of(to)] += here - 2;
    for_each_slice_within(steps, plan_, [&](Slice& s, const Use&) {
      if (buffer_of(s) == source) s = to;
    });
    return true;
  }

  bool names(const Step& step, const Buffer& buffer) const {
    bool found = false;
    for_each_slice_within(step, plan_,
                          [&](const Slice& s, const Use&) { found |= buffer_of(s) == buffer; });
    return found;
  }
  bool writes(const Step& step, const Buffer& buffer) const {
    bool found = false;
    for_each_slice_within(step, plan_, [&](const Slice& s, const Use& use) {
      found |= use.is_written && buffer_of(s) == buffer;
    });
    return found;
  }
  bool writes_before(const Steps& steps, size_t after, size_t end, const Slice& slice) const {
    for (size_t i = after + 1; i <= end; ++i) {
      if (writes(steps[i], buffer_of(slice))) return true;
    }
    return false;
  }
  // Whether the step writes all of the buffer and reads nothing of it.
  bool makes(const Step& step, const Buffer& buffer) const {
    bool writes = false;
    bool reads = false;
    for_each_slice(step, plan_, [&](const Slice& s, const Use& use) {
      if (buffer_of(s) != buffer) return;
      writes |= use.is_written;
      reads |= use.is_read;
    });
    return writes && !reads;
  }
  // Whether the step is where the collective that `first` starts ends.
  static bool is_done_of(const Step& step, const Step& first) {
    const auto* start = std::get_if<StartStep>(&first.what);
    const auto* done = std::get_if<DoneStep>(&step.what);
    return start != nullptr && done != nullptr && done->number == start->number;
  }
  // A shader of the user's, which becomes a kernel, reads while it writes.
  static bool is_shader(const HostStep& step) {
    return step.name == "stablehlo.custom_call @hekla.vulkan_kernel";
  }
  // Whether the step may write its result to `to`, which it reads.
  bool updates(const Step& step, const Slice& to) const {
    if (const auto* host = std::get_if<HostStep>(&step.what)) {
      return !is_shader(*host) && !writes(step, buffer_of(to));
    }
    if (const auto* start = std::get_if<StartStep>(&step.what)) {
      const auto is_apart_or_same = [&](const Slice& slice) {
        return buffer_of(slice) != buffer_of(to) || slice == to;
      };
      return std::ranges::none_of(
                 start->outputs,
                 [&](const Slice& slice) { return buffer_of(slice) == buffer_of(to); }) &&
             std::ranges::all_of(start->inputs, is_apart_or_same);
    }
    const auto* run = std::get_if<KernelStep>(&step.what);
    if (run == nullptr) return false;
    const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(run->kernel)];
    for (size_t i = 0; i < run->operands.size(); ++i) {
      if (buffer_of(run->operands[i]) != buffer_of(to)) continue;
      if (!(run->operands[i] == to) || !kernel.operands[i].is_pointwise) return false;
    }
    return true;
  }

  LaunchPlan& plan_;
  std::unordered_map<Buffer, int64_t, BufferHash> uses_;
};

}  // namespace

void elide_copies(LaunchPlan& plan) { CopyElision(plan).run(); }

void assign_arena(LaunchPlan& plan, bool reuse) {
  Lives all(plan);
  struct Placed {
    int32_t buffer;
    Life life;
    int64_t offset = 0;
  };
  std::vector<Placed> buffers;
  for (auto& [buffer, life] : all.lives()) buffers.push_back({buffer, std::move(life)});
  std::sort(buffers.begin(), buffers.end(), [](const Placed& a, const Placed& b) {
    return a.life.bytes != b.life.bytes ? a.life.bytes > b.life.bytes : a.buffer < b.buffer;
  });
  std::unordered_set<int32_t> scratch;
  for_each_step(plan.steps, [&](const Step& step) {
    const auto* rows = std::get_if<RowsStep>(&step.what);
    if (rows == nullptr) return;
    for (const Slice& slice : rows->scratch) scratch.insert(slice.index);
  });
  // Scratch last, behind all others: it is memory only where rows do not go a few at a time.
  const auto first_scratch =
      std::stable_partition(buffers.begin(), buffers.end(),
                            [&](const Placed& buffer) { return !scratch.contains(buffer.buffer); });
  std::unordered_map<int32_t, int64_t> offsets;
  std::vector<const Placed*> placed;  // by offset
  int64_t begin = 0;
  for (auto it = buffers.begin(); it != buffers.end(); ++it) {
    Placed& buffer = *it;
    if (it == first_scratch) {
      begin = plan.arena_bytes;
      placed.clear();
    }
    const int64_t size =
        (buffer.life.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    int64_t offset = begin;
    for (const Placed* other : placed) {
      const bool together = !reuse || (other->life.first <= buffer.life.last &&
                                       buffer.life.first <= other->life.last);
      const int64_t end = other->offset + (other->life.bytes + kArenaAlignment - 1) /
                                              kArenaAlignment * kArenaAlignment;
      if (together && other->offset < offset + size && offset < end) offset = end;
    }
    buffer.offset = offset;
    offsets[buffer.buffer] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + size);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &buffer,
                         [](const Placed* a, const Placed* b) { return a->offset < b->offset; }),
        &buffer);
  }
  if (first_scratch != buffers.end()) plan.row_scratch_bytes = plan.arena_bytes - begin;
  for_each_slice_within(plan.steps, plan, [&](Slice& slice, const Use&) {
    if (slice.space != Space::kArena) return;
    slice.offset += offsets[slice.index];
    slice.index = 0;
  });
}

}  // namespace hekla::plan
