// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/rotate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

using Space = Slice::Space;

// Unrolled iterations, and steps of them all.
constexpr int64_t kMostUnroll = 4;
constexpr int64_t kMostSteps = 256;

using Renaming = std::unordered_map<Buffer, Buffer, BufferHash>;

Buffer renamed(const Renaming& names, const Buffer& buffer) {
  const auto it = names.find(buffer);
  return it == names.end() ? buffer : it->second;
}

// What the copies at the end of a body do, taken together.
struct Tail {
  size_t begin = 0;                  // of the copies, in the body
  Renaming source;                   // carried buffer: the buffer whose value it gets
  std::vector<CopyStep> from_fixed;  // from buffers that keep their values
};

class Rotation {
 public:
  explicit Rotation(LaunchPlan& plan) : plan_(plan) {}

  void run() {
    count();
    run(plan_.steps);
  }

 private:
  void count() {
    uses_.clear();
    for_each_slice_within(plan_.steps, plan_, [&](const Slice& s, const Use&) {
      ++uses_[buffer_of(s)];
      int64_t& bytes = bytes_[buffer_of(s)];
      bytes = std::max(bytes, s.offset + s.bytes);
      if (s.space == Space::kArena) next_buffer_ = std::max(next_buffer_, s.index + 1);
    });
  }

