// SPDX-License-Identifier: Apache-2.0
// Which physical devices a client's option `vulkan_device` means: one, or several.
//
// Pure; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan {

// Numbers in the drivers' order. What choose_device takes is one device; "all" is all that can be
// used, the preferred ones first, without those in software where there is a GPU; a list with
// commas is one device for each of its entries: a part of a name means the first device that has it
// and is not in the list yet; a device that is named twice is opened twice. Errors are
// choose_device's.
Result<std::vector<size_t>> choose_devices(const std::vector<DeviceSnapshot>& devices,
                                           std::string_view wanted);

}  // namespace hekla::vulkan
