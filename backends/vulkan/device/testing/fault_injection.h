// SPDX-License-Identifier: Apache-2.0
// Errors from the driver, at a chosen call: for tests.
//
// inject_faults() puts a counting shim in front of every entry point that answers with a VkResult.
// While a fault is armed, the call with its number fails without reaching the driver, and after a
// loss so do all later ones that can. One device at a time in a process.
#pragma once

#include "backends/vulkan/device/device.h"

namespace hekla::vulkan::testing {

struct Faults {
  // Calls since reset; the fault strikes at call number `at` (from 0), never when negative.
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> at{-1};
  std::atomic<VkResult> result{VK_ERROR_OUT_OF_DEVICE_MEMORY};
  std::atomic<bool> has_struck{false};
  // The entry point that was struck.
  std::atomic<const char*> where{nullptr};

  void arm(int64_t call, VkResult with);
  void disarm();
};

// Installs the shims into the device's table; the faults live as long as the process.
Faults& inject_faults(Device& device);

// As if the driver promised allocations of so many bytes and no larger ones.
inline void promise_allocations(Device& device, int64_t bytes) {
  const_cast<DevicePlan&>(device.plan()).max_allocation_bytes = bytes;
}
// And as if it made none that are larger. One device at a time in a process.
inline void refuse_allocations(Device& device, int64_t bytes) {
  promise_allocations(device, bytes);
  static VkDeviceSize most;
  static PFN_vkAllocateMemory driver;
  most = static_cast<VkDeviceSize>(bytes);
  driver = device.call().AllocateMemory;
  const_cast<DeviceFunctions&>(device.call()).AllocateMemory =
      [](VkDevice handle, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* callbacks,
         VkDeviceMemory* memory) {
        if (info->allocationSize > most) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
        return driver(handle, info, callbacks, memory);
      };
}

}  // namespace hekla::vulkan::testing
