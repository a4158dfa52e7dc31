// SPDX-License-Identifier: Apache-2.0
// DevicePlan: what is used of a Vulkan device, decided from its snapshot and the user's options.
//
// Pure: no handles, no calls; made-up snapshots test it. Every "no" that costs speed or a feature
// carries its reason in words, for `verbose` logs and bug reports.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/vulkan/snapshot/snapshot.h"
#include "runtime/base/status.h"

namespace hekla::vulkan {

struct DeviceOptions {
  // VK_LAYER_KHRONOS_validation with synchronisation checks.
  bool validation = false;
  // A queue of its own for transfers, where the device has one.
  bool use_transfer_queue = true;
  // Zero-copy where the snapshot allows it; off: staging everywhere, as on a discrete GPU.
  bool use_host_visible_memory = true;
  // Bytes that tensors may take; 0: the budget.
  int64_t memory_limit_bytes = 0;
  // After which work that does not end is an error; 0: none.
  int64_t launch_timeout_seconds = 0;
  // As DevicePlan::wait_poll_microseconds; negative: by the device's type.
  int64_t wait_poll_microseconds = -1;
  // Names of Features that are treated as absent, so that one device tests the fallbacks of others.
  std::vector<std::string> masked_features;
};

// What the host may do with device memory at full speed.
enum class HostAccess : uint8_t {
  kNone,       // nothing: staging
  kWriteOnly,  // small writes; reads are uncached (resizable BAR)
  kFull,       // reads and writes: the memory is the host's own
};
std::string_view host_access_name(HostAccess access);

struct QueueIndex {
  uint32_t family = 0;
  uint32_t index = 0;
  bool operator==(const QueueIndex&) const = default;
};

struct DevicePlan {
  std::vector<std::string> extensions;  // to enable
  Features features;                    // to enable; what kernels may use
  QueueIndex compute;
  QueueIndex transfer;  // may be the compute queue itself
  bool has_transfer_queue() const { return !(compute == transfer); }

  // Memory types per role, best first; a buffer's requirements filter them further.
  std::vector<uint32_t> device_types;
  std::vector<uint32_t> upload_types;    // host writes, device reads
  std::vector<uint32_t> download_types;  // device writes, host reads
  std::vector<uint32_t> table_types;     // small, written per launch
  HostAccess host_access = HostAccess::kNone;

  uint32_t device_heap = 0;
  // Bytes that tensors may take, from the option, the driver's budget or 80 % of the heap.
  int64_t memory_limit_bytes = 0;
  // The largest allocation that the driver promises, and the largest that is tried.
  int64_t max_allocation_bytes = 0;
  int64_t max_buffer_bytes = 0;
  int64_t allocation_alignment = 256;

  int64_t launch_timeout_seconds = 0;  // the option's
  // For so long a wait asks the device again and again, about when it expects the end: a thread
  // that sleeps in the driver wakes up 0.1 ms late. 0: it sleeps.
  int64_t wait_poll_microseconds = 0;

  uint32_t max_push_constant_bytes = 128;
  std::array<uint32_t, 3> max_group_count = {65535, 65535, 65535};

  // "no transfer queue of its own: ..." and so on.
  std::vector<std::string> reasons;
};

// FAILED_PRECONDITION: the device lacks what the back end stands on, all of it named.
// INVALID_ARGUMENT: an option that does not make sense.
Result<DevicePlan> plan_device(const DeviceSnapshot& snapshot, const DeviceOptions& options);

// Which device an option means: an index in the drivers' order, a UUID, or a part of the name in
// any case; empty: the preferred usable one. NOT_FOUND lists what there is; FAILED_PRECONDITION:
// none is usable, with the reasons.
Result<size_t> choose_device(const std::vector<DeviceSnapshot>& devices, std::string_view wanted);

}  // namespace hekla::vulkan
