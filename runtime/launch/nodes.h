// SPDX-License-Identifier: Apache-2.0
// launch_nodes: this machine's part of a run on several, see launcher.h.
#pragma once

#include "runtime/base/status.h"
#include "runtime/launch/launcher.h"
#include "runtime/launch/signals.h"

namespace hekla::launch {

// Blocking, from the main thread, which has taken over signals and children.
Result<int> launch_nodes(const LaunchOptions& options, const Signals& signals);

}  // namespace hekla::launch
