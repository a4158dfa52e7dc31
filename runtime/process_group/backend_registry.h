// SPDX-License-Identifier: Apache-2.0
// Backends of process groups by name: how the processes of a group exchange messages. Those of
// Hekla ("auto", "auto_ucx", "shm", "gloo", "ucx"; runtime/collectives/process_transport.h), those
// that a program registers, and those of libraries that HEKLA_GROUP_BACKENDS names, separated as
// PATH is (plugin_api/hekla_group_backend.h), which are opened when a name is first looked for.
//
// A backend carries messages; collectives and all else are made of them. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin_api/hekla_group_backend.h"
#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"
#include "runtime/collectives/transport.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::process_group {

struct Options;

struct BackendArgs {
  std::shared_ptr<rendezvous::KeyValueStore> store;  // no call waits beyond the deadline
  std::string prefix;                                // of the group's keys
  int rank = 0, size = 1;
  collectives::Transport::Events events;
  const Options& options;
  Deadline deadline;
};

struct Backend {
  std::string name;
  std::vector<std::string> devices;  // whose memory it reads and writes
  // Waits for all processes, which are connected then.
  std::function<Result<std::unique_ptr<collectives::Transport>>(BackendArgs)> create;
};

// ALREADY_EXISTS: the name is taken; INVALID_ARGUMENT: it is none, or something is missing.
Status register_backend(Backend backend);
// The same of a table, which stays. FAILED_PRECONDITION: it is of another version.
Status register_backend(const hekla_backend_table* table);
// "NAME", or "DEVICE:NAME, ..." of which the one for `device` counts. NOT_FOUND names those that
// there are; FAILED_PRECONDITION: it is not for that device, or a library cannot be had.
Result<Backend> find_backend(std::string_view selection, std::string_view device = "cpu");
std::vector<std::string> backend_names();
// What is wrong with the first library of HEKLA_GROUP_BACKENDS that cannot be had.
Status backend_libraries();

}  // namespace hekla::process_group
