// SPDX-License-Identifier: Apache-2.0
// The reference device: the evaluator behind the Backend interface.
//
// Storage is host memory. Each logical device has one worker thread that runs its launches in the
// order they came; copies run at once on the caller's thread. It is slow, right, and the smallest
// complete example of a backend.
// docs/options.md has its client options.
#pragma once

#include "backends/pjrt/backend.h"
#include "backends/pjrt/client_options.h"

namespace hekla::reference {

pjrt::OptionTable option_table(pjrt::CommonOptions& options);

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options);

}  // namespace hekla::reference
