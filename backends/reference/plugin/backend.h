// SPDX-License-Identifier: Apache-2.0
// The reference device: the evaluator behind the Backend interface.
//
// Storage is host memory. Each logical device has one worker thread that runs its launches in the
// order they came; copies run at once on the caller's thread. It is slow, right, and the smallest
// complete example of a backend.
//
// Client options: num_devices (1), memory_limit_bytes per device (the machine's memory); the
// environment variables HEKLA_NUM_DEVICES and HEKLA_MEMORY_LIMIT give their defaults.
#pragma once

#include "backends/pjrt/backend.h"

namespace hekla::reference {

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options);

}  // namespace hekla::reference
