// SPDX-License-Identifier: Apache-2.0
// spawn: the ranks of a run on this machine as forked copies of this process, for programs that
// need no launcher.
//
//   Status status = spawn(4, [](int rank) { return train(*init_process_group()); });
//
// Each copy has RANK, WORLD_SIZE, their LOCAL_, GROUP_ and ROLE_ kin, MASTER_ADDR, HEKLA_LAUNCH and
// HEKLA_STORE as `hekla launch` sets them, so init_process_group finds the others; not MASTER_PORT
// and TORCHELASTIC_*, which are of a launcher's store and restarts.
// What the caller has computed is there as well. Other threads are not: call it before there are
// any, and before a device is opened.
#pragma once

#include <chrono>
#include <functional>

#include "runtime/base/status.h"

namespace hekla::launch {

struct SpawnOptions {
  std::chrono::milliseconds grace = std::chrono::seconds(10);  // from SIGTERM to SIGKILL
};

// Blocking, until all have ended; a copy exits with what `body` returns, or with 1 and a line on
// stderr where that is no exit code or an exception leaves `body`. ABORTED: the rank that failed
// first and how, after which the others were ended; where SIGCHLD is ignored or something else
// waits for the copies nobody knows how they ended, which counts as failed. INVALID_ARGUMENT,
// UNAVAILABLE: no copies. Copies die with the thread that calls.
Status spawn(int count, const std::function<int(int rank)>& body, const SpawnOptions& options = {});

}  // namespace hekla::launch
