// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/persistent_loops.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <random>
#include <thread>

#include "backends/compiler/kernel/builder.h"
#include "backends/cpu/execute/kernel_requests.h"
#include "backends/cpu/execute/program.h"
#include "backends/cpu/execute/testing/plans.h"

namespace hekla::cpu::persistent {
namespace {

using kernel::Builder;
using kernel::Kernel;
using kernel::ScalarType;
using kernel::Value;
using plan::BranchStep;
using plan::CopyStep;
using plan::KernelStep;
using plan::LaunchPlan;
using plan::PersistentLoops;
using plan::RepeatStep;
using plan::Slice;
using plan::WhileStep;
using Space = plan::Slice::Space;
using testing::arena;
using testing::compiler;
using testing::count_up;

constexpr ScalarType kInt = ScalarType::kI32;
constexpr ScalarType kFloat = ScalarType::kF32;

// out = a / 2 + b, of so many floats; b's index walks backwards where `reverses`.
Kernel combine(int64_t count, bool reverses) {
  Builder b(1, kInt);
  b.set_grid_size(0, count);
  const Value at = b.grid_index(0);
  const Value other = reverses ? b.sub(b.index(count - 1), at) : at;
  const Value half = b.mul(b.load(kFloat, {0, 4}, at), b.real(kFloat, 0.5));
  b.store({2, 4}, at, b.add(half, b.load(kFloat, {1, 4}, other)));
  Kernel kernel;
  kernel.name = "combine";
  kernel.grid = {count};
  kernel.operands = {{count * 4, true, false, true},
                     {count * 4, true, false, !reverses},
                     {count * 4, false, true}};
  kernel.body = b.finish();
  return kernel;
}

// Loops of random steps: kernels, copies, loops and branches on slices that overlap at will, but
// for what a step itself reads and writes.
class RandomPlan {
 public:
  explicit RandomPlan(uint64_t seed) : random_(seed) {
    for (const int64_t count : kCounts) {
      plan_.kernels.push_back(combine(count, false));
      plan_.kernels.push_back(combine(count, true));
    }
    for (const int32_t limit : kLimits) plan_.kernels.push_back(count_up(limit));
    plan_.input_bytes = {kBytes, kBytes};
    plan_.output_bytes = {kBytes, kBytes};
    plan_.output_input = {draw(2) == 0 ? 1 : -1, -1};
    plan_.arenas = {kArenaBytes};
    plan_.steps = {{CopyStep{{Space::kInput, 0, 0, kBytes}, arena(0, kBytes)}},
                   {CopyStep{{Space::kInput, 1, 0, kBytes}, {Space::kOutput, 0, 0, kBytes}}},
                   {CopyStep{{Space::kInput, 1, 0, kBytes}, {Space::kOutput, 1, 0, kBytes}}}};
    // Counters begin at numbers that are there; what they count to is above all of them.
    plan_.steps.push_back(loop(3));
  }
  LaunchPlan take() { return std::move(plan_); }

  static constexpr int64_t kBytes = 512;
  // Behind what floats lie in: a counter and a predicate for each loop.
  static constexpr int64_t kArenaBytes = kBytes + 1024;

 private:
  static constexpr int64_t kCounts[] = {1, 2, 3, 5, 8, 13, 16, 40, 100};
  static constexpr int32_t kLimits[] = {3, 4, 9};

  int64_t draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  plan::Step loop(int depth) {
    if (draw(2) == 0) return {RepeatStep{1 + draw(4), body(depth)}};
    WhileStep loop;
    const Slice counter = arena(kBytes + 8 * loops_, 4),
                predicate = arena(kBytes + 8 * loops_ + 4, 1);
    ++loops_;
    loop.condition = {{KernelStep{count_kernel(), {counter, counter, predicate}}}};
    loop.predicate = predicate;
    loop.body = body(depth);
    return {loop};
  }

  int32_t count_kernel() {
    return static_cast<int32_t>(std::size(kCounts) * 2) +
           static_cast<int32_t>(draw(std::size(kLimits)));
  }

