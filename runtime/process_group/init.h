// SPDX-License-Identifier: Apache-2.0
// init_process_group: the group of all processes of a run, found by an address, as torch's function
// of that name does it.
//
//   env://            what the launcher has set (runtime/rendezvous/place.h): HEKLA_STORE, or rank
//   0
//                     listens at the address and port that the launcher's variables come to
//   tcp://HOST:PORT   rank 0 listens there; an address of IPv6 in brackets
//   file://DIR        a folder that all processes see, new for each run
//
// "?rank=R&world_size=N" behind an address says what the environment does not. A port that rank 0
// listens on for others to find it has no secret: use it in networks that you trust, or a store of
// the launcher's, which has one.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/process_group/process_group.h"
#include "runtime/rendezvous/place.h"

namespace hekla::process_group {

// Waits for all processes, no longer than options.timeout. INVALID_ARGUMENT: no such address, or
// what is missing in the environment.
Result<std::shared_ptr<ProcessGroup>> init_process_group(std::string_view method = "env://",
                                                         const Options& options = {});
// The same for a place that is known.
Result<std::shared_ptr<ProcessGroup>> init_process_group(std::string_view method,
                                                         rendezvous::Place place,
                                                         const Options& options);

}  // namespace hekla::process_group
