// SPDX-License-Identifier: Apache-2.0
// The processes of a run: which of them this client is, what they agree through, and whose devices
// there are.
//
// A client of several processes says so with the options node_id and num_nodes and brings callbacks
// to a key-value store; without them the callbacks hold garbage and nobody touches them. Each
// process puts a description of its devices into the store and reads those of the others; devices
// are numbered from process 0 on. Thread-safe where not said otherwise.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/pjrt/backend.h"
#include "backends/pjrt/client_options.h"
#include "plugin_api/pjrt_c_api.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::pjrt {

using rendezvous::KeyValueStore;

// The store behind the callbacks of PJRT_Client_Create, which stay valid as long as the client.
// INVALID_ARGUMENT: get or put is missing. Only for clients of several processes.
Result<std::shared_ptr<KeyValueStore>> make_key_value_store(const PJRT_Client_Create_Args& args);

struct ProcessOptions {
  int64_t index = 0;
  int64_t count = 1;
  int64_t partition_index = -1;  // -1: the client says none
};
OptionTable process_option_table(ProcessOptions& options);
// Takes these options out of `options`. INVALID_ARGUMENT: an index that is not one of `count`.
Result<ProcessOptions> take_process_options(Options& options);

// The devices of all processes in their order, from each one's own. Blocks until all have come, two
// minutes at most. INVALID_ARGUMENT: another process's description is malformed.
Result<std::vector<std::vector<DeviceInfo>>> exchange_devices(KeyValueStore& store,
                                                              const std::string& platform,
                                                              const ProcessOptions& process,
                                                              std::vector<DeviceInfo> own);

}  // namespace hekla::pjrt
