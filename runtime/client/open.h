// SPDX-License-Identifier: Apache-2.0
// open_client: from the name of a device, or from the environment, to a Client.
//
// PJRT_DEVICE (or the caller) names a plugin of the registry, in any case, or the path of a
// library. Without a name the best usable device is taken, in this order:
//   1. vulkan, if its first device is not a CPU (attribute "device_type" other than "cpu")
//   2. cpu
//   3. vulkan on a CPU-type device
//   4. reference
// One log line names the choice and says why each better one was not taken. Foreign libraries are
// first probed in a child process (probe.h), so that one that aborts or hangs costs an error;
// HEKLA_PROBE=0 leaves that out. Blocking; thread-safe.
#pragma once

#include <string_view>

#include "runtime/client/client.h"
#include "runtime/plugin/registry.h"

namespace hekla::runtime {

// `device`: a name or path; empty takes PJRT_DEVICE, and the best device where that is empty too.
// `options` win over HEKLA_CLIENT_OPTIONS. Errors list the plugins that there are.
Result<Client> open_client(std::string_view device = "", const Options& options = {},
                           const Registry& registry = Registry::instance());

}  // namespace hekla::runtime
