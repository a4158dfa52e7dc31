// SPDX-License-Identifier: Apache-2.0
// LaunchContext: what a program that the evaluator runs knows of the launch that it is a part of.
// Plain data; what it points to belongs to the launch and outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "runtime/base/host_transfers.h"

namespace hekla::ffi {
class LaunchCalls;
}

namespace hekla::pjrt {
class CollectiveCounters;
}

namespace hekla::reference {

class DeviceExchange;

struct LaunchContext {
  // Which device of the launch this is.
  int64_t replica_id = 0;
  int64_t partition_id = 0;
  // How often the executable was launched before: each launch has other random numbers.
  uint32_t launch_number = 0;
  // Bytes of live values, arguments included.
  int64_t memory_limit_bytes = std::numeric_limits<int64_t>::max();
  // Looked at between operations; CANCELLED soon after it becomes true. Null: never.
  const std::atomic<bool>* cancelled = nullptr;
  // Where the devices of the launch meet in collectives, which wait there for each other; null: a
  // launch of one device. Whoever cancels the launch also aborts the exchange, which does not look
  // at `cancelled`; whoever made it says when a device has finished.
  DeviceExchange* exchange = nullptr;
  // What the device's collectives are counted by; null: by nothing.
  pjrt::CollectiveCounters* collectives = nullptr;
  // Where sends to the host and receives from it go; null: they are errors.
  HostTransfers* transfers = nullptr;
  // For custom calls that the user's own functions compute; null: they are errors.
  ffi::LaunchCalls* calls = nullptr;
  // The device, among this process's, whose line shows a profiler what happens; -1: none does.
  int device = -1;
};

}  // namespace hekla::reference
