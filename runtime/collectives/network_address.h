// SPDX-License-Identifier: Apache-2.0
// Which address of this machine other machines reach it by. Thread-safe; asks the kernel and, for
// names, the resolver.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::collectives {

// A numeric address. `wanted`: an interface's name, an address or a name of this machine; empty:
// that of the route to the `coordinator` ("host", "host:port", "[v6]:port"); where that is empty
// too, of the default route, else of the first interface that is up, at last the loopback's.
// INVALID_ARGUMENT: what is wanted is not of this machine; UNAVAILABLE: the coordinator's name has
// no address, or no route leads there.
Result<std::string> own_network_address(std::string_view wanted, std::string_view coordinator);

}  // namespace hekla::collectives