  void run(Steps& steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      for_each_list(steps[i], [&](Steps& inner) { run(inner); });
      if (auto* loop = std::get_if<RepeatStep>(&steps[i].what)) {
        Steps before = unroll(*loop);
        const auto at = steps.begin() + static_cast<std::ptrdiff_t>(i);
        i += before.size();
        steps.insert(at, std::make_move_iterator(before.begin()),
                     std::make_move_iterator(before.end()));
        count();
      }
    }
  }

  // Iterations that are to run before the loop.
  Steps unroll(RepeatStep& loop) {
    if (loop.count < 2) return {};
    std::unordered_map<Buffer, int64_t, BufferHash> inside;
    for_each_slice_within(loop.body, plan_,
                          [&](const Slice& s, const Use&) { ++inside[buffer_of(s)]; });
    const auto is_local = [&](const Buffer& b) {
      const auto it = inside.find(b);
      return b.first == Space::kArena && it != inside.end() && it->second == uses_[b];
    };
    const std::optional<Tail> tail = read_tail(loop.body, is_local);
    if (!tail || tail->source.empty()) return {};
    const std::optional<Renaming> step = next_buffers(*tail);
    if (!step) return {};
    const int64_t times = order_of(*step);
    const int64_t rest = loop.count % times;
    if (times > kMostUnroll || times > loop.count ||
        (times + rest) * count_steps(loop.body) > kMostSteps) {
      return {};
    }

    Steps before;
    for (int64_t i = 0; i < rest; ++i) append(loop.body, fresh_locals(inside, is_local), before);
    Steps once(loop.body.begin(), loop.body.begin() + static_cast<std::ptrdiff_t>(tail->begin));
    Renaming names;  // where each buffer's value is in this iteration
    for (const auto& [buffer, next] : *step) names[buffer] = buffer;
    Steps body;
    for (int64_t i = 0; i < times; ++i) {
      Renaming all = fresh_locals(inside, is_local);
      for (const auto& [buffer, current] : names) all[buffer] = current;
      append(once, all, body);
      Renaming following;
      for (const auto& [buffer, next] : *step) following[buffer] = names[next];
      names = std::move(following);
      for (CopyStep copy : tail->from_fixed) {
        rename(copy.to, names);
        body.push_back({copy});
      }
    }
    loop.body = std::move(body);
    loop.count /= times;
    return before;
  }

  bool is_whole(const Slice& slice) const {
    return slice.offset == 0 && slice.bytes == bytes_.at(buffer_of(slice));
  }

  // nullopt: one value for several carried buffers.
  template <typename IsLocal>
  std::optional<Tail> read_tail(const Steps& body, const IsLocal& is_local) const {
    Tail tail;
    tail.begin = body.size();
    while (tail.begin > 0) {
      const auto* copy = std::get_if<CopyStep>(&body[tail.begin - 1].what);
      if (copy == nullptr || !is_whole(copy->from) || !is_whole(copy->to)) break;
      --tail.begin;
    }
    Renaming content;
    std::unordered_map<Buffer, int64_t, BufferHash> bytes;
    for (size_t i = tail.begin; i < body.size(); ++i) {
      const auto& copy = std::get<CopyStep>(body[i].what);
      const Buffer to = buffer_of(copy.to);
      content[to] = renamed(content, buffer_of(copy.from));
      bytes[to] = copy.to.bytes;
    }
    std::vector<Buffer> sources;
    for (const auto& [to, from] : content) {
      if (is_local(to) || from == to) continue;
      if (!is_local(from) && !content.contains(from)) {
        tail.from_fixed.push_back(
            {{from.first, from.second, 0, bytes[to]}, {to.first, to.second, 0, bytes[to]}});
        continue;
      }
      tail.source[to] = from;
      sources.push_back(from);
    }
    std::sort(sources.begin(), sources.end());
    if (std::adjacent_find(sources.begin(), sources.end()) != sources.end()) return std::nullopt;
    std::sort(
        tail.from_fixed.begin(), tail.from_fixed.end(),
        [](const CopyStep& a, const CopyStep& b) { return buffer_of(a.to) < buffer_of(b.to); });
    return tail;
  }

  // Where the next iteration finds the value of each buffer that takes part: a carried one where
  // its source was, and one that nobody's value comes from in the buffer that got free for it.
  std::optional<Renaming> next_buffers(const Tail& tail) const {
    Renaming next = tail.source;
    Renaming target;
    for (const auto& [to, from] : tail.source) target[from] = to;
    for (const auto& [from, to] : target) {
      if (next.contains(from)) continue;
      Buffer last = to;
      while (target.contains(last)) last = target[last];
      next[from] = last;
    }
    // They stand for each other: all of one size.
    for (const auto& [buffer, following] : next) {
      if (bytes_.at(buffer) != bytes_.at(following)) return std::nullopt;
    }
    return next;
  }

  static int64_t order_of(const Renaming& permutation) {
    int64_t order = 1;
    for (const auto& [start, next] : permutation) {
      int64_t length = 1;
      for (Buffer at = next; at != start; at = permutation.at(at)) ++length;
      order = std::lcm(order, length);
      if (order > kMostUnroll) break;
    }
    return order;
  }

  // Buffers that do not outlive an iteration get memory of their own in each.
  template <typename IsLocal>
  Renaming fresh_locals(const std::unordered_map<Buffer, int64_t, BufferHash>& inside,
                        const IsLocal& is_local) {
    std::vector<Buffer> locals;
    for (const auto& [buffer, count] : inside) {
      if (is_local(buffer)) locals.push_back(buffer);
    }
    std::sort(locals.begin(), locals.end());
    Renaming names;
    for (const Buffer& buffer : locals) names[buffer] = {Space::kArena, next_buffer_++};
    return names;
  }

  static void rename(Slice& slice, const Renaming& names) {
    const Buffer buffer = renamed(names, buffer_of(slice));
    slice.space = buffer.first;
    slice.index = buffer.second;
  }

  void append(const Steps& steps, const Renaming& names, Steps& to) {
    Steps copies = steps;
    for_each_slice_within(copies, plan_, [&](Slice& s, const Use&) { rename(s, names); });
    for (Step& step : copies) to.push_back(std::move(step));
  }

  LaunchPlan& plan_;
  std::unordered_map<Buffer, int64_t, BufferHash> uses_;
  std::unordered_map<Buffer, int64_t, BufferHash> bytes_;  // as far as anyone names it
  int32_t next_buffer_ = 0;
};

}  // namespace

void rotate_loops(LaunchPlan& plan) { Rotation(plan).run(); }

}  // namespace hekla::plan
