// SPDX-License-Identifier: Apache-2.0
// Host callbacks: the send and receive callbacks of PJRT_ExecuteOptions as a launch's
// HostTransfers, and the streams that receive callbacks are handed.
//
// A value that is sent goes in one chunk, row-major, in memory of its own. A stream belongs to the
// client's callback, which fills it from any thread and destroys it; the launch waits until it is
// full or gone. Functions and user arguments stay the client's, valid until the launch has ended.
//
// A callback may launch programs, also gangs on the devices of its own launch, from any thread, and
// wait for them: its launch holds up no other, and launches that need its results stand before
// nobody (backend.h). What it must not wait for is what needs the results of its own launch.
#pragma once

#include <memory>
#include <vector>

#include "backends/pjrt/gang.h"
#include "plugin_api/pjrt_c_api.h"
#include "runtime/base/host_transfers.h"
#include "runtime/program/ir/ir.h"

namespace hekla::pjrt {

// The channels on which a program meets its host.
struct HostChannels {
  std::vector<int64_t> sends, receives;  // sorted
  bool any() const { return !sends.empty() || !receives.empty(); }
};
HostChannels host_channels(const ir::Module& module);

// For the device that is number `device` in the lists of `options`; `gang` may be null. Null where
// the program has no channels. INVALID_ARGUMENT: a channel without a callback.
Result<std::shared_ptr<HostTransfers>> make_host_transfers(const HostChannels& channels,
                                                           const PJRT_ExecuteOptions* options,
                                                           size_t device, GangRef gang);

}  // namespace hekla::pjrt
