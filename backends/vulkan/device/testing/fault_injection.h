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

}  // namespace hekla::vulkan::testing
