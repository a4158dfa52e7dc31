// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "backends/vulkan/launch/testing/launch_fixture.h"

namespace hekla::vulkan {
namespace {

using plan::BranchStep;
using plan::CopyStep;
using plan::RepeatStep;
using plan::Slice;
using plan::WhileStep;
using testing::arena;
using testing::input;
using testing::output;
using testing::ProgramBuilder;
using testing::Words;

class LaunchLoopsTest : public testing::LaunchFixture {};

// A loop that the data ends: the counter goes down by one each iteration; its low byte is the
// condition.
TEST_P(LaunchLoopsTest, LoopsTurnOnTheDeviceUntilTheDataEndsThem) {
  open();
  if (!device_) return;
  ProgramBuilder p({4, 4}, {4, 4}, 512);
  WhileStep loop;
  loop.predicate = output(0, 1);
  // By way of the arena, so that iterations wait for each other.
  loop.body = {p.multiply_add(output(0, 4), input(1, 4), arena(0, 4), 1),
               {CopyStep{arena(0, 4), output(0, 4)}},
               p.multiply_add(output(1, 4), output(1, 4), arena(256, 4), 2),
               {CopyStep{arena(256, 4), output(1, 4)}}};
  p.plan.steps = {{CopyStep{input(0, 4), output(0, 4)}},
                  p.fill(output(1, 4), 1),
                  {loop},
                  p.multiply_add(output(1, 4), output(0, 4), output(1, 4), 5)};
  const auto loaded = load(p);
  const AllocationRef minus_one = upload({~0U});
  // 51 iterations of four dispatches and a gate are a piece. A launch begins with as many pieces as
  // the one before needed, and goes on with as many again.
  const std::pair<uint32_t, int> runs[] = {{0, 1},   {1, 1},   {2, 1},   {50, 1},  {51, 1},
                                           {52, 2},  {102, 1}, {153, 2}, {153, 1}, {250, 2},
                                           {250, 1}, {3, 1},   {60, 2}};
  for (const auto& [iterations, submissions] : runs) {
    const int64_t before = device_->counters().submissions;
    Launched l = start(*loaded, {ready_input(upload({iterations})), ready_input(minus_one)});
    ASSERT_TRUE(l.done->await().ok());
    uint32_t power = 1;
    for (uint32_t i = 0; i < iterations; ++i) power *= 3;
    EXPECT_EQ(download(l.outputs.memory[0])[0], 0u) << iterations;
    EXPECT_EQ(download(l.outputs.memory[1])[0], 5 * power) << iterations;
    EXPECT_EQ(device_->counters().submissions - before, submissions) << iterations;
  }
  EXPECT_EQ(device_->counters().host_steps, 0);
}

ProgramBuilder endless_program() {
  ProgramBuilder p({4, 4}, {4});
  WhileStep loop;
  loop.predicate = output(0, 1);
  loop.body = {p.multiply_add(output(0, 4), input(1, 4), output(0, 4), 1)};
  p.plan.steps = {{CopyStep{input(0, 4), output(0, 4)}}, {loop}};
  return p;
}

TEST_P(LaunchLoopsTest, LoopsThatDoNotEndAreEndedByTheTimeout) {
  DeviceOptions options;
  options.launch_timeout_seconds = 3;
  open({}, options);
  if (!device_) return;
  const auto loaded = load(endless_program());
  const AllocationRef zero = upload({0}), one = upload({1}), minus_one = upload({~0U});
  Launched endless = start(*loaded, {ready_input(one), ready_input(zero)});
  ASSERT_EQ(endless.done->await().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(endless.done->status().message().find("vulkan_launch_timeout"), std::string::npos);
  // Nothing is left on the device, which goes on.
  Launched next = start(*loaded, {ready_input(one), ready_input(minus_one)});
  ASSERT_TRUE(next.done->await().ok()) << next.done->status().to_string();
  EXPECT_EQ(download(next.outputs.memory[0])[0], 0u);
}

// Drivers of devices that are not there accept all work and do none of it.
TEST_P(LaunchLoopsTest, ADriverThatRunsNothingIsNoEndlessLoop) {
  open();
  if (!device_) return;
  const auto loaded = load(endless_program());
  const AllocationRef one = upload({1}), minus_one = upload({~0U});
  static PFN_vkQueueSubmit submit = nullptr;
  DeviceFunctions& functions = device_->device().mutable_functions();
  submit = functions.QueueSubmit;
  functions.QueueSubmit = [](VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                             VkFence fence) {
    std::vector<VkSubmitInfo> empty(infos, infos + count);
    for (VkSubmitInfo& info : empty) info.commandBufferCount = 0;
    return submit(queue, count, empty.data(), fence);
  };
  Launched l = start(*loaded, {ready_input(one), ready_input(minus_one)});
  EXPECT_EQ(l.done->await().code(), StatusCode::kInternal);
  EXPECT_NE(l.done->status().message().find("does not run what it is given"), std::string::npos);
  functions.QueueSubmit = submit;
}

TEST_P(LaunchLoopsTest, CountedLoopsStayInOneSubmissionUnlessTheyAreHuge) {
  open();
  if (!device_) return;
  ProgramOptions options;
  const auto run = [&](int64_t iterations, int64_t inner) {
    ProgramBuilder p({4}, {4});
    const plan::Step step = p.multiply_add(output(0, 4), input(0, 4), output(0, 4), 3);
    RepeatStep loop{iterations, {step}};
    if (inner != 1) loop.body = {{RepeatStep{inner, {step}}}};
    p.plan.steps = {p.fill(output(0, 4), 1), {loop}, {CopyStep{arena(0, 0), arena(0, 0)}}};
    const auto loaded = load(p, options);
    const int64_t before = device_->counters().submissions;
    Launched l = start(*loaded, {ready_input(upload({1}))});
    EXPECT_TRUE(l.done->await().ok());
    uint32_t wanted = 1;
    for (int64_t i = 0; i < iterations * inner; ++i) wanted = 3 * wanted + 1;
    EXPECT_EQ(download(l.outputs.memory[0])[0], wanted) << iterations << " of " << inner;
    return device_->counters().submissions - before;
  };
  EXPECT_EQ(run(0, 1), 1);
  EXPECT_EQ(run(1000, 1), 1);
  EXPECT_EQ(run(2500, 1), 1);  // one recording, twice, and the rest
  EXPECT_EQ(run(7, 30), 1);    // all unrolled
  EXPECT_EQ(run(3, 1100), 1);  // gates
  options.max_dispatches_per_submission = 1000;
  EXPECT_EQ(run(1500, 1), 4);  // seven pieces of 64 iterations at a time
}

// Programs of nested loops and branches, decided by values that they compute.
class RandomControl {
 public:
  // `host`: some steps are of the host.
  RandomControl(uint32_t seed, bool host) : random_(seed), host_(host), p_({4}, {kBytes}) {
    p_.plan.steps = {p_.fill(output(0, kBytes), seed), {RepeatStep{1, steps(0)}}};
  }

  static constexpr int64_t kWords = 8;  // of output 0, each in 256 bytes
  static constexpr int64_t kBytes = 256 * (kWords + 128);

  const ProgramBuilder& program() const { return p_; }

  // What the program makes of `words`.
  void interpret(Words& words) const { interpret(p_.plan.steps, words); }

 private:
  static Slice word(int64_t i) { return output(0, 4, 256 * i); }
  static Slice minus_one() { return input(0, 4); }
  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  Slice any() { return word(pick(kWords)); }
  Slice fresh() { return word(kWords + fresh_++ % 128); }

  plan::Steps steps(int depth) {
    plan::Steps out;
    const uint32_t count = pick(depth == 0 ? 6 : 4);
    for (uint32_t i = 0; i < count; ++i) add(depth, out);
    return out;
  }

  // b + b of the host.
  static plan::Step twice(const Slice& from, const Slice& to) {
    return ProgramBuilder::host("twice", R"(
        func.func @main(%x: tensor<ui32>) -> tensor<ui32> {
          %0 = stablehlo.add %x, %x : tensor<ui32>
          return %0 : tensor<ui32>
        })",
                                {from}, {to});
  }

  void add(int depth, plan::Steps& out) {
    const uint32_t kind = depth >= 3 ? pick(3) : pick(7);
    if (kind <= 1) {
      // The operands are apart, or the target is the first of them.
      const uint32_t to = pick(kWords), from = pick(kWords);
      const bool on_host = host_ && pick(3) == 0;
      if (on_host && pick(2) == 0) {
        out.push_back(twice(word(from), word(to)));
      } else if (from != to) {
        out.push_back(p_.multiply_add(word(to), word(from), word(to), 1 + pick(3), on_host));
      }
    } else if (kind == 2) {
      out.push_back(p_.fill(any(), pick(5)));
    } else if (kind == 3) {
      RepeatStep loop{static_cast<int64_t>(pick(6)), steps(depth + 1)};
      if (pick(4) == 0 && !host_) loop.count *= 40;
      out.push_back({std::move(loop)});
    } else if (kind == 4) {
      // Counts down in a word of its own; the condition may look at a copy.
      const Slice count = fresh();
      WhileStep loop{{}, count, steps(depth + 1)};
      if (pick(2) == 0) {
        loop.predicate = fresh();
        loop.condition = {{CopyStep{count, loop.predicate}}};
      }
      loop.predicate.bytes = 1;
      loop.body.push_back(p_.multiply_add(count, minus_one(), count, 1));
      const bool is_long = !host_ && depth == 0 && pick(3) == 0;
      out.push_back(p_.fill(count, is_long ? 70 + pick(60) : pick(5)));
      out.push_back({std::move(loop)});
    } else {
      BranchStep branch{any(), {}};
      const uint32_t branches = kind == 5 ? 2 : 1 + pick(4);
      if (kind == 5) branch.selector.bytes = 1;
      for (uint32_t i = 0; i < branches; ++i) branch.branches.push_back(steps(depth + 1));
      out.push_back({std::move(branch)});
    }
  }

  void interpret(const plan::Steps& steps, Words& words) const {
    const auto read = [&](const Slice& s) -> uint32_t {
      if (s.space == Slice::Space::kInput) return ~0U;
      if (s.space == Slice::Space::kOutput) return words[static_cast<size_t>(s.offset / 4)];
      return p_.plan.constants[static_cast<size_t>(s.index)].as<uint32_t>()[0];
    };
    const auto write = [&](const Slice& s, uint32_t value) {
      for (int64_t i = 0; i < s.bytes; i += 4) {
        words[static_cast<size_t>((s.offset + i) / 4)] = value;
      }
    };
    for (const plan::Step& step : steps) {
      if (const auto* run = std::get_if<plan::KernelStep>(&step.what)) {
        const auto& constant = p_.plan.constants[static_cast<size_t>(run->operands[3].index)];
        const uint32_t factor = constant.as<uint32_t>()[1];
        write(run->operands[2], factor * read(run->operands[0]) + read(run->operands[1]));
      } else if (const auto* host = std::get_if<plan::HostStep>(&step.what)) {
        write(host->outputs[0], 2 * read(host->inputs[0]));
      } else if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
        write(copy->to, read(copy->from));
      } else if (const auto* loop = std::get_if<RepeatStep>(&step.what)) {
        for (int64_t i = 0; i < loop->count; ++i) interpret(loop->body, words);
      } else if (const auto* until = std::get_if<WhileStep>(&step.what)) {
        for (interpret(until->condition, words); (read(until->predicate) & 0xff) != 0;
             interpret(until->condition, words)) {
          interpret(until->body, words);
        }
      } else {
        const auto& branch = std::get<BranchStep>(step.what);
        const uint32_t value = read(branch.selector);
        const auto last = static_cast<uint32_t>(branch.branches.size() - 1);
        const bool is_predicate = branch.selector.bytes == 1;
        interpret(
            branch.branches[is_predicate ? ((value & 0xff) != 0 ? 0 : 1) : std::min(value, last)],
            words);
      }
    }
  }

