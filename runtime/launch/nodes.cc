// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/nodes.h"

#include <arpa/inet.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/host.h"
#include "runtime/launch/flight_records.h"
#include "runtime/launch/leader.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/node_link.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::launch {
namespace {

using rendezvous::TcpStoreServer;

// Where to listen for those that come to `host`. A name may mean another address on its own machine
// than on the others.
std::string listening(const std::string& host) {
  in6_addr ignored;
  const bool is_address = ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
                          ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
  return is_address ? host : "";
}

constexpr std::chrono::milliseconds kLookForSignals(500), kTryAgain(100);

class NodeRun {
 public:
  NodeRun(const LaunchOptions& options, const Signals& signals, Endpoint endpoint)
      : options_(options),
        signals_(signals),
        endpoint_(std::move(endpoint)),
        flight_(options.flight_folder, true) {}

  Result<int> run() {
    for (;;) {
      HEKLA_RETURN_IF_ERROR(join());
      if (link_ == nullptr) return 128 + signal_;
      const std::optional<int> code = serve();
      ranks_.reset();
      kill_strays();
      if (code) return *code;
      if (signal_ != 0) return 128 + signal_;
      const Status why = link_->status();
      link_.reset();
      if (server_ != nullptr) return why;
      say(
          fmt::format("this machine was cut off from the run at {}: {}; its ranks were ended, and "
                      "it tries to join again",
                      options_.rendezvous, why.message()));
    }
  }

 private:
  // Hosts the store where that is this machine's part and nobody does it yet.
  Status host() {
    if (server_ != nullptr || is_follower_) return ok_status();
    // Whether it is, is asked with a port that is free: a name's own listener has all addresses. A
    // name that is not known yet is nobody's.
    if (!TcpStoreServer::start(endpoint_.host, 0, "").ok()) return ok_status();
    Result<std::unique_ptr<TcpStoreServer>> server =
        TcpStoreServer::start(listening(endpoint_.host), endpoint_.port, options_.run_id);
    // Another launcher of this machine may have it.
    if (server.status().code() == StatusCode::kAlreadyExists) return ok_status();
    HEKLA_RETURN_IF_ERROR(server.status());
    server_ = *std::move(server);
    return ok_status();
  }

  Result<Meeting> meeting() {
    const std::string at = listening(endpoint_.host), token = random_hex(16);
    HEKLA_ASSIGN_OR_RETURN(auto server, TcpStoreServer::start(at, 0, token));
    HEKLA_ASSIGN_OR_RETURN(const auto free_one, TcpStoreServer::start(at, 0, token));
    attempt_server_ = std::move(server);
    return Meeting{fmt::format("tcp:{}@{}:{}", token, endpoint_.host, attempt_server_->port()),
                   endpoint_.host, free_one->port()};
  }

  // Without a link where a signal has come meanwhile.
  Status join() {
    const NodeLink::MakeLeader make_leader = [this](std::string own) {
      return std::make_unique<Leader>(
          LeaderOptions{options_.min_nodes, options_.max_nodes, options_.max_restarts,
                        options_.join_timeout, options_.last_call, options_.silence,
                        options_.grace},
          std::move(own), [this] { return meeting(); });
    };
    NodeLink::Options own = {endpoint_,   options_.run_id, "",
                             host_name(), options_.nproc,  options_.silence};
    const Deadline deadline = Deadline::in(options_.join_timeout);
    bool has_said = false;
    while (link_ == nullptr) {
      // Once it has been one of the others, a machine cannot begin another run by itself.
      if (!has_joined_) HEKLA_RETURN_IF_ERROR(host());
      own.own_server = server_ != nullptr ? server_->id() : "";
      auto link = NodeLink::join(own, server_ != nullptr ? make_leader : nullptr,
                                 Deadline::in(kLookForSignals));
      const StatusCode code = link.status().code();
      if (link.ok()) link_ = *std::move(link);
      if (code == StatusCode::kAlreadyExists) {
        // An address that this machine may listen at is not always its own.
        server_.reset();
        is_follower_ = true;
        continue;
      }
      // A name may become known when the machine that has it comes up.
      const bool is_no_name = code == StatusCode::kInvalidArgument;
      if (code != StatusCode::kOk &&
          ((code != StatusCode::kUnavailable && !is_no_name) || deadline.expired())) {
        return link.status().with_context(
            !has_joined_
                ? "joining the run at " + options_.rendezvous
                : fmt::format("the launcher at {}, which decides for all, is lost and has "
                              "not come back in {:.0f} s (--join-timeout): this machine "
                              "has ended its part of the run",
                              options_.rendezvous,
                              std::chrono::duration<double>(options_.join_timeout).count()));
      }
      if (is_no_name && !std::exchange(has_said, true)) {
        say(fmt::format("{}; tried again for {:.0f} s (--join-timeout)", link.status().message(),
                        std::chrono::duration<double>(options_.join_timeout).count()));
      }
      signal_ = signals_.take();
      if (signal_ != 0) {
        link_.reset();
        return ok_status();
      }
      if (link_ == nullptr) LocalRanks(false, {}).wait({{signals_.file(), POLLIN, 0}}, kTryAgain);
    }
    has_joined_ = true;
    seen_ = 0;
    report_ = {};
    return ok_status();
  }

