// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/device/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hekla::vulkan {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

DeviceSnapshot usable(DeviceType type) {
  DeviceSnapshot device;
  device.name = "Made Up";
  device.type = type;
  device.api_version = "1.3.0";
  device.features.timeline_semaphore = true;
  device.features.buffer_device_address = true;
  device.queue_families = {{1, true, true, true, 64}};
  device.limits.max_allocation_bytes = 4 * kGiB;
  device.limits.max_buffer_bytes = 2 * kGiB;
  return device;
}

// Device memory, 256 MiB of it visible, system memory cached and uncached.
DeviceSnapshot old_board() {
  DeviceSnapshot device = usable(DeviceType::kDiscrete);
  device.heaps = {{16 * kGiB, true}, {64 * kGiB, false}, {kGiB / 4, true}};
  device.memory_types = {{2, true, true, true, false},
                         {0, true, false, false, false},
                         {1, false, true, true, false},
                         {1, false, true, true, true}};
  device.queue_families = {
      {16, true, true, true, 64}, {2, false, false, true, 64}, {8, false, true, true, 64}};
  return device;
}

DeviceSnapshot software() {
  DeviceSnapshot device = usable(DeviceType::kCpu);
  device.heaps = {{2 * kGiB, true}};
  device.memory_types = {{0, true, true, true, true}};
  return device;
}

