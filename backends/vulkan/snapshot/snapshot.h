// SPDX-License-Identifier: Apache-2.0
// DeviceSnapshot: the recorded facts about one Vulkan device; pure data.
//
// Everything that the Vulkan back end decides (memory types, lanes, schedules, native or emulated
// dtypes) follows from a snapshot and the user's options, so it can be planned and tested without
// the device: snapshots print as JSON, read back, and travel in bug reports. Values, no handles.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::vulkan {

class QueryInstance;

enum class DeviceType : uint8_t { kOther, kIntegrated, kDiscrete, kVirtual, kCpu };
std::string_view device_type_name(DeviceType type);

struct MemoryHeap {
  uint64_t size_bytes = 0;
  bool is_device_local = false;
  // From VK_EXT_memory_budget at the time of the query; 0 when the driver does not say.
  uint64_t budget_bytes = 0;
  uint64_t usage_bytes = 0;
  bool operator==(const MemoryHeap&) const = default;
};

struct MemoryType {
  uint32_t heap_index = 0;
  bool is_device_local = false;
  bool is_host_visible = false;
  bool is_host_coherent = false;
  bool is_host_cached = false;
  bool operator==(const MemoryType&) const = default;
};

struct QueueFamily {
  uint32_t count = 0;
  bool has_graphics = false;
  bool has_compute = false;
  bool has_transfer = false;
  uint32_t timestamp_bits = 0;
  bool operator==(const QueueFamily&) const = default;
};

// One shape of VK_KHR_cooperative_matrix at subgroup scope: C[m, n] += A[m, k] * B[k, n]. The types
// are StableHLO's spellings ("f16", "bf16", "i8", "ui8", "f32"), "?" for one we do not know.
struct CooperativeMatrixShape {
  uint32_t m = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  std::string a;
  std::string b;
  std::string c;
  std::string result;
  bool is_saturating = false;
  bool operator==(const CooperativeMatrixShape&) const = default;
};

struct Features {
  // Types that shaders compute with.
  bool f16 = false;
  bool f64 = false;
  bool i8 = false;
  bool i16 = false;
  bool i64 = false;
  bool bf16 = false;  // VK_KHR_shader_bfloat16
  bool bf16_cooperative_matrix = false;
  // Types that shaders load and store in buffers.
  bool storage_8 = false;
  bool storage_16 = false;
  bool i64_atomics = false;
  bool f32_atomic_add = false;
  // What the back end builds on.
  bool timeline_semaphore = false;
  bool buffer_device_address = false;
  bool synchronization2 = false;
  bool scalar_block_layout = false;
  bool subgroup_size_control = false;
  bool compute_full_subgroups = false;
  bool vulkan_memory_model = false;  // with its device scope
  bool robust_buffer_access = false;
  bool memory_budget = false;
  bool host_memory_import = false;  // VK_EXT_external_memory_host
  bool opaque_fd_memory = false;    // VK_KHR_external_memory_fd
  // VK_EXT_external_memory_dma_buf with VK_EXT_queue_family_foreign
  bool dma_buf_memory = false;
  bool cooperative_matrix = false;
  bool integer_dot_product = false;
  bool pipeline_statistics = false;  // VK_KHR_pipeline_executable_properties
  bool operator==(const Features&) const = default;
};

// VkPhysicalDeviceFloatControlsProperties for f16, f32 and f64, in that order.
struct FloatControls {
  std::array<bool, 3> signed_zero_inf_nan_preserve = {};
  std::array<bool, 3> denorm_preserve = {};
  std::array<bool, 3> denorm_flush_to_zero = {};
  std::array<bool, 3> rounding_rte = {};
  std::array<bool, 3> rounding_rtz = {};
  bool operator==(const FloatControls&) const = default;
};

