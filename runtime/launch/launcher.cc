// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/launcher.h"

#include <sys/prctl.h>

#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/host.h"
#include "runtime/launch/flight_records.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/nodes.h"
#include "runtime/launch/outbox.h"
#include "runtime/launch/signals.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::launch {
namespace {

struct Attempt {
  std::optional<Failure> first;
  bool all_saved = true;
  int passed_on = 0;  // a signal
};

// On this machine alone.
Result<Attempt> run_attempt(const LaunchOptions& options, const Signals& signals, int number,
                            FlightRecords& flight) {
  const std::string token = random_hex(16);
  HEKLA_ASSIGN_OR_RETURN(const auto store,
                         rendezvous::TcpStoreServer::start(options.address, 0, token));
  int port = options.port;
  if (port == 0) {
    HEKLA_ASSIGN_OR_RETURN(const auto free_one,
                           rendezvous::TcpStoreServer::start(options.address, 0, token));
    port = free_one->port();
  }
  LocalRanks ranks(options.has_prefix, options.grace, flight.begin(number));
  HEKLA_RETURN_IF_ERROR(ranks.start(
      options.command, 0, options.nproc, options.nproc,
      {{"GROUP_RANK", "0"},
       {"GROUP_WORLD_SIZE", "1"},
       {"MASTER_ADDR", options.address},
       {"MASTER_PORT", std::to_string(port)},
       {"TORCHELASTIC_RESTART_COUNT", std::to_string(number)},
       {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
       {"TORCHELASTIC_RUN_ID", options.run_id},
       {"HEKLA_STORE", fmt::format("tcp:{}@{}:{}", token, options.address, store->port())}}));
  Attempt attempt;
  while (ranks.is_any_alive()) {
    ranks.wait({{signals.file(), POLLIN, 0}}, std::chrono::seconds(1));
    if (const int signal = signals.take(); signal != 0) {
      attempt.passed_on = signal;
      ranks.end(signal);
    }
    ranks.look();
  }
  attempt.first = ranks.first_failure();
  attempt.all_saved = ranks.all_saved();
  return attempt;
}

Result<int> launch_here(const LaunchOptions& options, const Signals& signals) {
  FlightRecords flight(options.flight_folder, false);
  int restarts = 0;
  for (int number = 0;; ++number) {
    const Result<Attempt> attempt = run_attempt(options, signals, number, flight);
    kill_strays();
    if (!attempt.ok()) return attempt.status();
    const std::optional<Failure>& first = attempt->first;
    if (attempt->passed_on != 0) {
      say(fmt::format("ended by signal {}, which was passed on to all ranks", attempt->passed_on));
      flight.explain(number);
      const bool saved = first && first->end.exit_code == kPreempted && first->end.signal == 0;
      return saved ? kPreempted : 128 + attempt->passed_on;
    }
    if (!first) return 0;
    const bool is_free = attempt->all_saved && first->end.signal == 0;
    say(fmt::format("rank {} {}", first->rank, how_it_failed(*first)));
    if (!is_free) flight.explain(number);
    if (!is_free && restarts == options.max_restarts) {
      if (restarts > 0) say(fmt::format("all {} restarts are used up", restarts));
      return exit_code_of(first->end);
    }
    restarts += is_free ? 0 : 1;
    say(is_free ? std::string("all ranks start again; it asked for that and costs no restart")
                : fmt::format("all ranks start again, restart {} of {}", restarts,
                              options.max_restarts));
  }
}

}  // namespace

Result<int> launch(const LaunchOptions& options) {
  if (options.command.empty()) return invalid_argument("no program to launch");
  if (options.nproc < 1 || options.max_restarts < 0) {
    return invalid_argument("{} processes with {} restarts", options.nproc, options.max_restarts);
  }
  const Signals signals;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Result<int> code =
      options.rendezvous.empty() ? launch_here(options, signals) : launch_nodes(options, signals);
  Outbox::drain(signals, options.grace);
  return code;
}

}  // namespace hekla::launch
