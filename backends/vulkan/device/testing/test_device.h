// SPDX-License-Identifier: Apache-2.0
// The Vulkan device that tests run on, with validation where its layer is installed.
//
// A test that needs a device begins with HEKLA_VULKAN_TEST_DEVICE(device, options); on a machine
// without Vulkan it is skipped in words. no_validation_messages() fails a test that made the layer
// speak.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/vulkan/device/device.h"

namespace hekla::vulkan::testing {

inline Result<std::shared_ptr<Device>> open_test_device(DeviceOptions options = {}) {
  [[maybe_unused]] static const bool kHasValidation = [] {
    Result<std::vector<LayerInfo>> layers = list_layers();
    return layers.ok() && std::any_of(layers->begin(), layers->end(), [](const LayerInfo& layer) {
             return layer.name == "VK_LAYER_KHRONOS_validation";
           });
  }();
  // Keeps the driver loaded, so that what it allocates once per process stays reachable.
  static const auto* kKept = new Result<QueryInstance>(QueryInstance::create());
  (void)kKept;
#ifdef HEKLA_SANITIZED
  // The layer's synchronisation checks (1.3.239) leak their state of each command buffer, from
  // frames that are unloaded before the leak checker looks, and its locks are not instrumented. The
  // ordinary build has validation, these look at our memory and threads.
  options.validation = false;
#else
  options.validation = kHasValidation;
#endif
  return Device::open("", options);
}

inline ::testing::AssertionResult no_validation_messages() {
  if (validation_message_count() == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << validation_message_count() << " validation messages";
}

}  // namespace hekla::vulkan::testing

#define HEKLA_VULKAN_TEST_DEVICE(device, options)                                               \
  std::shared_ptr<::hekla::vulkan::Device> device;                                              \
  {                                                                                             \
    auto opened = ::hekla::vulkan::testing::open_test_device(options);                          \
    if (!opened.ok() && (opened.status().code() == ::hekla::StatusCode::kUnavailable ||         \
                         opened.status().code() == ::hekla::StatusCode::kFailedPrecondition)) { \
      GTEST_SKIP() << opened.status().to_string();                                              \
    }                                                                                           \
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();                                    \
    device = *opened;                                                                           \
  }