  // What the run has ended with for this machine; nullopt: the link is lost.
  std::optional<int> serve() {
    for (;;) {
      wait();
      link_->clear_event();
      if (const int signal = signals_.take(); signal != 0) pass_on(signal);
      const Status status = link_->status();
      const Plan plan = link_->plan();
      // The store goes once the others have ended; who knows of the end does not need it any more.
      if (!status.ok() && plan.kind != Plan::Kind::kEnd) {
        end_cut_off();
        return {};
      }
      hear(plan);
      if (const std::optional<int> code = follow(plan)) return code;
    }
  }

  void wait() const {
    const std::vector<pollfd> own = {{signals_.file(), POLLIN, 0}, {link_->event(), POLLIN, 0}};
    if (ranks_) return ranks_->wait(own, std::chrono::seconds(1));
    LocalRanks(false, {}).wait(own, std::chrono::seconds(1));
  }

  void pass_on(int signal) {
    signal_ = signal;
    if (link_->is_leading()) link_->shut_down(signal);
    if (!link_->is_leading()) {
      report_.is_leaving = true;
      link_->report(report_);
    }
    if (ranks_) ranks_->end(signal);
  }

  void hear(const Plan& plan) {
    for (const auto& [version, text] : plan.news) {
      if (version > seen_) say(text);
    }
    seen_ = plan.version;
  }

  std::optional<int> follow(const Plan& plan) {
    if (ranks_) look();
    const bool is_over = plan.kind != Plan::Kind::kRun || plan.attempt != report_.attempt;
    if (ranks_ && is_over && !was_told_) {
      was_told_ = true;
      ranks_->end(SIGTERM);
    }
    if (ranks_ && report_.has_ended && (is_over || report_.is_leaving)) {
      ranks_.reset();
      if (report_.failure && !report_.all_saved) flight_.explain(report_.attempt);
    }
    if (ranks_) return {};
    if (report_.is_leaving) return leave();
    if (plan.kind == Plan::Kind::kEnd) return bye(plan.exit_code);
    const int seat = plan.seat_of(link_->node());
    if (seat < 0 || plan.attempt == report_.attempt) return {};
    if (plan.kind == Plan::Kind::kRun) start(plan, plan.seats[static_cast<size_t>(seat)], seat);
    if (plan.kind == Plan::Kind::kStop) miss(plan.attempt);
    return {};
  }

  // An attempt that was stopped before this machine heard of it: the leader waits for its end.
  void miss(int64_t attempt) {
    report_ = {};
    report_.attempt = attempt;
    report_.has_ended = true;
    link_->report(report_);
  }