struct Limits {
  uint64_t max_storage_buffer_range_bytes = 0;
  uint64_t max_allocation_bytes = 0;
  uint64_t max_buffer_bytes = 0;
  uint32_t max_allocation_count = 0;
  uint64_t buffer_image_granularity_bytes = 0;
  uint64_t min_storage_buffer_alignment_bytes = 0;
  uint64_t non_coherent_atom_bytes = 0;
  uint64_t min_memory_map_alignment_bytes = 0;
  uint64_t min_imported_host_alignment_bytes = 0;  // 0: no host_memory_import
  uint32_t max_push_constants_bytes = 0;
  uint32_t max_shared_memory_bytes = 0;
  uint32_t max_workgroup_invocations = 0;
  std::array<uint32_t, 3> max_workgroup_size = {};
  std::array<uint32_t, 3> max_workgroup_count = {};
  float timestamp_period_ns = 0;
  bool operator==(const Limits&) const = default;

  // Sizes of allocations are multiples of it.
  int64_t allocation_alignment() const;
  // The largest allocation that the driver promises: it may make larger ones, as large as the
  // largest buffer. What the specification promises where the driver says nothing.
  int64_t promised_allocation_bytes() const;
  int64_t largest_buffer_bytes() const;
};

struct Subgroup {
  uint32_t size = 0;
  uint32_t min_size = 0;
  uint32_t max_size = 0;
  // Operations in compute shaders, as the names of VkSubgroupFeatureFlagBits in lower case.
  std::vector<std::string> operations;
  bool operator==(const Subgroup&) const = default;
};

struct DeviceSnapshot {
  std::string name;
  DeviceType type = DeviceType::kOther;
  uint32_t vendor_id = 0;
  uint32_t device_id = 0;
  std::string vendor;  // a name for the well-known ids, else the number
  std::string driver_name;
  std::string driver_info;
  uint32_t driver_id = 0;
  uint32_t driver_version = 0;  // in the driver's own encoding
  std::string api_version;      // "1.3.230", at most what the instance speaks
  std::string conformance_version;
  std::string device_uuid;  // 32 hexadecimal digits
  std::string driver_uuid;
  std::string pipeline_cache_uuid;
  std::string pci_id;  // "0000:01:00.0", empty when the driver does not say
  std::vector<MemoryHeap> heaps;
  std::vector<MemoryType> memory_types;
  std::vector<QueueFamily> queue_families;
  Subgroup subgroup;
  Features features;
  FloatControls float_controls;
  Limits limits;
  std::vector<CooperativeMatrixShape> cooperative_matrices;
  std::vector<std::string> extensions;  // sorted
  bool operator==(const DeviceSnapshot&) const = default;

  // What the back end needs and this device lacks, each in words; empty: usable.
  std::vector<std::string> missing_requirements() const;
  // Bytes of the device-local heaps: size, and budget where known, else the size.
  uint64_t device_local_bytes() const;
  uint64_t device_local_budget_bytes() const;
};

// JSON with every field, for `hekla devices --json` and bug reports; reads back to an equal value.
std::string snapshot_to_json(const DeviceSnapshot& snapshot, int indent = 2);
// INVALID_ARGUMENT with the reason; fields that are not there keep their defaults.
Result<DeviceSnapshot> snapshot_from_json(std::string_view json);

// Snapshots of all devices of the system's Vulkan drivers, in the drivers' order. UNAVAILABLE in
// words when there is no loader or no driver; an empty list when drivers see no device. The same
// GPU under several drivers appears several times (device_uuid, pci_id tell).
Result<std::vector<DeviceSnapshot>> query_devices();
// The same through a given instance, in the order in which it enumerates its physical devices.
Result<std::vector<DeviceSnapshot>> query_devices(const QueryInstance& instance);

// The order in which devices are preferred: discrete, integrated, virtual, other, CPU; among equals
// the drivers' order. Devices that lack a requirement come last. Indices into `devices`.
std::vector<size_t> preferred_order(const std::vector<DeviceSnapshot>& devices);

}  // namespace hekla::vulkan
