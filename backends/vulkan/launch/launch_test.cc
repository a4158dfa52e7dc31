// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <random>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/launch/device_program.h"
#include "backends/vulkan/launch/testing/program_builder.h"

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
using Words = std::vector<uint32_t>;

// Both ways of memory: zero-copy and staged.
class LaunchTest : public ::testing::TestWithParam<bool> {
 protected:
  void open(LogicalDeviceOptions options = {}, DeviceOptions device_options = {}) {
    device_options.use_host_visible_memory = GetParam();
    HEKLA_VULKAN_TEST_DEVICE(device, device_options);
    std::shared_ptr<Pipelines> pipelines = *Pipelines::create(device, "");
    device_ = *LogicalDevice::create(device, pipelines, 0, options);
  }
  void TearDown() override {
    if (!device_) return;
    device_->close();
    EXPECT_TRUE(testing::no_validation_messages());
  }

  std::shared_ptr<DeviceProgram> load(const ProgramBuilder& p, ProgramOptions options = {}) {
    options.check_barriers = true;
    auto loaded = DeviceProgram::load(device_, p.build(), options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
  }
  AllocationRef upload(const Words& words) {
    AllocationRef memory = *device_->memory().allocate(static_cast<int64_t>(words.size() * 4));
    std::promise<void> done;
    device_->transfers().upload(words.data(), memory, 0, memory->bytes(), [&](const Status& s) {
      EXPECT_TRUE(s.ok());
      done.set_value();
    });
    done.get_future().wait();
    return memory;
  }
  Words download(const AllocationRef& memory) {
    Words words(static_cast<size_t>(memory->bytes() / 4));
    std::promise<void> done;
    device_->transfers().download(memory, 0, words.data(), memory->bytes(), [&](const Status& s) {
      EXPECT_TRUE(s.ok());
      done.set_value();
    });
    done.get_future().wait();
    return words;
  }
  static LaunchInput ready_input(AllocationRef memory, bool is_donated = false) {
    return {std::move(memory), Completion::ready(), Completion::ready(), is_donated};
  }
  struct Launched {
    Status status;
    LaunchOutputs outputs;
    CompletionRef done;
  };
  Launched start(DeviceProgram& p, std::vector<LaunchInput> inputs, int64_t replica = 0) {
    LaunchRequest request;
    request.replica = replica;
    request.inputs = std::move(inputs);
    request.done = Completion::make();
    CompletionRef done = request.done;
    Result<LaunchOutputs> outputs = p.launch(request);
    if (!outputs.ok()) return {outputs.status(), {}, nullptr};
    return {ok_status(), std::move(*outputs), std::move(done)};
  }

  std::shared_ptr<LogicalDevice> device_;
};

// llvmpipe (Mesa 22.3) frees the mutex of a fence that a thread of its own may still be in: a race
// within the driver, which thousands of timestamps show.
#if defined(__has_feature)
constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kHasThreadSanitizer = false;
#endif

Words ramp(size_t n, uint32_t start = 0) {
  Words words(n);
  for (size_t i = 0; i < n; ++i) words[i] = start + static_cast<uint32_t>(i);
  return words;
}

TEST_P(LaunchTest, AChainOfDispatchesIsOneSubmission) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 1000;
  ProgramBuilder p({kBytes, kBytes}, {kBytes}, 2 * 4096);
  p.plan.steps = {
      p.multiply_add(input(0, kBytes), input(1, kBytes), arena(0, kBytes), 2),
      p.multiply_add(arena(0, kBytes), p.constant(Words(1000, 5)), arena(4096, kBytes), 3),
      p.multiply_add(arena(4096, kBytes), arena(0, kBytes), output(0, kBytes), 7)};
  const auto loaded = load(p);
  const AllocationRef a = upload(ramp(1000));
  const AllocationRef b = upload(ramp(1000, 50));
  for (int i = 0; i < 3; ++i) {
    Launched l = start(*loaded, {ready_input(a), ready_input(b)});
    ASSERT_TRUE(l.status.ok());
    ASSERT_TRUE(l.done->await().ok());
    const Words c = download(l.outputs.memory[0]);
    for (uint32_t k = 0; k < 1000; ++k) {
      const uint32_t t = 2 * k + (50 + k);
      ASSERT_EQ(c[k], 7 * (3 * t + 5) + t);
    }
  }
  EXPECT_EQ(device_->counters().launches, 3);
  EXPECT_EQ(device_->counters().submissions, 3);
  EXPECT_EQ(device_->counters().dispatches, 9);
  EXPECT_EQ(device_->counters().barriers, 6);
  EXPECT_EQ(device_->counters().recordings, 1);
  EXPECT_EQ(device_->counters().host_steps, 0);
}

