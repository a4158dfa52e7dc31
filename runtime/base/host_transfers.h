// SPDX-License-Identifier: Apache-2.0
// HostTransfers: where the sends and receives of a program meet the host that launched it.
//
// One serves one device of one launch, whose steps call it in the order of the program, one at a
// time. Calls run code of the client, which may block, take locks of its own language and launch
// other programs: call with no lock held, and never on a thread that another launch may need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/status.h"

namespace hekla {

class HostTransfers {
 public:
  virtual ~HostTransfers() = default;
  // Hands the dense bytes to the host, which has its own copy of them afterwards. The host's error,
  // in its words; FAILED_PRECONDITION: the launch named no callback for the channel.
  virtual Status send(int64_t channel, std::span<const std::byte> bytes) = 0;
  // Fills `bytes`; blocks until the host has given all of them. INTERNAL: it gave up before.
  virtual Status receive(int64_t channel, std::span<std::byte> bytes) = 0;
};

}  // namespace hekla
