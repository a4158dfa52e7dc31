// SPDX-License-Identifier: Apache-2.0
// Leader: what a run on several machines does next, decided by the launcher that hosts its store,
// from what the nodes write there.
//
// Pure: step() gets the time and what stands in the store and gives the plan, so tests need neither
// sockets nor clocks. One thread at a time.
//
// An attempt ends when a rank fails (of several failures within half a second the node that was
// lost counts first, then who was killed by a signal, then who was earliest), when a node is lost
// or leaves, or when one comes and there is room. The first two cost a restart, unless all ranks
// that failed ended with kPreempted. The next one begins when the ranks of the last are gone on all
// nodes that are there and there are enough nodes. Where a node that is there does not say that,
// half a minute after its grace and its silence, the run ends: two attempts never run at once.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launch/node_state.h"

namespace hekla::launch {

// Where the ranks of an attempt meet.
struct Meeting {
  std::string store, address;
  int port = 0;
};

struct LeaderOptions {
  int min_nodes = 1, max_nodes = 1, max_restarts = 0;
  std::chrono::milliseconds join_timeout{}, last_call{}, silence{}, grace{};
};

class Leader {
 public:
  using Clock = std::chrono::steady_clock;
  // `own`: the node that hosts the store; it gets rank 0. `meeting` is made anew for each attempt.
  Leader(const LeaderOptions& options, std::string own, std::function<Result<Meeting>()> meeting)
      : options_(options), own_(std::move(own)), make_meeting_(std::move(meeting)) {}

  // Keys in the store: "node/NODE/card", ".../beat", ".../report".
  struct Nodes {
    std::map<std::string, std::string> values;
    std::set<std::string> lost;  // nodes whose processes are gone
  };
  const Plan& step(Clock::time_point now, const Nodes& nodes);
  // The run ends, with the signal, once all ranks have.
  void shut_down(int signal) { signal_ = signal; }
  // Has been counted as lost: what it has written goes, by which it sees that.
  bool is_gone(const std::string& node) const { return gone_.contains(node); }
  // Nobody but the leader's own node is there any more.
  bool is_alone() const;

 private:
  struct Node {
    NodeCard card;
    NodeReport report;
    std::string beat;
    Clock::time_point heard;
  };
  enum class Phase { kGathering, kRunning, kStopping, kEnded };

  void read(Clock::time_point now, const Nodes& nodes);
  void gather(Clock::time_point now);
  void begin(const std::vector<std::string>& chosen);
  void watch(Clock::time_point now);
  void judge();
  void wait_for_stop(Clock::time_point now);
  void stop(std::string news);
  void end(int exit_code, std::string news);
  void change(Plan::Kind kind, std::string news);
  void note(std::string news);
  // Nodes that may run ranks: the leader's own, then those of the last attempt, then by joining.
  std::vector<std::string> candidates() const;
  bool is_here(const std::string& node) const { return nodes_.contains(node); }
  // Its ranks of this attempt have, or it is not there any more.
  bool has_ended(const Plan::Seat& seat) const;
  bool all_seats_ended() const;
  std::string list(const std::vector<std::string>& nodes) const;

  const LeaderOptions options_;
  const std::string own_;
  const std::function<Result<Meeting>()> make_meeting_;
  Plan plan_;
  Phase phase_ = Phase::kGathering;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::string> gone_;  // nodes that never come back, and why they went
  std::optional<Clock::time_point> gather_until_, call_until_, judge_at_, stopped_;
  int restarts_ = 0;
  bool is_first_ = true;   // no attempt has begun
  int signal_ = 0;         // why the run ends
  bool must_end_ = false;  // when the ranks have
  int exit_code_ = 0;
};

}  // namespace hekla::launch