  plan::Steps body(int depth) {
    plan::Steps steps;
    const int64_t count = 1 + draw(5);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t kind = draw(10);
      if (kind < 6) {
        steps.push_back(kernel());
      } else if (kind < 8) {
        steps.push_back(copy());
      } else if (depth > 0 && kind == 8) {
        steps.push_back(loop(depth - 1));
      } else if (depth > 0) {
        steps.push_back(branch(depth - 1));
      }
    }
    return steps;
  }

  plan::Step branch(int depth) {
    BranchStep step;
    // The numbers of counters, most of them out of range, or floats by their bits.
    step.selector = arena(kBytes + 8 * draw(loops_ + 1), draw(2) == 0 ? 1 : 4);
    const int64_t count = step.selector.bytes == 1 ? 2 : 1 + draw(4);
    for (int64_t i = 0; i < count; ++i) step.branches.push_back(body(depth));
    return {step};
  }

  Slice place(int64_t bytes, bool is_written) {
    const int64_t offset = 4 * draw((kBytes - bytes) / 4 + 1);
    switch (draw(is_written ? 4 : 6)) {
      case 0:
        return {Space::kOutput, 0, offset, bytes};
      case 1:
        return {Space::kOutput, 1, offset, bytes};
      case 4:
        return {Space::kInput, 0, offset, bytes};
      default:
        return arena(offset, bytes);
    }
  }

  // Nobody reads input 1, whose memory output 0 may have.
  bool overlap(const Slice& a, const Slice& b) const {
    return a.space == b.space && a.index == b.index && a.offset < b.offset + b.bytes &&
           b.offset < a.offset + a.bytes;
  }

  plan::Step kernel() {
    const int64_t size = draw(std::size(kCounts));
    const int64_t bytes = kCounts[size] * 4;
    const bool reverses = draw(2) == 0;
    const Slice out = place(bytes, true);
    const auto read = [&](bool may_be_out) {
      if (may_be_out && draw(3) == 0) return out;
      Slice in = place(bytes, false);
      while (overlap(in, out)) in = place(bytes, false);
      return in;
    };
    const Slice a = read(true), b = read(!reverses);
    return {KernelStep{static_cast<int32_t>(size * 2 + (reverses ? 1 : 0)), {a, b, out}}};
  }

  plan::Step copy() {
    const int64_t bytes = 4 * (1 + draw(kBytes / 8));
    const Slice to = place(bytes, true);
    Slice from = place(bytes, false);
    while (overlap(from, to)) from = place(bytes, false);
    return {CopyStep{from, to}};
  }

  std::mt19937_64 random_;
  LaunchPlan plan_;
  int64_t loops_ = 0;
};

std::shared_ptr<const Program> compile(const std::shared_ptr<const LaunchPlan>& plan,
                                       PersistentLoops loops, uint64_t seed = 0) {
  const auto program = Program::create(plan, compiler(), seed, loops);
  if (!program.ok()) {
    ADD_FAILURE() << program.status().to_string();
    return nullptr;
  }
  return *program;
}

// The bytes of both outputs and of the arena.
std::vector<uint32_t> run(const Program& program, bool donates) {
  constexpr size_t kWords = RandomPlan::kBytes / 4;
  std::vector<uint32_t> x(kWords), y(kWords), first(kWords), second(kWords);
  std::mt19937 random(7);
  for (std::vector<uint32_t>* values : {&x, &y}) {
    for (uint32_t& value : *values)
      value = std::bit_cast<uint32_t>(static_cast<float>(random() % 64));
  }
  std::vector<uint32_t> temporary(RandomPlan::kArenaBytes / 4);
  const auto at = [](std::vector<uint32_t>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const Status status =
      program.run({{at(x), at(y)}, {donates ? at(y) : at(first), at(second)}, {at(temporary)}}, {});
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<uint32_t> all = donates ? y : first;
  all.insert(all.end(), second.begin(), second.end());
  all.insert(all.end(), temporary.begin(), temporary.end());
  return all;
}

TEST(PersistentLoops, DoWhatTheirStepsDo) {
  int64_t found = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const auto plan = std::make_shared<const LaunchPlan>(RandomPlan(seed).take());
    const auto apart = compile(plan, PersistentLoops::kNone);
    const auto whole = compile(plan, PersistentLoops::kWherePossible, seed % 3);
    ASSERT_TRUE(apart != nullptr && whole != nullptr) << seed;
    EXPECT_TRUE(apart->loops().loops.empty());
    found += static_cast<int64_t>(whole->loops().loops.size());
    for (const bool donates : {false, true}) {
      if (donates && plan->output_input[0] < 0) continue;
      ASSERT_EQ(run(*apart, donates), run(*whole, donates)) << seed << "\n" << to_string(*plan);
    }
  }
  EXPECT_EQ(found, 150);
}

// Counts until the counter, which wraps around, is below a limit that nothing is below.
LaunchPlan endless() {
  LaunchPlan plan;
  Builder b(0, kInt);
  b.store({1, 4}, b.index(0), b.add(b.load(kInt, {0, 4}, b.index(0)), b.index(1)));
  b.store({2, 1}, b.index(0), b.index(1));
  Kernel kernel;
  kernel.name = "count";
  kernel.operands = {{4, true, false, true}, {4, false, true}, {1, false, true}};
  kernel.body = b.finish();
  plan.kernels = {kernel};
  plan.arenas = {64};
  WhileStep loop;
  loop.condition = {{KernelStep{0, {arena(0, 4), arena(0, 4), arena(4, 1)}}}};
  loop.predicate = arena(4, 1);
  plan.steps = {{RepeatStep{1000, {{loop}}}}};
  return plan;
}

TEST(PersistentLoops, EndWhenTheLaunchIsCalledOff) {
  const auto program =
      compile(std::make_shared<const LaunchPlan>(endless()), PersistentLoops::kWherePossible);
  ASSERT_NE(program, nullptr);
  ASSERT_EQ(program->loops().loops.size(), 1u);
  std::atomic<bool> cancelled = false;
  RunOptions options;
  options.cancelled = &cancelled;
  std::vector<std::byte> temporary(64);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancelled = true;
  });
  const Status status = program->run({{}, {}, {temporary.data()}}, options);
  other.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
}