TEST_P(LaunchTest, LaunchesFollowEachOtherInFlight) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 256;
  ProgramBuilder p({kBytes}, {kBytes}, kBytes);
  p.plan.steps = {p.multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1),
                  p.multiply_add(arena(0, kBytes), input(0, kBytes), output(0, kBytes), 1)};
  ProgramOptions options;
  options.max_slots = 3;
  const auto loaded = load(p, options);
  // Each launch reads the one before; the caller waits for none.
  LaunchInput next = ready_input(upload(ramp(256)));
  std::vector<Launched> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(start(*loaded, {next}));
    ASSERT_TRUE(all.back().status.ok());
    next = {all.back().outputs.memory[0], all.back().outputs.submitted, all.back().done, false};
  }
  uint32_t factor = 1;
  for (Launched& l : all) {
    ASSERT_TRUE(l.done->await().ok());
    factor *= 3;
    const Words words = download(l.outputs.memory[0]);
    for (uint32_t k = 0; k < 256; ++k) ASSERT_EQ(words[k], factor * k);
  }
  EXPECT_EQ(device_->counters().submissions, 20);
  EXPECT_LE(device_->counters().recordings, 3);
}

TEST_P(LaunchTest, ADonatedInputBecomesTheOutputAndAnotherIsCopied) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 300;
  ProgramBuilder p({kBytes, 4}, {kBytes});
  p.plan.output_input = {0};
  // Adds in place to a part of the output, which begins as the input.
  p.plan.steps = {{CopyStep{input(0, kBytes), output(0, kBytes)}},
                  p.multiply_add(input(1, 4), output(0, 4, 400), output(0, 4, 400), 1)};
  const auto loaded = load(p);
  const AllocationRef one = upload({1});
  AllocationRef a = upload(ramp(300));
  const Allocation* memory = a.get();

  Launched kept = start(*loaded, {ready_input(a), ready_input(one)});
  ASSERT_TRUE(kept.done->await().ok());
  EXPECT_NE(kept.outputs.memory[0].get(), memory);
  EXPECT_EQ(download(a), ramp(300));
  Words wanted = ramp(300);
  wanted[100] += 1;
  EXPECT_EQ(download(kept.outputs.memory[0]), wanted);
  EXPECT_EQ(device_->counters().dispatches, 2);  // the copy and the sum

  LaunchInput next = ready_input(std::move(a), true);
  for (int i = 0; i < 10; ++i) {
    Launched l = start(*loaded, {next, ready_input(one)});
    ASSERT_TRUE(l.status.ok());
    EXPECT_EQ(l.outputs.memory[0].get(), memory);
    next = {l.outputs.memory[0], l.outputs.submitted, l.done, true};
  }
  ASSERT_TRUE(next.ready->await().ok());
  wanted[100] += 9;
  EXPECT_EQ(download(next.memory), wanted);
  EXPECT_EQ(device_->counters().dispatches, 12);  // no copy
}

TEST_P(LaunchTest, CopiesAreRightToTheByte) {
  open();
  if (!device_) return;
  std::mt19937 random(9);
  constexpr int64_t kBytes = 6000;
  for (int round = 0; round < 12; ++round) {
    Words content(kBytes / 4), source(kBytes / 4);
    for (uint32_t& word : content) word = static_cast<uint32_t>(random());
    for (uint32_t& word : source) word = static_cast<uint32_t>(random());
    std::vector<std::byte> wanted(kBytes), constant(kBytes);
    std::memcpy(wanted.data(), content.data(), kBytes);
    std::memcpy(constant.data(), source.data(), kBytes);
    ProgramBuilder p({kBytes}, {kBytes});
    p.plan.output_input = {0};
    p.plan.steps = {{CopyStep{input(0, kBytes), output(0, kBytes)}}};
    for (int i = 0; i < 12; ++i) {
      const auto bytes = static_cast<int64_t>(random() % (i % 3 == 0 ? 3000 : 12));
      const auto from = static_cast<int64_t>(random() % static_cast<uint32_t>(kBytes - bytes));
      const auto to = static_cast<int64_t>(random() % static_cast<uint32_t>(kBytes - bytes));
      if (random() % 3 == 0) {
        Slice part = p.constant(source);
        part.offset = from;
        part.bytes = bytes;
        p.plan.steps.push_back({CopyStep{part, output(0, bytes, to)}});
        std::copy_n(constant.begin() + from, bytes, wanted.begin() + to);
      } else if (std::max(from, to) >= std::min(from, to) + bytes) {
        p.plan.steps.push_back({CopyStep{output(0, bytes, from), output(0, bytes, to)}});
        std::copy_n(wanted.begin() + from, bytes, wanted.begin() + to);
      }
    }
    const auto loaded = load(p);
    Launched l = start(*loaded, {ready_input(upload(content), round % 2 == 0)});
    ASSERT_TRUE(l.done->await().ok());
    const Words got = download(l.outputs.memory[0]);
    ASSERT_EQ(std::memcmp(got.data(), wanted.data(), kBytes), 0) << round;
  }
}

