// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/queue/lane.h"

#include <gtest/gtest.h>

#include <future>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/queue/command_buffer.h"

namespace hekla::vulkan {
namespace {

std::unique_ptr<Lane> make_lane(const std::shared_ptr<Device>& device) {
  return *Lane::create(device, device->compute_queue(), "test");
}

TEST(Lane, EpochsPassInOrderAndCallbacksFollow) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const std::unique_ptr<Lane> lane = make_lane(device);
  std::mutex mutex;
  std::vector<uint64_t> seen;
  for (uint64_t i = 1; i <= 20; ++i) {
    ASSERT_EQ(*lane->submit({}, {}), i);
    lane->when_passed(i, [&, i](const Status& status) {
      EXPECT_TRUE(status.ok());
      EXPECT_GE(lane->passed(), i);
      std::lock_guard lock(mutex);
      seen.push_back(i);
    });
  }
  EXPECT_TRUE(lane->wait(20).ok());
  EXPECT_TRUE(lane->has_passed(20));
  EXPECT_FALSE(lane->has_passed(21));
  lane->drain();
  std::lock_guard lock(mutex);
  ASSERT_EQ(seen.size(), 20u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(Lane, OneLaneWaitsForAnother) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const std::unique_ptr<Lane> a = make_lane(device);
  const std::unique_ptr<Lane> b = make_lane(device);
  const Point first{a.get(), *a->submit({}, {})};
  const Point second{a.get(), *a->submit({}, {})};
  const uint64_t epoch = *b->submit({}, std::vector{second, first});
  EXPECT_TRUE(b->wait(epoch).ok());
  EXPECT_TRUE(a->has_passed(2));
  // A wait for what nobody submitted would never end.
  EXPECT_EQ(b->submit({}, std::vector{Point{a.get(), 3}}).status().code(), StatusCode::kInternal);
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(Lane, CallbacksMaySubmit) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const std::unique_ptr<Lane> lane = make_lane(device);
  std::promise<void> done;
  std::function<void(const Status&)> again = [&](const Status& status) {
    ASSERT_TRUE(status.ok());
    if (lane->submitted() == 5) return done.set_value();
    lane->when_passed(*lane->submit({}, {}), again);
    EXPECT_FALSE(lane->drain());  // on the lane's own thread
  };
  lane->when_passed(*lane->submit({}, {}), again);
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Lane, ALostDeviceEndsEveryWait) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  testing::Faults& faults = testing::inject_faults(*device);
  {
    const std::unique_ptr<Lane> lane = make_lane(device);
    ASSERT_TRUE(lane->submit({}, {}).ok());
    faults.arm(0, VK_ERROR_DEVICE_LOST);
    int failed = 0;
    for (int i = 0; i < 3; ++i) {
      lane->when_passed(1, [&](const Status& status) {
        if (status.code() == StatusCode::kUnavailable) ++failed;
      });
    }
    lane->drain();
    EXPECT_EQ(failed, 3);
    EXPECT_EQ(lane->submit({}, {}).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(lane->wait(2).code(), StatusCode::kUnavailable);
  }
  faults.disarm();
}

TEST(Lane, AFailedSubmissionLeavesTheLaneUsable) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  testing::Faults& faults = testing::inject_faults(*device);
  const std::unique_ptr<Lane> lane = make_lane(device);
  faults.arm(0, VK_ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_EQ(lane->submit({}, {}).status().code(), StatusCode::kResourceExhausted);
  // The wait itself fails once, and is made again.
  const uint64_t epoch = *lane->submit({}, {});
  faults.arm(0, VK_ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_TRUE(lane->wait(epoch).ok());
  faults.disarm();
  EXPECT_EQ(epoch, 1u);
}

TEST(CommandBuffer, RecordsAgainAndAgain) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const std::unique_ptr<Lane> lane = make_lane(device);
  const auto commands = *CommandBuffer::create(device, device->compute_queue().family);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(commands->begin(CommandBuffer::Use::kOnce).ok());
    commands->barrier();
    ASSERT_TRUE(commands->end().ok());
    ASSERT_TRUE(lane->wait(*lane->submit(std::vector{commands->handle()}, {})).ok());
  }
  EXPECT_TRUE(testing::no_validation_messages());
}

}  // namespace
}  // namespace hekla::vulkan