DevicePlan plan(const DeviceSnapshot& snapshot, const DeviceOptions& options = {}) {
  Result<DevicePlan> plan = plan_device(snapshot, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return *plan;
}

bool has_reason(const DevicePlan& plan, std::string_view part) {
  return std::any_of(plan.reasons.begin(), plan.reasons.end(), [&](const std::string& reason) {
    return reason.find(part) != std::string::npos;
  });
}

TEST(DevicePlan, ADiscreteBoardGetsItsQueuesAndStaging) {
  const DevicePlan p = plan(old_board());
  EXPECT_EQ(p.compute, (QueueIndex{2, 0}));   // without graphics
  EXPECT_EQ(p.transfer, (QueueIndex{1, 0}));  // the copy engine
  EXPECT_EQ(p.device_types, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(p.upload_types.front(), 2u);
  EXPECT_EQ(p.download_types.front(), 3u);
  EXPECT_EQ(p.table_types.front(), 0u);
  EXPECT_EQ(p.host_access, HostAccess::kNone);
  EXPECT_EQ(p.device_heap, 0u);
  EXPECT_EQ(p.memory_limit_bytes, static_cast<int64_t>(16 * kGiB / 10 * 8));
  EXPECT_EQ(p.max_allocation_bytes, static_cast<int64_t>(2 * kGiB));
  EXPECT_EQ(p.max_buffer_bytes, static_cast<int64_t>(2 * kGiB));
  EXPECT_TRUE(has_reason(p, "zero-copy"));
}

TEST(DevicePlan, WhatIsPromisedOfAllocationsIsLessThanWhatIsTried) {
  DeviceSnapshot device = old_board();
  device.limits.max_allocation_bytes = 4 * kGiB - 1;
  device.limits.max_buffer_bytes = 1024 * kGiB;
  const DevicePlan p = plan(device);
  EXPECT_EQ(p.max_allocation_bytes, static_cast<int64_t>(4 * kGiB) - p.allocation_alignment);
  EXPECT_EQ(p.max_buffer_bytes, static_cast<int64_t>(1024 * kGiB));
  // What the specification promises where the driver says nothing.
  device.limits.max_allocation_bytes = device.limits.max_buffer_bytes = 0;
  EXPECT_EQ(plan(device).max_allocation_bytes, static_cast<int64_t>(kGiB));
  EXPECT_EQ(plan(device).max_buffer_bytes, static_cast<int64_t>(kGiB));
}

TEST(DevicePlan, ResizableBarIsWrittenDirectly) {
  DeviceSnapshot device = old_board();
  device.heaps = {{16 * kGiB, true}, {64 * kGiB, false}};
  device.memory_types[0].heap_index = 0;
  const DevicePlan p = plan(device);
  EXPECT_EQ(p.host_access, HostAccess::kWriteOnly);
  EXPECT_EQ(p.device_types.front(), 0u);
  EXPECT_EQ(p.download_types.front(), 3u);
  DeviceOptions options;
  options.use_host_visible_memory = false;
  EXPECT_EQ(plan(device, options).host_access, HostAccess::kNone);
  EXPECT_EQ(plan(device, options).device_types.front(), 1u);
}

TEST(DevicePlan, UnifiedMemoryIsZeroCopyUnlessSwitchedOff) {
  EXPECT_EQ(plan(software()).host_access, HostAccess::kFull);
  EXPECT_FALSE(plan(software()).has_transfer_queue());
  EXPECT_TRUE(has_reason(plan(software()), "transfer queue"));
  DeviceOptions options;
  options.use_host_visible_memory = false;
  EXPECT_NE(plan(software(), options).host_access, HostAccess::kFull);

  DeviceSnapshot integrated = software();
  integrated.type = DeviceType::kIntegrated;
  integrated.memory_types = {{0, true, true, true, false}, {0, true, true, true, true}};
  EXPECT_EQ(plan(integrated).host_access, HostAccess::kFull);
  EXPECT_EQ(plan(integrated).device_types.front(), 1u);
  integrated.memory_types.pop_back();  // uncached: reads would crawl
  EXPECT_EQ(plan(integrated).host_access, HostAccess::kWriteOnly);
}

TEST(DevicePlan, OneFamilyWithTwoQueuesGivesTransfersTheSecond) {
  DeviceSnapshot device = software();
  device.queue_families[0].count = 2;
  EXPECT_EQ(plan(device).transfer, (QueueIndex{0, 1}));
  DeviceOptions options;
  options.use_transfer_queue = false;
  EXPECT_FALSE(plan(device, options).has_transfer_queue());
}

TEST(DevicePlan, MemoryLimitComesFromOptionThenBudgetThenHeap) {
  DeviceSnapshot device = software();
  device.features.memory_budget = true;
  device.extensions = {"VK_EXT_memory_budget"};
  device.heaps[0].budget_bytes = kGiB;
  device.heaps[0].usage_bytes = kGiB / 4;
  EXPECT_EQ(plan(device).memory_limit_bytes, static_cast<int64_t>(kGiB / 4 * 3));
  EXPECT_EQ(plan(device).extensions, (std::vector<std::string>{"VK_EXT_memory_budget"}));
  DeviceOptions options;
  options.memory_limit_bytes = 1000;
  EXPECT_EQ(plan(device, options).memory_limit_bytes, 1000);
  options = {};
  options.masked_features = {"memory_budget"};
  EXPECT_EQ(plan(device, options).memory_limit_bytes, static_cast<int64_t>(2 * kGiB / 10 * 8));
}

// The host polls for GPUs, and does not take the cores of a device that computes on them.
TEST(DevicePlan, WaitsPollByTheDevicesTypeUnlessAnOptionSaysOtherwise) {
  EXPECT_EQ(plan(old_board()).wait_poll_microseconds, 100);
  DeviceSnapshot integrated = software();
  integrated.type = DeviceType::kIntegrated;
  EXPECT_EQ(plan(integrated).wait_poll_microseconds, 100);
  EXPECT_EQ(plan(software()).wait_poll_microseconds, 0);
  DeviceOptions options;
  options.wait_poll_microseconds = 0;
  EXPECT_EQ(plan(old_board(), options).wait_poll_microseconds, 0);
  options.wait_poll_microseconds = 7;
  EXPECT_EQ(plan(software(), options).wait_poll_microseconds, 7);
}

TEST(DevicePlan, MasksFeaturesAndSaysSo) {
  DeviceSnapshot device = software();
  device.features.f16 = device.features.i64 = true;
  DeviceOptions options;
  options.masked_features = {"f16"};
  const DevicePlan p = plan(device, options);
  EXPECT_FALSE(p.features.f16);
  EXPECT_TRUE(p.features.i64);
  EXPECT_TRUE(has_reason(p, "f16: masked"));
  EXPECT_TRUE(has_reason(p, "f64: not offered"));
  options.masked_features = {"magic"};
  EXPECT_EQ(plan_device(device, options).status().code(), StatusCode::kInvalidArgument);
}

TEST(DevicePlan, RefusesInWordsWhatItCannotStandOn) {
  DeviceSnapshot device = software();
  device.features.timeline_semaphore = false;
  device.api_version = "1.1.0";
  const Status status = plan_device(device, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("timeline semaphores"), std::string::npos);
  EXPECT_NE(status.message().find("Vulkan 1.2"), std::string::npos);
  device = software();
  device.memory_types.clear();
  EXPECT_EQ(plan_device(device, {}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ChooseDevice, ByIndexUuidNameOrPreference) {
  std::vector<DeviceSnapshot> devices = {software(), old_board(), old_board()};
  devices[0].device_uuid = std::string(32, 'a');
  devices[2].name = "Big Board";
  EXPECT_EQ(*choose_device(devices, ""), 1u);
  EXPECT_EQ(*choose_device(devices, "2"), 2u);
  EXPECT_EQ(*choose_device(devices, std::string(32, 'A')), 0u);
  EXPECT_EQ(*choose_device(devices, "big"), 2u);
  const Status status = choose_device(devices, "7").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("Big Board"), std::string::npos);
  EXPECT_EQ(choose_device({}, "").status().code(), StatusCode::kFailedPrecondition);
  devices = {software()};
  devices[0].features.buffer_device_address = false;
  EXPECT_EQ(choose_device(devices, "").status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace hekla::vulkan
