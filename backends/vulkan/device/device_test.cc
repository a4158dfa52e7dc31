// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/device/device.h"

#include <gtest/gtest.h>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"

namespace hekla::vulkan {
namespace {

TEST(Device, OpensAndClosesWithoutAWord) {
  for (int i = 0; i < 2; ++i) {
    HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
    EXPECT_NE(device->compute_queue().handle, VkQueue{VK_NULL_HANDLE});
    EXPECT_TRUE(device->health().ok());
    EXPECT_NE(device->identity().find(device->snapshot().pipeline_cache_uuid), std::string::npos);
  }
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(Device, ErrorsNameCallAndDeviceAndALossIsSticky) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  EXPECT_TRUE(device->check(VK_SUCCESS, "vkX").ok());
  EXPECT_TRUE(device->check(VK_TIMEOUT, "vkX").ok());
  const Status memory = device->check(VK_ERROR_OUT_OF_DEVICE_MEMORY, "vkAllocateMemory");
  EXPECT_EQ(memory.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(memory.message().find("vkAllocateMemory"), std::string::npos);
  EXPECT_NE(memory.message().find(device->snapshot().name), std::string::npos);
  EXPECT_TRUE(device->health().ok());
  EXPECT_EQ(device->check(VK_ERROR_DEVICE_LOST, "vkQueueSubmit").code(), StatusCode::kUnavailable);
  device->lose("a second reason");
  EXPECT_NE(device->health().message().find("vkQueueSubmit"), std::string::npos);
  EXPECT_EQ(device->health().message().find("second"), std::string::npos);
}

TEST(Device, AnUnknownNameListsWhatThereIs) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const Status status = Device::open("no such device", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find(device->snapshot().name), std::string::npos);
}

TEST(FaultInjection, StrikesTheChosenCall) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  testing::Faults& faults = testing::inject_faults(*device);
  faults.arm(1, VK_ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_EQ(device->call().DeviceWaitIdle(device->handle()), VK_SUCCESS);
  EXPECT_EQ(device->call().DeviceWaitIdle(device->handle()), VK_ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_EQ(device->call().DeviceWaitIdle(device->handle()), VK_SUCCESS);
  EXPECT_STREQ(faults.where, "vkDeviceWaitIdle");
  faults.arm(0, VK_ERROR_DEVICE_LOST);
  EXPECT_EQ(device->call().DeviceWaitIdle(device->handle()), VK_ERROR_DEVICE_LOST);
  EXPECT_EQ(device->call().DeviceWaitIdle(device->handle()), VK_ERROR_DEVICE_LOST);
  faults.disarm();
}

}  // namespace
}  // namespace hekla::vulkan
