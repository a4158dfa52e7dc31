// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/memory.h"

#include <algorithm>
#include <limits>
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
      if (buffer_of(s) != source) return;
      s.space = to.space;
      s.index = to.index;
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

namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Places buffers in arenas, one after the other.
class Arenas {
 public:
  struct Buffer {
    int32_t number = 0;
    Life life;
    size_t arena = 0;
    int64_t offset = 0;
  };

  Arenas(bool reuse, int64_t max_bytes) : reuse_(reuse) {
    if (max_bytes > 0) max_bytes_ = max_bytes / kArenaAlignment * kArenaAlignment;
  }

  // `buffer` stays where it is in memory. No larger ones come after it, but behind a fence.
  void place(Buffer& buffer) {
    const int64_t size = aligned(buffer.life.bytes);
    size_t best = arenas_.size();
    int64_t least_growth = size;
    for (size_t i = first_; i < arenas_.size(); ++i) {
      const int64_t offset = lowest_free(arenas_[i], buffer, size);
      if (size > arenas_[i].capacity - offset) continue;
      const int64_t growth = std::max<int64_t>(offset + size - arenas_[i].bytes, 0);
      if (growth > least_growth || (growth == least_growth && best < arenas_.size())) continue;
      best = i;
      least_growth = growth;
      buffer.offset = offset;
    }
    if (best == arenas_.size()) {
      arenas_.push_back({.capacity = std::max(max_bytes_, size)});
      buffer.offset = 0;
    }
    buffer.arena = best;
    Arena& arena = arenas_[best];
    arena.bytes = std::max(arena.bytes, buffer.offset + size);
    arena.placed.insert(
        std::upper_bound(arena.placed.begin(), arena.placed.end(), &buffer,
                         [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
        &buffer);
  }

  // What is placed from now on lies behind all that is there, in the last arena or in later ones.
  void fence() {
    if (arenas_.empty()) return;
    first_ = arenas_.size() - 1;
    arenas_[first_].begin = arenas_[first_].bytes;
    arenas_[first_].placed.clear();
  }

  std::vector<int64_t> bytes() const {
    std::vector<int64_t> all;
    for (const Arena& arena : arenas_) all.push_back(arena.bytes);
    return all;
  }

 private:
  struct Arena {
    int64_t capacity = 0;
    int64_t bytes = 0;
    int64_t begin = 0;
    std::vector<const Buffer*> placed;  // by offset
  };

  int64_t lowest_free(const Arena& arena, const Buffer& buffer, int64_t size) const {
    int64_t offset = arena.begin;
    for (const Buffer* other : arena.placed) {
      const bool together = !reuse_ || (other->life.first <= buffer.life.last &&
                                        buffer.life.first <= other->life.last);
      const int64_t end = other->offset + aligned(other->life.bytes);
      // As a difference: sums may be more than can be counted.
      if (together && other->offset - offset < size && offset < end) offset = end;
    }
    return offset;
  }

  const bool reuse_;
  int64_t max_bytes_ = std::numeric_limits<int64_t>::max();
  std::vector<Arena> arenas_;
  size_t first_ = 0;
};

Status check_total(const std::vector<int64_t>& arenas) {
  int64_t total = 0;
  for (const int64_t bytes : arenas) {
    if (!__builtin_add_overflow(total, bytes, &total)) continue;
    return resource_exhausted(
        "temporary memory of a launch: more than 2^63 bytes are wanted, more than any device has: "
        "split the arrays along a dimension, over several devices or in a loop over their parts");
  }
  return ok_status();
}

}  // namespace

Status assign_arenas(LaunchPlan& plan, bool reuse, int64_t max_arena_bytes) {
  Lives all(plan);
  std::vector<Arenas::Buffer> buffers;
  for (auto& [buffer, life] : all.lives()) buffers.push_back({buffer, std::move(life)});
  std::sort(buffers.begin(), buffers.end(), [](const auto& a, const auto& b) {
    return a.life.bytes != b.life.bytes ? a.life.bytes > b.life.bytes : a.number < b.number;
  });
  std::unordered_set<int32_t> scratch;
  for_each_step(plan.steps, [&](const Step& step) {
    const auto* rows = std::get_if<RowsStep>(&step.what);
    if (rows == nullptr) return;
    for (const Slice& slice : rows->scratch) scratch.insert(slice.index);
  });
  // Scratch last, behind all others: it is memory only where rows do not go a few at a time.
  const auto first_scratch = std::stable_partition(
      buffers.begin(), buffers.end(),
      [&](const Arenas::Buffer& buffer) { return !scratch.contains(buffer.number); });
  Arenas arenas(reuse, max_arena_bytes);
  for (auto it = buffers.begin(); it != first_scratch; ++it) arenas.place(*it);
  plan.arenas = arenas.bytes();
  HEKLA_RETURN_IF_ERROR(check_total(plan.arenas));
  const int64_t without_scratch = plan.arena_bytes();
  arenas.fence();
  for (auto it = first_scratch; it != buffers.end(); ++it) arenas.place(*it);
  plan.arenas = arenas.bytes();
  HEKLA_RETURN_IF_ERROR(check_total(plan.arenas));
  plan.row_scratch_bytes = plan.arena_bytes() - without_scratch;
  std::unordered_map<int32_t, const Arenas::Buffer*> by_number;
  for (const Arenas::Buffer& buffer : buffers) by_number[buffer.number] = &buffer;
  for_each_slice_within(plan.steps, plan, [&](Slice& slice, const Use&) {
    if (slice.space != Space::kArena) return;
    const Arenas::Buffer& buffer = *by_number[slice.index];
    slice.offset += buffer.offset;
    slice.index = static_cast<int32_t>(buffer.arena);
  });
  return ok_status();
}

}  // namespace hekla::plan
