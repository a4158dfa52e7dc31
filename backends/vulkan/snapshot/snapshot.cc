// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/snapshot/snapshot.h"

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

namespace hekla::vulkan {
namespace {

constexpr std::string_view kTypeNames[] = {"other", "integrated", "discrete", "virtual", "cpu"};

// Lower is better.
int rank_of(const DeviceSnapshot& device) {
  const int usable = device.missing_requirements().empty() ? 0 : 10;
  switch (device.type) {
    case DeviceType::kDiscrete:
      return usable;
    case DeviceType::kIntegrated:
      return usable + 1;
    case DeviceType::kVirtual:
      return usable + 2;
    case DeviceType::kOther:
      return usable + 3;
    case DeviceType::kCpu:
      return usable + 4;
  }
  return usable + 5;
}

}  // namespace

std::string_view device_type_name(DeviceType type) { return kTypeNames[static_cast<size_t>(type)]; }

void to_json(nlohmann::json& json, const DeviceType& type) { json = device_type_name(type); }

void from_json(const nlohmann::json& json, DeviceType& type) {
  const auto* name =
      std::find(std::begin(kTypeNames), std::end(kTypeNames), json.get<std::string>());
  type = name == std::end(kTypeNames) ? DeviceType::kOther
                                      : static_cast<DeviceType>(name - std::begin(kTypeNames));
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MemoryHeap, size_bytes, is_device_local,
                                                budget_bytes, usage_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MemoryType, heap_index, is_device_local,
                                                is_host_visible, is_host_coherent, is_host_cached)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QueueFamily, count, has_graphics, has_compute,
                                                has_transfer, timestamp_bits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CooperativeMatrixShape, m, n, k, a, b, c, result,
                                                is_saturating)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Features, f16, f64, i8, i16, i64, bf16, bf16_cooperative_matrix, storage_8, storage_16,
    i64_atomics, f32_atomic_add, timeline_semaphore, buffer_device_address, synchronization2,
    scalar_block_layout, subgroup_size_control, compute_full_subgroups, vulkan_memory_model,
    robust_buffer_access, memory_budget, host_memory_import, opaque_fd_memory, dma_buf_memory,
    cooperative_matrix, integer_dot_product, pipeline_statistics)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FloatControls, signed_zero_inf_nan_preserve,
                                                denorm_preserve, denorm_flush_to_zero, rounding_rte,
                                                rounding_rtz)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Limits, max_storage_buffer_range_bytes, max_allocation_bytes, max_buffer_bytes,
    max_allocation_count, buffer_image_granularity_bytes, min_storage_buffer_alignment_bytes,
    non_coherent_atom_bytes, min_memory_map_alignment_bytes, min_imported_host_alignment_bytes,
    max_push_constants_bytes, max_shared_memory_bytes, max_workgroup_invocations,
    max_workgroup_size, max_workgroup_count, timestamp_period_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Subgroup, size, min_size, max_size, operations)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DeviceSnapshot, name, type, vendor_id, device_id,
                                                vendor, driver_name, driver_info, driver_id,
                                                driver_version, api_version, conformance_version,
                                                device_uuid, driver_uuid, pipeline_cache_uuid,
                                                pci_id, heaps, memory_types, queue_families,
                                                subgroup, features, float_controls, limits,
                                                cooperative_matrices, extensions)

namespace {

int64_t known_bytes(uint64_t limit) {
  constexpr uint64_t kPromised = uint64_t{1} << 30;
  constexpr uint64_t kMost = uint64_t{1} << 62;
  return static_cast<int64_t>(std::min(limit == 0 ? kPromised : limit, kMost));
}

}  // namespace

int64_t Limits::allocation_alignment() const {
  return static_cast<int64_t>(
      std::max({uint64_t{256}, min_storage_buffer_alignment_bytes, non_coherent_atom_bytes}));
}

int64_t Limits::promised_allocation_bytes() const {
  const int64_t bytes = std::min(known_bytes(max_allocation_bytes), known_bytes(max_buffer_bytes));
  return bytes / allocation_alignment() * allocation_alignment();
}

int64_t Limits::largest_buffer_bytes() const { return known_bytes(max_buffer_bytes); }

std::vector<std::string> DeviceSnapshot::missing_requirements() const {
  std::vector<std::string> missing;
  int major = 0;
  int minor = 0;
  std::sscanf(api_version.c_str(), "%d.%d", &major, &minor);
  if (major < 1 || (major == 1 && minor < 2)) {
    missing.push_back(fmt::format("Vulkan 1.2 (the driver speaks {})", api_version));
  }
  if (!features.timeline_semaphore) missing.push_back("timeline semaphores");
  if (!features.buffer_device_address) missing.push_back("buffer device addresses");
  if (std::none_of(queue_families.begin(), queue_families.end(),
                   [](const QueueFamily& family) { return family.has_compute; })) {
    missing.push_back("a queue family that computes");
  }
  return missing;
}

uint64_t DeviceSnapshot::device_local_bytes() const {
  uint64_t bytes = 0;
  for (const MemoryHeap& heap : heaps) bytes += heap.is_device_local ? heap.size_bytes : 0;
  return bytes;
}

uint64_t DeviceSnapshot::device_local_budget_bytes() const {
  uint64_t bytes = 0;
  for (const MemoryHeap& heap : heaps) {
    if (!heap.is_device_local) continue;
    bytes += heap.budget_bytes != 0 ? heap.budget_bytes : heap.size_bytes;
  }
  return bytes;
}

std::string snapshot_to_json(const DeviceSnapshot& snapshot, int indent) {
  // Driver strings are not always UTF-8.
  return nlohmann::json(snapshot).dump(indent, ' ', false,
                                       nlohmann::json::error_handler_t::replace);
}

Result<DeviceSnapshot> snapshot_from_json(std::string_view json) {
  // The library reports through exceptions; they end here.
  try {
    return nlohmann::json::parse(json).get<DeviceSnapshot>();
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument("this is no device snapshot: {}", error.what());
  }
}

std::vector<size_t> preferred_order(const std::vector<DeviceSnapshot>& devices) {
  std::vector<size_t> order(devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank_of(devices[a]) < rank_of(devices[b]); });
  return order;
}

}  // namespace hekla::vulkan
