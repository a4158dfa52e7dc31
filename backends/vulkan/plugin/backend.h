// SPDX-License-Identifier: Apache-2.0
// The Vulkan device behind the Backend interface; options.h lists the client's options.
#pragma once

#include "backends/pjrt/backend.h"

namespace hekla::vulkan {

// INVALID_ARGUMENT: options; UNAVAILABLE, NOT_FOUND, FAILED_PRECONDITION: no loader, driver or
// usable device, in words.
Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options);

}  // namespace hekla::vulkan
