// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/snapshot/snapshot.h"

#include <gtest/gtest.h>

#include "backends/vulkan/snapshot/loader.h"

namespace hekla::vulkan {
namespace {

DeviceSnapshot usable(std::string name, DeviceType type) {
  DeviceSnapshot device;
  device.name = std::move(name);
  device.type = type;
  device.api_version = "1.3.0";
  device.features.timeline_semaphore = true;
  device.features.buffer_device_address = true;
  device.queue_families = {{1, true, true, true, 64}};
  return device;
}

TEST(Snapshot, SurvivesJson) {
  DeviceSnapshot device = usable("Big GPU", DeviceType::kDiscrete);
  device.heaps = {{uint64_t{1} << 37, true, 5, 6}, {123, false, 0, 0}};
  device.memory_types = {{0, true, false, false, false}, {1, false, true, true, true}};
  device.subgroup = {32, 16, 64, {"basic", "vote"}};
  device.features.bf16 = true;
  device.float_controls.rounding_rte = {true, false, true};
  device.limits.max_workgroup_size = {1024, 512, 64};
  device.limits.timestamp_period_ns = 1.5F;
  device.cooperative_matrices = {{16, 16, 16, "f16", "f16", "f32", "f32", false}};
  device.extensions = {"VK_A", "VK_B"};
  Result<DeviceSnapshot> back = snapshot_from_json(snapshot_to_json(device));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, device);
}

TEST(Snapshot, RefusesWhatIsNoSnapshot) {
  EXPECT_EQ(snapshot_from_json("{").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(snapshot_from_json("[1, 2]").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(snapshot_from_json("{\"heaps\": 3}").status().code(), StatusCode::kInvalidArgument);
}

TEST(Snapshot, PrefersDiscreteThenIntegratedAndCpuLast) {
  std::vector<DeviceSnapshot> devices = {
      usable("cpu", DeviceType::kCpu), usable("igpu", DeviceType::kIntegrated),
      usable("first", DeviceType::kDiscrete), usable("old", DeviceType::kDiscrete),
      usable("second", DeviceType::kDiscrete)};
  devices[3].features.timeline_semaphore = false;
  EXPECT_EQ(preferred_order(devices), (std::vector<size_t>{2, 4, 1, 0, 3}));
}

TEST(Snapshot, NamesWhatIsMissing) {
  DeviceSnapshot device = usable("old", DeviceType::kDiscrete);
  EXPECT_TRUE(device.missing_requirements().empty());
  device.api_version = "1.1.0";
  device.features.buffer_device_address = false;
  device.queue_families.clear();
  EXPECT_EQ(device.missing_requirements(),
            (std::vector<std::string>{"Vulkan 1.2 (the driver speaks 1.1.0)",
                                      "buffer device addresses", "a queue family that computes"}));
}

TEST(Snapshot, AddsDeviceLocalHeaps) {
  DeviceSnapshot device;
  device.heaps = {{100, true, 80, 5}, {50, true, 0, 0}, {1000, false, 900, 0}};
  EXPECT_EQ(device.device_local_bytes(), 150u);
  EXPECT_EQ(device.device_local_budget_bytes(), 130u);
}

// Whatever the machine has, the query ends in snapshots or in words.
TEST(Query, AnswersOnAnyMachine) {
  Result<std::vector<DeviceSnapshot>> devices = query_devices();
  if (!devices.ok()) {
    EXPECT_FALSE(devices.status().message().empty());
    return;
  }
  for (const DeviceSnapshot& device : *devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_FALSE(device.queue_families.empty());
    EXPECT_EQ(device.device_uuid.size(), 32u);
    EXPECT_EQ(*snapshot_from_json(snapshot_to_json(device)), device);
  }
}

}  // namespace
}  // namespace hekla::vulkan
