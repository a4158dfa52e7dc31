// SPDX-License-Identifier: Apache-2.0
// launch: the processes of a run, as torchrun starts them, on this machine or on several.
//
// Each rank gets torchrun's variables and HEKLA_STORE, a store that this process hosts for as long
// as the attempt lasts. What ranks write is passed on line by line with the rank in front. The
// first rank that fails ends the others (SIGTERM, SIGKILL after a while); it is named with its
// cause, and the run is started again while there are restarts left. A rank that ends with
// kPreempted (75) has saved its state and asks to be started again, which costs no restart. SIGINT,
// SIGTERM and SIGHUP are passed on to all ranks.
//
// On several machines each has a launcher of its own, started with the same options. The one on
// whose machine `rendezvous` is hosts what they agree through and decides for all (leader.h): the
// run begins when there are min_nodes of them, and starts again with as many as there are when one
// fails, is lost, leaves or comes. Without the machine that decides there is no run.
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
  // Where ranks record their calls to process groups, an attempt in a folder each; empty: in a
  // temporary folder, which goes with the run. What they say of a failure is said with it.
  std::string flight_folder;

  // Of a run on several machines; empty: on this one. "HOST:PORT" or "[ADDRESS]:PORT", where one of
  // the launchers listens; `address` and `port` are not looked at then. Who does not give the same
  // run_id is not let in, so it must be given, and be one that nobody guesses. What launchers say
  // to each other is not encrypted: who can listen to the network can read it.
  std::string rendezvous;
  int min_nodes = 1, max_nodes = 1;
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);  // until there are min_nodes
  // How long the first attempt waits for more machines once there are enough.
  std::chrono::milliseconds last_call = std::chrono::seconds(5);
  // The same on all machines: after which one that says nothing is lost. After half of it a machine
  // that hears nothing ends its ranks, which have ended before others start again.
  std::chrono::milliseconds silence = std::chrono::seconds(10);
};

// What the run ends with: 0 when all ranks did, the exit code of the rank that failed first, 128
// and a signal's number where one ended it or was passed on. INVALID_ARGUMENT, UNAVAILABLE,
// RESOURCE_EXHAUSTED: the ranks could not be started. On several machines 1 as well: one was lost
// when no restarts were left, fewer than min_nodes came in join_timeout, or ranks did not vanish.
// UNAVAILABLE: nobody answered at `rendezvous` for join_timeout; UNAUTHENTICATED: another run is
// there.
Result<int> launch(const LaunchOptions& options);

}  // namespace hekla::launch