  std::mt19937 random_;
  const bool host_;
  ProgramBuilder p_;
  int64_t fresh_ = 0;
};

TEST_P(LaunchLoopsTest, AnyNestOfLoopsAndBranchesRunsOnTheDevice) {
  open();
  if (!device_) return;
  const AllocationRef minus_one = upload({~0U});
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const RandomControl control(seed, false);
    const auto loaded = load(control.program());
    Words wanted(RandomControl::kBytes / 4);
    control.interpret(wanted);
    const int64_t before = device_->counters().submissions;
    for (int i = 0; i < 2; ++i) {
      Launched l = start(*loaded, {ready_input(minus_one)});
      ASSERT_TRUE(l.done->await().ok());
      ASSERT_EQ(download(l.outputs.memory[0]), wanted) << "seed " << seed;
    }
    EXPECT_LE(device_->counters().submissions - before, 16) << "seed " << seed;
  }
  EXPECT_EQ(device_->counters().host_steps, 0);
}

// Around steps of the host the host decides, and the device within what needs it not.
TEST_P(LaunchLoopsTest, AnyNestWithStepsOfTheHostIsDecidedThere) {
  open();
  if (!device_) return;
  const AllocationRef minus_one = upload({~0U});
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomControl control(seed, true);
    const auto loaded = load(control.program());
    Words wanted(RandomControl::kBytes / 4);
    control.interpret(wanted);
    for (int i = 0; i < 2; ++i) {
      Launched l = start(*loaded, {ready_input(minus_one)});
      ASSERT_TRUE(l.done->await().ok()) << l.done->status().to_string();
      ASSERT_EQ(download(l.outputs.memory[0]), wanted) << "seed " << seed;
    }
  }
  EXPECT_GT(device_->counters().host_steps, 100);
}

INSTANTIATE_TEST_SUITE_P(, LaunchLoopsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