  void start(const Plan& plan, const Plan::Seat& seat, int index) {
    report_ = {};
    report_.attempt = plan.attempt;
    was_told_ = false;
    ranks_.emplace(options_.has_prefix, options_.grace, flight_.begin(plan.attempt));
    const Status status =
        ranks_->start(options_.command, seat.first_rank, seat.ranks, plan.size(),
                      {{"GROUP_RANK", std::to_string(index)},
                       {"GROUP_WORLD_SIZE", std::to_string(plan.seats.size())},
                       {"MASTER_ADDR", plan.address},
                       {"MASTER_PORT", std::to_string(plan.port)},
                       {"TORCHELASTIC_RESTART_COUNT", std::to_string(plan.attempt)},
                       {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options_.max_restarts)},
                       {"TORCHELASTIC_RUN_ID", options_.run_id},
                       {"HEKLA_STORE", plan.store}});
    if (!status.ok()) {
      // 127 is what shells say of a program that they cannot run.
      report_.failure = Failure{seat.first_rank, {127, 0}, 0, "\n    " + status.to_string()};
      report_.all_saved = false;
      report_.has_ended = true;
      ranks_.emplace(options_.has_prefix, options_.grace);
    }
    link_->report(report_);
  }

  void look() {
    ranks_->look();
    const bool has_ended = !ranks_->is_any_alive();
    const bool has_news =
        has_ended != report_.has_ended || (ranks_->first_failure() && !report_.failure);
    if (!has_news) return;
    if (has_ended) kill_strays();
    report_.has_ended = has_ended;
    if (ranks_->first_failure()) report_.failure = ranks_->first_failure();
    report_.all_saved = ranks_->all_saved();
    link_->report(report_);
  }

  // After a signal: the others go on.
  int leave() {
    const auto& failure = report_.failure;
    const bool saved = failure && failure->end.signal == 0 && failure->end.exit_code == kPreempted;
    say(fmt::format("this machine leaves the run, by signal {}", signal_));
    link_.reset();
    return saved ? kPreempted : 128 + signal_;
  }

  int bye(int exit_code) {
    // The others are to hear of the end before the store goes.
    const Deadline deadline = Deadline::in(options_.silence);
    while (link_->is_leading() && link_->status().ok() && !link_->is_alone() &&
           !deadline.expired()) {
      LocalRanks(false, {}).wait({}, std::chrono::milliseconds(50));
    }
    link_.reset();
    return exit_code;
  }

  // Before the others count this machine as lost: half the silence is over, and a tenth is for what
  // is late here or there.
  void end_cut_off() {
    if (!ranks_) return;
    ranks_->end(SIGTERM, std::min(options_.grace, options_.silence * 2 / 5));
    while (ranks_->is_any_alive()) {
      ranks_->wait({{signals_.file(), POLLIN, 0}}, std::chrono::seconds(1));
      if (const int signal = signals_.take(); signal != 0) signal_ = signal;
      ranks_->look();
    }
  }

  const LaunchOptions& options_;
  const Signals& signals_;
  const Endpoint endpoint_;
  FlightRecords flight_;
  std::unique_ptr<TcpStoreServer> server_;  // where this machine hosts the store
  std::unique_ptr<TcpStoreServer>
      attempt_server_;  // of the link's thread, which the leader runs on
  std::unique_ptr<NodeLink> link_;
  std::optional<LocalRanks> ranks_;
  bool has_joined_ = false;
  bool is_follower_ = false;  // another launcher hosts the store
  NodeReport report_;
  bool was_told_ = false;  // the ranks, to end
  int64_t seen_ = 0;       // version of the plan
  int signal_ = 0;
};

}  // namespace

Result<int> launch_nodes(const LaunchOptions& options, const Signals& signals) {
  HEKLA_ASSIGN_OR_RETURN(Endpoint endpoint, Endpoint::read(options.rendezvous));
  if (options.min_nodes < 1 || options.max_nodes < options.min_nodes) {
    return invalid_argument("{} to {} machines", options.min_nodes, options.max_nodes);
  }
  if (options.run_id.empty() || options.run_id == LaunchOptions().run_id) {
    return invalid_argument(
        "a run on several machines needs a run id (--run-id, or HEKLA_RUN_ID, which other users do "
        "not see): the same on all, and nothing that is guessed, since whoever reaches {} and "
        "knows it can take part in the run",
        options.rendezvous);
  }
  return NodeRun(options, signals, std::move(endpoint)).run();
}

}  // namespace hekla::launch
