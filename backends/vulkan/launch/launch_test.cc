// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <random>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/launch/testing/launch_fixture.h"

namespace hekla::vulkan {
namespace {

using plan::CopyStep;
using plan::Slice;
using testing::arena;
using testing::input;
using testing::output;
using testing::ProgramBuilder;
using testing::ramp;
using testing::Words;

class LaunchTest : public testing::LaunchFixture {};

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

TEST_P(LaunchTest, ArenasAreSharedByTheLaunchesOfALane) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 1000;
  const auto in = [](int32_t arena) {
    return Slice{Slice::Space::kArena, arena, 256 * arena, kBytes};
  };
  // x, 2 x + x, 3 * 3 x + 2 x: each in an arena of its own.
  ProgramBuilder p({kBytes}, {kBytes});
  p.plan.arenas = {4096, 0, 4096 + 512};
  p.plan.steps = {p.multiply_add(input(0, kBytes), input(0, kBytes), in(0), 2),
                  p.multiply_add(in(0), in(0), in(2), 1),
                  p.multiply_add(in(2), in(0), output(0, kBytes), 5)};
  const auto loaded = load(p);
  // Another program in between, with other sizes.
  ProgramBuilder q({kBytes}, {kBytes});
  q.plan.arenas = {8192, 4096 + 256};
  q.plan.steps = {p.multiply_add(input(0, kBytes), input(0, kBytes), in(1), 1),
                  p.multiply_add(in(1), in(1), output(0, kBytes), 1)};
  q.plan.kernels = p.plan.kernels;
  q.plan.constants = p.plan.constants;
  q.kernels = p.kernels;
  const auto other = load(q);
  const int64_t before = device_->memory().statistics().bytes_in_use;
  const AllocationRef x = upload(ramp(1000));
  for (int i = 0; i < 3; ++i) {
    Launched one = start(*loaded, {ready_input(x)});
    Launched two = start(*other, {ready_input(x)});
    ASSERT_TRUE(one.done->await().ok());
    ASSERT_TRUE(two.done->await().ok());
    const Words c = download(one.outputs.memory[0]);
    const Words d = download(two.outputs.memory[0]);
    for (uint32_t k = 0; k < 1000; ++k) {
      ASSERT_EQ(c[k], 5 * 6 * k + 3 * k);
      ASSERT_EQ(d[k], 4 * k);
    }
  }
  // The largest of each number.
  EXPECT_EQ(device_->memory().statistics().bytes_in_use - before,
            kBytes + 8192 + (4096 + 256) + (4096 + 512));
}

TEST_P(LaunchTest, ConstantsAreInAsManyPiecesAsTheDriverAllocates) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 1000;
  testing::promise_allocations(device_->device(), 2 * kBytes);
  ProgramBuilder p({kBytes}, {kBytes});
  for (uint32_t i = 1; i <= 4; ++i) {
    const Slice sum = output(0, kBytes);
    p.plan.steps.push_back(
        p.multiply_add(p.constant(Words(1000, i)), i == 1 ? input(0, kBytes) : sum, sum, 10));
  }
  const auto loaded = load(p);
  Launched l = start(*loaded, {ready_input(upload(ramp(1000)))});
  ASSERT_TRUE(l.done->await().ok());
  const Words c = download(l.outputs.memory[0]);
  for (uint32_t k = 0; k < 1000; ++k) ASSERT_EQ(c[k], k + 10 * (1 + 2 + 3 + 4));
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

INSTANTIATE_TEST_SUITE_P(, LaunchTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
