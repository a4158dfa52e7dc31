// SPDX-License-Identifier: Apache-2.0
// ProcessState: what a process says of its part in a launch when it has come to a stop: where its
// devices wait and for whom, and how many messages it has sent to each other process and received
// from it. StuckProcesses finds out from those of all whether the launch can still go on.
//
// A process says so when none of its devices can go on without another process, or when all have
// finished. Such a one does nothing until a message reaches it. So where all have come to a stop
// and each has received what was sent to it, nobody will ever do anything: the states need not be
// of one moment. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::reference {

struct ProcessState {
  struct Waiting {
    int64_t device = 0;
    std::string where;
    std::vector<int64_t> others;  // that have not come
  };
  struct Count {
    int64_t sent = 0;      // to that process
    int64_t received = 0;  // from it
    bool operator==(const Count&) const = default;
  };
  std::vector<Waiting> waiting;
  std::map<int, Count> counts;  // by other process

  std::string text() const;
  // INVALID_ARGUMENT: malformed.
  static Result<ProcessState> read(std::string_view text);
};

class StuckProcesses {
 public:
  // What a process says; counts until it goes on, which a message of it shows.
  void set(int process, ProcessState state) { states_[process] = std::move(state); }
  void goes_on(int process) { states_.erase(process); }

  // All waits, where all of `processes` have come to a stop for good with some waiting.
  std::optional<std::vector<ProcessState::Waiting>> endless(
      const std::vector<int>& processes) const;

 private:
  std::map<int, ProcessState> states_;
};

}  // namespace hekla::reference