TEST_P(LaunchTest, GridsBeyondTheLimitsAreFolded) {
  open();
  if (!device_) return;
  const std::vector<std::array<uint32_t, 3>> grids = {
      {5, 1, 1}, {1000, 1, 1}, {11, 1, 1}, {3, 25, 2}, {2, 3, 17}};
  for (const auto& grid : grids) {
    const int64_t groups = int64_t{grid[0]} * grid[1] * grid[2];
    ProgramBuilder p({}, {groups * 4});
    p.plan.steps = {p.fill(output(0, groups * 4), 0), p.count_groups(output(0, groups * 4), grid)};
    ProgramOptions options;
    options.max_group_count = {10, 12, 16};
    const auto loaded = load(p, options);
    Launched l = start(*loaded, {});
    ASSERT_TRUE(l.done->await().ok());
    EXPECT_EQ(download(l.outputs.memory[0]), Words(static_cast<size_t>(groups), 1));
  }
}

TEST_P(LaunchTest, HostStepsRunBetweenPartsOfTheDevice) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 100;
  ProgramBuilder p({kBytes}, {kBytes, 0}, 2 * kBytes);
  // Squares, and the number of the replica; an error for what begins with 2 * 4242.
  const plan::Step square =
      ProgramBuilder::host("square", R"(
      func.func @main(%x: tensor<100xui32>) -> (tensor<100xui32>, tensor<0xui32>) {
        %bad = stablehlo.constant dense<8484> : tensor<1xui32>
        %first = stablehlo.slice %x [0:1] : (tensor<100xui32>) -> tensor<1xui32>
        %differs = stablehlo.compare NE, %first, %bad : (tensor<1xui32>, tensor<1xui32>) -> tensor<1xi1>
        %is_right = stablehlo.reshape %differs : (tensor<1xi1>) -> tensor<i1>
        stablehlo.custom_call @shape_assertion(%is_right) {
            error_message = "no squares of 8484", has_side_effect = true} : (tensor<i1>) -> ()
        %replica = stablehlo.replica_id : tensor<ui32>
        %replicas = stablehlo.broadcast_in_dim %replica, dims = [] : (tensor<ui32>) -> tensor<100xui32>
        %square = stablehlo.multiply %x, %x : tensor<100xui32>
        %sum = stablehlo.add %square, %replicas : tensor<100xui32>
        %none = stablehlo.constant dense<> : tensor<0xui32>
        return %sum, %none : tensor<100xui32>, tensor<0xui32>
      })",
                           {arena(0, kBytes)}, {arena(kBytes, kBytes), output(1, 0)});
  p.plan.steps = {p.multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1), square,
                  p.multiply_add(arena(kBytes, kBytes), arena(0, kBytes), output(0, kBytes), 1)};
  const auto loaded = load(p);
  std::vector<Launched> all;
  for (uint32_t i = 0; i < 12; ++i) {
    all.push_back(start(*loaded, {ready_input(upload(ramp(100, i)))}, i));
    ASSERT_TRUE(all.back().status.ok());
  }
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(all[i].done->await().ok());
    const Words words = download(all[i].outputs.memory[0]);
    for (uint32_t k = 0; k < 100; ++k) ASSERT_EQ(words[k], 4 * (i + k) * (i + k) + 2 * (i + k) + i);
  }
  EXPECT_EQ(device_->counters().host_steps, 12);
  EXPECT_EQ(device_->counters().submissions, 24);

  // Its error is the launch's, and that of what reads it.
  Launched bad = start(*loaded, {ready_input(upload(ramp(100, 4242)))});
  Launched after =
      start(*loaded, {{bad.outputs.memory[0], bad.outputs.submitted, bad.done, false}});
  EXPECT_FALSE(bad.done->await().ok());
  EXPECT_NE(bad.done->status().message().find("host step square"), std::string::npos);
  EXPECT_NE(bad.done->status().message().find("no squares of 8484"), std::string::npos);
  EXPECT_EQ(after.done->await().code(), bad.done->status().code());
}

