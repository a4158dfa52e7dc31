// SPDX-License-Identifier: Apache-2.0
// NodeCard, NodeReport, Plan: what launchers of a run on several machines write for each other into
// their store. Read from other processes: nothing is believed. Plain values.
//
// A node is a launcher that has joined; one that has been lost and comes again is another node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/launch/local_ranks.h"

namespace hekla::launch {

struct NodeCard {
  std::string host;    // its name, for messages
  int nproc = 1;       // ranks that it runs
  int64_t number = 0;  // in the order of joining

  std::string text() const;
  static Result<NodeCard> read(std::string_view text);
};

// What a node says of its ranks in an attempt.
struct NodeReport {
  int64_t attempt = -1;    // -1: it has had none
  bool has_ended = false;  // none of its ranks runs any more
  bool is_leaving = false;
  bool all_saved = true;  // see LocalRanks
  std::optional<Failure> failure;

  std::string text() const;
  static Result<NodeReport> read(std::string_view text);
};

// What all are to do.
struct Plan {
  enum class Kind : uint8_t {
    kGather,  // wait for machines
    kRun,     // run `attempt`
    kStop,    // end the ranks of `attempt`
    kEnd,     // end with exit_code
  };
  struct Seat {
    std::string node, host;
    int first_rank = 0, ranks = 0;
  };
  int64_t version = 0;  // grows with each change
  Kind kind = Kind::kGather;
  int64_t attempt = -1;
  int exit_code = 0;
  std::vector<Seat> seats;  // of the attempt, by GROUP_RANK
  std::string store;        // HEKLA_STORE
  std::string address;      // MASTER_ADDR
  int port = 0;             // MASTER_PORT
  // What each node says to its user, by version; of late changes.
  std::vector<std::pair<int64_t, std::string>> news;

  int size() const { return seats.empty() ? 0 : seats.back().first_rank + seats.back().ranks; }
  // -1: it has none.
  int seat_of(std::string_view node) const;
  std::string text() const;
  static Result<Plan> read(std::string_view text);
};

}  // namespace hekla::launch
