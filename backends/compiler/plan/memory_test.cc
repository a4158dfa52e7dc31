// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "backends/compiler/plan/check.h"
#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

using Space = Slice::Space;

Slice buffer(int32_t number, int64_t bytes) { return {Space::kArena, number, 0, bytes}; }
Slice input(int64_t bytes) { return {Space::kInput, 0, 0, bytes}; }
Slice output(int32_t number, int64_t bytes) { return {Space::kOutput, number, 0, bytes}; }

// A value of so many bytes that is alive from one step to another, both inclusive.
struct Value {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

// Copies that make and use these values.
LaunchPlan plan_of(const std::vector<Value>& values) {
  LaunchPlan plan;
  plan.input_bytes = {int64_t{1} << 40};
  int end = 0;
  for (const Value& value : values) end = std::max(end, value.last);
  for (int at = 0; at <= end; ++at) {
    for (size_t v = 0; v < values.size(); ++v) {
      const Slice slice = buffer(static_cast<int32_t>(v), values[v].bytes);
      if (values[v].first == at) plan.steps.push_back({CopyStep{input(values[v].bytes), slice}});
    }
    for (size_t v = 0; v < values.size(); ++v) {
      if (values[v].last != at) continue;
      const auto number = static_cast<int32_t>(plan.output_bytes.size());
      const int64_t bytes = values[v].bytes;
      plan.output_bytes.push_back(bytes);
      plan.steps.push_back(
          {CopyStep{buffer(static_cast<int32_t>(v), bytes), output(number, bytes)}});
    }
  }
  plan.output_input.assign(plan.output_bytes.size(), -1);
  return plan;
}

using Sizes = std::vector<int64_t>;

Sizes arenas_of(const std::vector<Value>& values, int64_t max_arena_bytes, bool reuse = true) {
  LaunchPlan plan = plan_of(values);
  EXPECT_TRUE(assign_arenas(plan, reuse, max_arena_bytes).ok());
  const Status sound = check(plan);
  EXPECT_TRUE(sound.ok()) << sound.to_string() << to_string(plan);
  return plan.arenas;
}

TEST(Arenas, AreOneWhereAllFits) {
  const std::vector<Value> values = {{640, 0, 1}, {320, 0, 2}, {64, 1, 3}, {640, 2, 3}};
  EXPECT_EQ(arenas_of(values, 0), (Sizes{1024}));
  EXPECT_EQ(arenas_of(values, 1024), (Sizes{1024}));
  EXPECT_EQ(arenas_of({}, 1024), Sizes{});
}

TEST(Arenas, AreSeveralWhereValuesLiveTogetherThatDoNotFitIntoOne) {
  const std::vector<Value> values = {{640, 0, 3}, {640, 0, 3}, {640, 0, 3}, {128, 0, 3}};
  EXPECT_EQ(arenas_of(values, 0), (Sizes{2048}));
  EXPECT_EQ(arenas_of(values, 1400), (Sizes{1280, 768}));
  // No more than there are values alive at once, however many there are in all.
  EXPECT_EQ(arenas_of({{640, 0, 1}, {640, 1, 2}, {640, 2, 3}, {640, 3, 4}, {640, 4, 5}}, 640),
            (Sizes{640, 640}));
}

// Without room in the first arena a value goes where another one is dead, not to new memory.
TEST(Arenas, GrowLeast) {
  const std::vector<Value> values = {{640, 0, 9}, {640, 0, 3}, {512, 0, 9}, {320, 5, 9}};
  EXPECT_EQ(arenas_of(values, 1280), (Sizes{1280, 512}));
}

TEST(Arenas, AValueLargerThanTheLimitHasAnArenaThatOthersShare) {
  const std::vector<Value> values = {{4096, 0, 1}, {512, 2, 3}, {2048, 2, 3}, {600, 0, 3}};
  // 600 bytes take 640, at the side of the largest.
  EXPECT_EQ(arenas_of(values, 1024), (Sizes{4096, 640}));
  EXPECT_EQ(arenas_of(values, 1), (Sizes{4096, 640}));
}

TEST(Arenas, WithoutReuseEveryValueHasBytesOfItsOwn) {
  const std::vector<Value> values = {{640, 0, 1}, {640, 2, 3}, {640, 4, 5}, {0, 4, 5}};
  EXPECT_EQ(arenas_of(values, 0, false), (Sizes{1920}));
  EXPECT_EQ(arenas_of(values, 1280, false), (Sizes{1280, 640}));
}

TEST(Arenas, MoreThanCanBeCountedIsRefused) {
  constexpr int64_t kHuge = int64_t{1} << 61;
  LaunchPlan one_by_one = plan_of({{kHuge, 0, 0}, {kHuge, 1, 1}, {kHuge, 2, 2}, {kHuge, 3, 3}});
  EXPECT_TRUE(assign_arenas(one_by_one).ok());
  EXPECT_EQ(one_by_one.arenas, Sizes{kHuge});
  LaunchPlan together = plan_of({{kHuge, 0, 3}, {kHuge, 0, 3}, {kHuge, 0, 3}, {kHuge, 0, 3}});
  EXPECT_EQ(assign_arenas(together).code(), StatusCode::kResourceExhausted);
}

TEST(Arenas, TheScratchOfRowsIsTheLastBytes) {
  for (const int64_t limit : {0, 2048, 1024}) {
    LaunchPlan plan = plan_of({{1024, 0, 3}, {640, 0, 3}});
    RowsStep rows{4, {}, 0, {buffer(2, 1024), buffer(3, 256)}};
    plan.steps.push_back({rows});
    ASSERT_TRUE(assign_arenas(plan, true, limit).ok());
    EXPECT_EQ(plan.arena_bytes(), 1664 + 1280);
    EXPECT_EQ(plan.row_scratch_bytes, 1280);
    const Sizes left = plan.arenas_without_scratch();
    EXPECT_EQ(std::accumulate(left.begin(), left.end(), int64_t{0}), 1664);
    // Nothing else is behind what is left.
    for_each_slice_within(plan.steps, plan, [&](const Slice& slice, const Use&) {
      if (slice.space != Space::kArena || slice.bytes == 1024 || slice.bytes == 256) return;
      EXPECT_LE(slice.offset + slice.bytes, left[static_cast<size_t>(slice.index)]) << limit;
    });
    for (const Slice& slice : std::get<RowsStep>(plan.steps.back().what).scratch) {
      EXPECT_GE(slice.offset, left[static_cast<size_t>(slice.index)]) << to_string(plan);
    }
  }
}

// ---- what programs compute does not depend on where their values are

// Steps that copy among buffers, in loops too; each reads only what was written.
class RandomPlan {
 public:
  explicit RandomPlan(uint32_t seed) : random_(seed) {
    plan_.input_bytes = {kMost};
    add_steps(plan_.steps, 12, 0);
    for (const auto& [number, bytes] : written_) {
      const auto o = static_cast<int32_t>(plan_.output_bytes.size());
      if (below(2) == 0) continue;
      plan_.output_bytes.push_back(bytes);
      plan_.steps.push_back({CopyStep{buffer(number, bytes), output(o, bytes)}});
    }
    plan_.output_input.assign(plan_.output_bytes.size(), -1);
  }
  const LaunchPlan& plan() const { return plan_; }