std::string refusal(const LaunchPlan& plan, PersistentLoops wanted = PersistentLoops::kWherePays) {
  const RequestList list = list_requests(plan, 256, wanted);
  return list.loops.decisions.at(0).implementations.at(0).refusal;
}

// A loop of one kernel on so many floats.
LaunchPlan loop_of(int64_t count, int64_t trips) {
  LaunchPlan plan;
  plan.kernels = {combine(count, false)};
  plan.arenas = {count * 12};
  const KernelStep step{
      0, {arena(0, count * 4), arena(count * 4, count * 4), arena(count * 8, count * 4)}};
  plan.steps = {{RepeatStep{trips, {{step}}}}};
  return plan;
}

TEST(PersistentLoops, AreThoseWhoseIterationsTakeNoTime) {
  EXPECT_EQ(refusal(loop_of(16, 1000)), "");
  EXPECT_EQ(refusal(loop_of(16, 10)), "10 steps in all iterations, fewer than 50");
  EXPECT_EQ(refusal(loop_of(16, 10), PersistentLoops::kWherePossible), "");
  EXPECT_EQ(refusal(loop_of(16, 1000), PersistentLoops::kNone), "not asked for");
  EXPECT_NE(refusal(loop_of(10'000, 1000)).find("ns a step, more than 100"), std::string::npos);
  LaunchPlan copies = loop_of(16, 1000);
  copies.arenas = {300'000};
  auto& body = std::get<RepeatStep>(copies.steps[0].what).body;
  body.push_back({CopyStep{arena(0, 100'000), arena(100'000, 100'000)}});
  EXPECT_EQ(refusal(copies), "a copy of 100000 bytes, more than 65536");
  EXPECT_EQ(refusal(copies, PersistentLoops::kWherePossible),
            "a copy of 100000 bytes, more than 65536");
}

TEST(PersistentLoops, KernelsThatRunInThemAloneHaveNoCodeOfTheirOwn) {
  LaunchPlan plan = loop_of(16, 1000);
  EXPECT_FALSE(list_requests(plan, 256).requests[0].needs_code);
  EXPECT_TRUE(list_requests(plan, 256, PersistentLoops::kNone).requests[0].needs_code);
  plan.steps.push_back(std::get<RepeatStep>(plan.steps[0].what).body[0]);
  EXPECT_TRUE(list_requests(plan, 256).requests[0].needs_code);
}

}  // namespace
}  // namespace hekla::cpu::persistent
