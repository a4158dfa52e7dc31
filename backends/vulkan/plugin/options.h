// SPDX-License-Identifier: Apache-2.0
// Options of the Vulkan client: what may be set, from where, with which default.
//
//   option              environment               default
//   num_devices         HEKLA_NUM_DEVICES         1; logical devices cut from the physical one
//   memory_limit_bytes  HEKLA_MEMORY_LIMIT        per logical device; the budget, shared out
//   vulkan_device       HEKLA_VULKAN_DEVICE       index, UUID or part of the name; the best one
//   vulkan_validation   HEKLA_VULKAN_VALIDATION   0
//   vulkan_staging      HEKLA_VULKAN_STAGING      0; 1: no zero-copy, as on a discrete GPU
//   vulkan_mask         HEKLA_VULKAN_MASK         features to treat as absent, "f16,i64"
//   vulkan_device_type  HEKLA_VULKAN_DEVICE_TYPE  discrete, integrated, virtual, cpu: kernels
//                                                 as for such a device; the device's own
//   check_barriers      HEKLA_CHECK_BARRIERS      in debug builds; the second hazard algorithm
//   all_barriers        HEKLA_ALL_BARRIERS        0; a barrier in front of every dispatch
//   vulkan_profile      HEKLA_VULKAN_PROFILE      0; 1: log the device's time of launches
//   vulkan_launch_timeout  HEKLA_VULKAN_LAUNCH_TIMEOUT
//                                                 0: none; seconds after which work that does not
//                                                 end is an error. A loop that goes on in
//                                                 submission after submission ends its launch with
//                                                 DEADLINE_EXCEEDED, one submission that does not
//                                                 end counts as the loss of the device
//   cache_dir           HEKLA_CACHE_DIR           "hekla" in XDG_CACHE_HOME or ~/.cache
#pragma once

#include "backends/pjrt/backend.h"
#include "backends/vulkan/device/plan.h"
#include "backends/vulkan/launch/device_program.h"

namespace hekla::vulkan {

struct BackendOptions {
  int64_t device_count = 1;
  std::string wanted_device;
  std::string cache_folder;
  std::string device_type;  // empty: the device's own
  DeviceOptions device;
  ProgramOptions program;
};

// INVALID_ARGUMENT: an option that there is not, or a value that it cannot have.
Result<BackendOptions> read_options(const pjrt::Options& options);

}  // namespace hekla::vulkan