  static constexpr int64_t kMost = 2000;

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  // A new buffer, or one that there is.
  void add_copy(Steps& steps) {
    const bool is_new = written_.empty() || below(3) > 0;
    int32_t to = next_;
    int64_t bytes = below(4) == 0 ? below(kMost + 1) : 64 * below(6);
    if (is_new) {
      ++next_;
    } else {
      auto it = written_.begin();
      std::advance(it, below(static_cast<int>(written_.size())));
      std::tie(to, bytes) = *it;
    }
    Slice from = input(bytes);
    from.offset = below(static_cast<int>(kMost - bytes) + 1);
    for (const auto& [number, size] : written_) {
      if (number != to && size >= bytes && below(2) == 0) from = buffer(number, bytes);
    }
    if (from.space == Space::kArena && below(2) == 0) {
      from.offset = below(static_cast<int>(written_[from.index] - bytes) + 1);
    }
    steps.push_back({CopyStep{from, buffer(to, bytes)}});
    written_[to] = bytes;
  }

  void add_steps(Steps& steps, int count, int depth) {
    for (int i = 0; i < count; ++i) {
      if (depth < 2 && below(5) == 0) {
        // What is written inside is there afterwards, as the body runs.
        RepeatStep loop{1 + below(3), {}};
        add_steps(loop.body, 4, depth + 1);
        steps.push_back({std::move(loop)});
      } else {
        add_copy(steps);
      }
    }
  }

