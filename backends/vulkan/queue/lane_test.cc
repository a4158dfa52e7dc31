// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/queue/lane.h"

#include <gtest/gtest.h>

#include <future>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/queue/command_buffer.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEKLA_LEAK_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif
#endif

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
  const TimelinePoint first{a.get(), *a->submit({}, {})};
  const TimelinePoint second{a.get(), *a->submit({}, {})};
  const uint64_t epoch = *b->submit({}, std::vector{second, first});
  EXPECT_TRUE(b->wait(epoch).ok());
  EXPECT_TRUE(a->has_passed(2));
  // A wait for what nobody submitted would never end.
  EXPECT_EQ(b->submit({}, std::vector{TimelinePoint{a.get(), 3}}).status().code(),
            StatusCode::kInternal);
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

// A device that never comes to the end of its work, and does not say that it is lost.
TEST(Lane, AHungDeviceIsGivenUpAfterTheTimeout) {
#ifdef HEKLA_LEAK_SANITIZER
  // What a hung device may still use is left to it, which is the promise.
  const __lsan::ScopedDisabler leaves_the_device;
#endif
  DeviceOptions options;
  options.launch_timeout_seconds = 1;
  HEKLA_VULKAN_TEST_DEVICE(device, options);
  static std::atomic<int> frees{0};
  DeviceFunctions& functions = device->mutable_functions();
  functions.WaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return VK_TIMEOUT;
  };
  functions.GetSemaphoreCounterValue = [](VkDevice, VkSemaphore, uint64_t* value) {
    *value = 3;
    return VK_SUCCESS;
  };
  functions.DestroySemaphore = [](VkDevice, VkSemaphore, const VkAllocationCallbacks*) { ++frees; };
  {
    const std::unique_ptr<Lane> lane = make_lane(device);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(lane->submit({}, {}).ok());
    Status seen;
    lane->when_passed(5, [&](const Status& status) { seen = status; });
    lane->drain();
    EXPECT_EQ(seen.code(), StatusCode::kUnavailable);
    EXPECT_NE(seen.message().find("submission 4 of its queue \"test\" has not ended within 1 "
                                  "seconds (vulkan_launch_timeout)"),
              std::string::npos)
        << seen.message();
    EXPECT_EQ(lane->submit({}, {}).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(lane->wait(5).code(), StatusCode::kUnavailable);
  }
  // Neither waited for nor freed: it may still be at work.
  device->wait_idle();
  device.reset();
  EXPECT_EQ(frees, 0);
}

// How often waits sleep and ask, by the driver's functions that they call.
struct Waits {
  static inline DeviceFunctions originals;
  static inline std::atomic<int> sleeps{0}, questions{0};
  explicit Waits(Device& device) {
    originals = device.call();
    sleeps = questions = 0;
    device.mutable_functions().WaitSemaphores = [](VkDevice d, const VkSemaphoreWaitInfo* info,
                                                   uint64_t timeout) {
      ++sleeps;
      return originals.WaitSemaphores(d, info, timeout);
    };
    device.mutable_functions().GetSemaphoreCounterValue = [](VkDevice d, VkSemaphore semaphore,
                                                             uint64_t* value) {
      ++questions;
      return originals.GetSemaphoreCounterValue(d, semaphore, value);
    };
  }
};

TEST(Lane, AWaitPollsWhereAskedAndSleepsElse) {
  DeviceOptions options;
  options.wait_poll_microseconds = 10'000'000;
  HEKLA_VULKAN_TEST_DEVICE(device, options);
  {
    const Waits waits(*device);
    const std::unique_ptr<Lane> lane = make_lane(device);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(lane->wait(*lane->submit({}, {})).ok());
    EXPECT_EQ(waits.sleeps, 0);
    EXPECT_GE(waits.questions, 5);
  }
  options.wait_poll_microseconds = 0;
  HEKLA_VULKAN_TEST_DEVICE(sleeping, options);
  const Waits waits(*sleeping);
  const std::unique_ptr<Lane> lane = make_lane(sleeping);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(lane->wait(*lane->submit({}, {})).ok());
  EXPECT_GE(waits.sleeps, 5);
  EXPECT_EQ(waits.questions, 0);
  EXPECT_TRUE(testing::no_validation_messages());
}

// What does not end soon is waited for asleep, and what usually takes long is not polled for
// before.
TEST(Lane, PollingIsBounded) {
  DeviceOptions options;
  options.wait_poll_microseconds = 2'000;
  HEKLA_VULKAN_TEST_DEVICE(device, options);
  static std::atomic<uint64_t> value{0};
  static std::atomic<int> questions{0};
  static std::atomic<uint64_t> first_sleep_ns{0};
  static const DeviceFunctions originals = device->call();
  device->mutable_functions().GetSemaphoreCounterValue = [](VkDevice, VkSemaphore, uint64_t* now) {
    ++questions;
    *now = value;
    return VK_SUCCESS;
  };
  // A device that takes 20 ms.
  device->mutable_functions().WaitSemaphores = [](VkDevice d, const VkSemaphoreWaitInfo* info,
                                                  uint64_t timeout) {
    if (first_sleep_ns == 0) first_sleep_ns = timeout;
    const uint64_t slept = std::min<uint64_t>(timeout, 20'000'000);
    std::this_thread::sleep_for(std::chrono::nanoseconds(slept));
    if (slept < 18'000'000) return VK_TIMEOUT;
    value = info->pValues[0];
    return originals.WaitSemaphores(d, info, timeout);
  };
  {
    const std::unique_ptr<Lane> lane = make_lane(device);
    const uint64_t first = *lane->submit({}, {});
    EXPECT_TRUE(lane->wait(first).ok());
    EXPECT_GE(questions, 1);
    EXPECT_EQ(first_sleep_ns, 1'000'000'000u);  // after the poll, the long sleep
    // The next one is expected to take as long: it sleeps before it polls.
    first_sleep_ns = 0;
    EXPECT_TRUE(lane->wait(*lane->submit({}, {})).ok());
    EXPECT_GT(first_sleep_ns, 1'000'000u);
    EXPECT_LT(first_sleep_ns, 50'000'000u);
  }
  EXPECT_TRUE(testing::no_validation_messages());
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