// A loop that the data ends: the counter goes down by one each iteration; its low byte is the
// condition.
TEST_P(LaunchTest, LoopsTurnOnTheDeviceUntilTheDataEndsThem) {
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

TEST_P(LaunchTest, LoopsThatDoNotEndAreEndedByTheTimeout) {
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
TEST_P(LaunchTest, ADriverThatRunsNothingIsNoEndlessLoop) {
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

TEST_P(LaunchTest, CountedLoopsStayInOneSubmissionUnlessTheyAreHuge) {
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

TEST_P(LaunchTest, AnyNestOfLoopsAndBranchesRunsOnTheDevice) {
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
TEST_P(LaunchTest, AnyNestWithStepsOfTheHostIsDecidedThere) {
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

TEST_P(LaunchTest, TheLastUserMayBeOneOfTheDevicesThreads) {
  open();
  if (!device_) return;
  std::promise<void> dropped;
  const std::weak_ptr<LogicalDevice> gone = device_;
  LogicalDevice* device = device_.get();
  device->worker().post([last = std::move(device_), &dropped]() mutable {
    last.reset();
    dropped.set_value();
  });
  dropped.get_future().wait();
  EXPECT_TRUE(gone.expired());
}

TEST_P(LaunchTest, ALaunchWaitsForItsInputsAndTakesTheirErrors) {
  open();
  if (!device_) return;
  ProgramBuilder p({40}, {40});
  p.plan.steps = {p.multiply_add(input(0, 40), input(0, 40), output(0, 40), 1)};
  const auto loaded = load(p);
  AllocationRef memory = upload(ramp(10));
  const CompletionRef late = Completion::make();
  Launched l = start(*loaded, {{memory, late, late, false}});
  // Others overtake it.
  ASSERT_TRUE(start(*loaded, {ready_input(memory)}).done->await().ok());
  EXPECT_FALSE(l.done->is_done());
  EXPECT_EQ(memory->unordered_readers, 1);
  late->complete(ok_status());
  ASSERT_TRUE(l.done->await().ok());
  EXPECT_EQ(download(l.outputs.memory[0])[3], 6u);
  EXPECT_EQ(memory->unordered_readers, 0);

  const CompletionRef bad = Completion::make();
  Launched f = start(*loaded, {{memory, bad, bad, false}});
  bad->complete(data_loss("the cat ate it"));
  EXPECT_EQ(f.done->await().code(), StatusCode::kDataLoss);
  EXPECT_EQ(f.outputs.submitted->await().code(), StatusCode::kDataLoss);

  // An input that never comes does not keep the device from closing.
  const CompletionRef never = Completion::make();
  Launched n = start(*loaded, {{memory, never, never, false}});
  device_->close();
  never->complete(ok_status());
  EXPECT_EQ(n.done->await().code(), StatusCode::kCancelled);
}

TEST_P(LaunchTest, OutOfMemoryIsTheLaunchsErrorAndWorkInFlightGivesItsMemory) {
  LogicalDeviceOptions options;
  options.memory_limit_bytes = 1 << 20;
  open(options);
  if (!device_) return;
  constexpr int64_t kBytes = 300 << 10;
  ProgramBuilder p({4}, {kBytes});
  p.plan.steps = {p.fill(output(0, 4), 1)};
  const auto loaded = load(p);
  const AllocationRef a = upload({1});
  // Outputs that nobody keeps: each launch in flight gives its memory to the next.
  for (int i = 0; i < 30; ++i) {
    Launched l = start(*loaded, {ready_input(a)});
    ASSERT_TRUE(l.status.ok()) << i << l.status.to_string();
  }
  std::vector<Launched> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(start(*loaded, {ready_input(a)}));
  const Launched full = start(*loaded, {ready_input(a)});
  EXPECT_EQ(full.status.code(), StatusCode::kResourceExhausted);
  kept.pop_back();
  EXPECT_TRUE(start(*loaded, {ready_input(a)}).status.ok());
}

TEST_P(LaunchTest, AProfileSaysWhatRan) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 500;
  ProgramBuilder p({kBytes}, {kBytes}, kBytes);
  p.plan.steps = {p.fill(arena(0, kBytes), 3),
                  p.multiply_add(input(0, kBytes), arena(0, kBytes), output(0, kBytes), 2),
                  p.multiply_add(input(0, kBytes), arena(0, kBytes), output(0, kBytes), 2)};
  ProgramOptions options;
  options.profile = true;
  const auto loaded = load(p, options);
  const AllocationRef a = upload(ramp(500));
  for (int launch = 0; launch < 2; ++launch) {
    ::testing::internal::CaptureStderr();
    const Launched l = start(*loaded, {ready_input(a)});
    const bool is_done = l.status.ok() && l.done->await().ok();
    const std::string text = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(is_done);
    EXPECT_NE(text.find("profile of test: "), std::string::npos) << text;
    EXPECT_NE(text.find("us on the device, 3 dispatches"), std::string::npos) << text;
    EXPECT_NE(text.find("2 x kernel 0 multiply_add"), std::string::npos) << text;
    EXPECT_NE(text.find("1 x copy"), std::string::npos) << text;
  }
}

// Out of memory and device lost at each call of the driver, from loading a program over an upload,
// a launch with a loop of several submissions, a branch and a host step, to a download: an error,
// no hang, no crash; after the first the next launch works, after the second it says why not.
// Losses need a device each, so every third call will do; HEKLA_ALL_FAULTS=1: every one.
TEST_P(LaunchTest, FaultsOfTheDriverAtEachCall) {
  constexpr int64_t kBytes = 4 * 500;
  ProgramBuilder p({kBytes, 4}, {kBytes, 4}, kBytes + 256);
  WhileStep loop;
  loop.predicate = output(1, 1);
  loop.body = {p.multiply_add(output(1, 4), input(1, 4), output(1, 4), 1)};
  const BranchStep branch = {
      output(1, 4),
      {{p.multiply_add(arena(0, kBytes), arena(0, kBytes), output(0, kBytes), 1)},
       {p.fill(output(0, kBytes), 9)}}};
  p.plan.steps = {p.fill(output(1, 4), 150),
                  p.multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1),
                  ProgramBuilder::host("nothing", R"(
                      func.func @main(%x: tensor<500xui32>) -> tensor<500xui32> {
                        return %x : tensor<500xui32>
                      })",
                                       {arena(0, kBytes)}, {arena(0, kBytes)}),
                  {loop},
                  {branch}};
  const auto transfer = [](const std::function<void(Transfers::Done)>& what) {
    std::promise<Status> promise;
    what([&](const Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  };
  const auto run = [&]() -> Status {
    ProgramOptions options;
    options.profile = GetParam() && !kHasThreadSanitizer;
    HEKLA_ASSIGN_OR_RETURN(const auto loaded, DeviceProgram::load(device_, p.build(), options));
    const Words words = ramp(500);
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef a, device_->memory().allocate(kBytes));
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef minus_one, device_->memory().allocate(4));
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().upload(words.data(), a, 0, kBytes, std::move(done));
    }));
    const uint32_t one_less = ~0U;
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().upload(&one_less, minus_one, 0, 4, std::move(done));
    }));
    Launched l = start(*loaded, {ready_input(a), ready_input(minus_one)});
    HEKLA_RETURN_IF_ERROR(l.status);
    HEKLA_RETURN_IF_ERROR(l.done->await());
    Words result(500);
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().download(l.outputs.memory[0], 0, result.data(), kBytes, std::move(done));
    }));
    if (result[7] != 4 * words[7]) return internal_error("a wrong result");
    return ok_status();
  };
  const bool is_long = std::getenv("HEKLA_ALL_FAULTS") != nullptr;
  for (const VkResult fault :
       {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST}) {
    int struck = 0;
    int failed = 0;
    const int stride = fault == VK_ERROR_DEVICE_LOST && !is_long ? 3 : 1;
    bool has_struck = true;
    for (int call = 0; has_struck; call += stride) {
      ASSERT_LT(call, 500) << "the sequence of calls does not end";
      if (!device_) open();
      if (!device_) return;
      testing::Faults& faults = testing::inject_faults(device_->device());
      faults.arm(call, fault);
      const Status status = run();
      has_struck = faults.has_struck;
      faults.disarm();
      struck += has_struck ? 1 : 0;
      failed += status.ok() ? 0 : 1;
      EXPECT_NE(status.code(), StatusCode::kInternal) << faults.where << status.to_string();
      const Status again = run();
      if (fault == VK_ERROR_DEVICE_LOST && has_struck) {
        // A loss during the last wait of all may come after the work is done.
        EXPECT_EQ(again.code(), StatusCode::kUnavailable) << faults.where;
      } else {
        EXPECT_TRUE(again.ok()) << again.to_string();
      }
      if (fault == VK_ERROR_DEVICE_LOST || !has_struck) {
        device_->close();
        device_.reset();
      }
    }
    EXPECT_GT(struck, 20 / stride);
    EXPECT_GT(failed, 12 / stride);
  }
}

INSTANTIATE_TEST_SUITE_P(, LaunchTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