  std::mt19937 random_;
  LaunchPlan plan_;
  std::map<int32_t, int64_t> written_;
  int32_t next_ = 0;
};

using Bytes = std::vector<std::byte>;

class Copies {
 public:
  explicit Copies(const LaunchPlan& plan) : plan_(plan) {
    for (const int64_t bytes : plan.output_bytes) outputs_.emplace_back(bytes);
    input_.resize(RandomPlan::kMost);
    for (size_t i = 0; i < input_.size(); ++i) input_[i] = std::byte(i * 37 + i / 256);
  }
  std::vector<Bytes> run() {
    run(plan_.steps);
    return outputs_;
  }

 private:
  // Before memory is assigned each index is a buffer; afterwards an arena.
  std::byte* at(const Slice& slice) {
    Bytes& memory = slice.space == Space::kInput    ? input_
                    : slice.space == Space::kOutput ? outputs_[static_cast<size_t>(slice.index)]
                                                    : arenas_[slice.index];
    const auto end = static_cast<size_t>(slice.offset + slice.bytes);
    if (memory.size() < end) memory.resize(end);
    return memory.data() + slice.offset;
  }
  void run(const Steps& steps) {
    for (const Step& step : steps) {
      if (const auto* loop = std::get_if<RepeatStep>(&step.what)) {
        for (int64_t i = 0; i < loop->count; ++i) run(loop->body);
        continue;
      }
      const auto& [from, to] = std::get<CopyStep>(step.what);
      at(from);
      std::byte* there = at(to);
      if (from.bytes > 0) std::memmove(there, at(from), static_cast<size_t>(from.bytes));
    }
  }

  const LaunchPlan& plan_;
  Bytes input_;
  std::vector<Bytes> outputs_;
  std::map<int32_t, Bytes> arenas_;
};

TEST(Arenas, HoldWhatSeparateBuffersHold) {
  constexpr int64_t kHuge = int64_t{1} << 50;
  size_t most = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const LaunchPlan apart = RandomPlan(seed).plan();
    const std::vector<Bytes> wanted = Copies(apart).run();
    LaunchPlan whole = apart;
    ASSERT_TRUE(assign_arenas(whole).ok());
    for (const int64_t limit : {int64_t{1}, int64_t{64}, int64_t{300}, int64_t{1000}, kHuge}) {
      LaunchPlan plan = apart;
      ASSERT_TRUE(assign_arenas(plan, true, limit).ok());
      const Status sound = check(plan);
      ASSERT_TRUE(sound.ok()) << seed << sound.to_string() << to_string(plan);
      ASSERT_EQ(Copies(plan).run(), wanted) << seed << " " << limit << to_string(plan);
      if (limit == kHuge) {
        ASSERT_EQ(to_string(plan), to_string(whole));
      }
      most = std::max(most, plan.arenas.size());
      // Each holds at most the limit, or one value.
      std::vector<int64_t> largest(plan.arenas.size());
      for_each_slice_within(plan.steps, plan, [&](const Slice& slice, const Use&) {
        if (slice.space != Space::kArena) return;
        int64_t& bytes = largest[static_cast<size_t>(slice.index)];
        bytes = std::max(bytes,
                         (slice.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
      });
      for (size_t i = 0; i < plan.arenas.size(); ++i) {
        ASSERT_LE(plan.arenas[i], std::max(limit, largest[i])) << seed << to_string(plan);
      }
    }
  }
  EXPECT_GE(most, 10u);
}

}  // namespace
}  // namespace hekla::plan
