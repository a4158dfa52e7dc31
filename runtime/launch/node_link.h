// SPDX-License-Identifier: Apache-2.0
// NodeLink: a launcher's membership of a run on several machines: shows that it lives, brings its
// reports to the run's store and the plan back; on the machine that hosts the store it lets the
// leader decide.
//
// A thread of its own does that, so that a store that does not answer holds nothing up. Owned by
// the thread that launches, which alone calls it. Once an answer takes longer than half the silence
// after which the others count this machine as lost, the link is lost for good; so it is when this
// process itself has not run for that long.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"
#include "runtime/launch/leader.h"
#include "runtime/launch/node_state.h"
#include "runtime/rendezvous/tcp_store.h"

namespace hekla::launch {

// "HOST:PORT", "[ADDRESS]:PORT".
struct Endpoint {
  std::string host;
  int port = 0;
  static Result<Endpoint> read(std::string_view text);
};

class NodeLink {
 public:
  struct Options {
    Endpoint store;
    std::string token;
    std::string own_server;  // TcpStoreServer::id() where this launcher hosts the store
    std::string host;        // this machine's name
    int nproc = 1;
    std::chrono::milliseconds silence{};
  };
  // Makes the leader of this node; empty: another node leads.
  using MakeLeader = std::function<std::unique_ptr<Leader>(std::string own)>;
  // UNAVAILABLE: nobody has answered until the deadline, or nobody leads there yet;
  // UNAUTHENTICATED: another run is there; ALREADY_EXISTS: another launcher hosts the store, so
  // this one does not lead; FAILED_PRECONDITION: the leader's silence is another.
  static Result<std::unique_ptr<NodeLink>> join(const Options& options, const MakeLeader& make,
                                                Deadline deadline);
  // Leaves, unless it is lost.
  ~NodeLink();

  const std::string& node() const { return node_; }
  // Readable when there is a new plan or the link is lost; for poll.
  int event() const { return event_; }
  void clear_event() const;
  Plan plan() const;
  // Why it is lost; ok: it is not.
  Status status() const;
  void report(const NodeReport& report);
  // Of the leader's: see Leader.
  bool is_leading() const { return leader_ != nullptr; }
  void shut_down(int signal);
  bool is_alone() const;

 private:
  explicit NodeLink(const Options& options) : options_(options) {}
  void work(std::stop_token stop);
  Status beat(int64_t number);
  // All have the same silence, or some would end their ranks too late.
  Status agree_on_silence() const;
  // The leader removes what nodes have written that it counts as lost.
  Status check_membership() const;
  Status lead();
  void set_plan(Plan plan);
  std::string key(const char* what) const { return "node/" + node_ + "/" + what; }

  const Options options_;
  std::string node_;
  int event_ = -1;
  std::unique_ptr<rendezvous::TcpStore> store_;  // of the thread's

  mutable std::mutex mutex_;
  std::unique_ptr<Leader> leader_;  // guarded by mutex_, as the next four
  Plan plan_;
  Status status_;
  std::string report_;
  bool has_report_ = false;
  std::jthread thread_;  // last: uses the rest
};

}  // namespace hekla::launch
