// SPDX-License-Identifier: Apache-2.0
// launch: the processes of a run on this machine, as torchrun starts them.
//
// Each rank gets torchrun's variables and HEKLA_STORE, a store that this process hosts for as long
// as the attempt lasts. What ranks write is passed on line by line with the rank in front. The
// first rank that fails ends the others (SIGTERM, SIGKILL after a while); it is named with its
// cause, and the run is started again while there are restarts left. A rank that ends with
// kPreempted (75) has saved its state and asks to be started again, which costs no restart. SIGINT,
// SIGTERM and SIGHUP are passed on to all ranks.
//
// Nothing is left behind: what ranks have started ends with them, and ranks die with this process,
// however that ends. Blocking; from the main thread of a process that does nothing else, since it
// takes over signals and children.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::launch {

inline constexpr int kPreempted = 75;

struct LaunchOptions {
  std::vector<std::string> command;  // a program, found in PATH, and its arguments
  int nproc = 1;
  int max_restarts = 0;
  std::chrono::milliseconds grace = std::chrono::seconds(10);  // from SIGTERM to SIGKILL
  std::string run_id = "none";
  std::string address = "127.0.0.1";  // MASTER_ADDR
  int port = 0;                       // MASTER_PORT; 0: one that is free
  bool has_prefix = true;
};

// What the run ends with: 0 when all ranks did, the exit code of the rank that failed first, 128
// and a signal's number where one ended it or was passed on. INVALID_ARGUMENT, UNAVAILABLE,
// RESOURCE_EXHAUSTED: the ranks could not be started.
Result<int> launch(const LaunchOptions& options);

}  // namespace hekla::launch
