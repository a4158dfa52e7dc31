// SPDX-License-Identifier: Apache-2.0
// Options of the Vulkan client; docs/options.md is printed from their table.
#pragma once

#include "backends/pjrt/backend.h"
#include "backends/pjrt/client_options.h"
#include "backends/vulkan/device/plan.h"
#include "backends/vulkan/launch/device_program.h"

namespace hekla::vulkan {

struct BackendOptions {
  pjrt::CommonOptions common;
  bool fail_on_fallback = false;
  std::string wanted_device;
  std::string cache_folder;
  std::string device_type;      // empty: the device's own
  std::string masked_features;  // separated by commas
  bool is_staging = false;
  DeviceOptions device;
  ProgramOptions program;
};

pjrt::OptionTable option_table(BackendOptions& options);

// INVALID_ARGUMENT: an option that there is not, or a value that it cannot have.
Result<BackendOptions> read_options(const pjrt::Options& options);

}  // namespace hekla::vulkan
