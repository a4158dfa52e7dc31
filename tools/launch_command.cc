// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_command.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>

#include "runtime/launch/launcher.h"
#include "runtime/process_group/flight/flight_analysis.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

struct LaunchArguments {
  launch::LaunchOptions options;
  double grace_s = 10, join_timeout_s = 300, last_call_s = 5, silence_s = 10;
  bool no_prefix = false;
  std::string nnodes = "1", why;
};

// Thirty years: sums with clocks stay far from their ends.
constexpr double kMostSeconds = 1e9;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Unlike CLI::Range it refuses what is no number.
CLI::Validator seconds_from(double least, double most) {
  const std::string words = fmt::format("SECONDS from {} to {}", least, most);
  return {[=](const std::string& text) {
            double value = 0;
            const bool is_good =
                CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
            return is_good ? std::string() : fmt::format("{} is not {}", text, words);
          },
          words};
}

// "4", "2:4".
Status read_nodes(std::string_view text, launch::LaunchOptions& options) {
  const size_t colon = text.find(':');
  const auto number = [&](std::string_view digits, int& into) {
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, into);
    return stop == end && error == std::errc() && into > 0;
  };
  if (!number(text.substr(0, colon), options.min_nodes) ||
      !number(colon == text.npos ? text : text.substr(colon + 1), options.max_nodes) ||
      options.max_nodes < options.min_nodes) {
    return invalid_argument("--nnodes {}: a number of machines, or MIN:MAX", text);
  }
  if (options.max_nodes > 1 && options.rendezvous.empty()) {
    return invalid_argument(
        "--nnodes {} needs --rdzv HOST:PORT, the same on all machines: an address of one of them, "
        "and a port that is free there",
        text);
  }
  return ok_status();
}

int explain(const std::string& folder) {
  const auto found = process_group::explain_flight(folder);
  if (!found.ok()) {
    fmt::print(stderr, "hekla launch: {}\n", found.status().message());
    return kBadInput;
  }
  fmt::print("{}", found->to_string());
  return 0;
}

int launch_run(const LaunchArguments& arguments) {
  if (!arguments.why.empty()) return explain(arguments.why);
  launch::LaunchOptions options = arguments.options;
  options.grace = milliseconds(arguments.grace_s);
  options.has_prefix = !arguments.no_prefix;
  options.join_timeout = milliseconds(arguments.join_timeout_s);
  options.last_call = milliseconds(arguments.last_call_s);
  options.silence = milliseconds(arguments.silence_s);
  if (const Status status = read_nodes(arguments.nnodes, options); !status.ok()) {
    fmt::print(stderr, "hekla launch: {}\n", status.message());
    return kBadInput;
  }
  const Result<int> code = launch::launch(options);
  if (code.ok()) return *code;
  fmt::print(stderr, "hekla launch: {}\n", code.status().to_string());
  return kBadInput;
}

}  // namespace

void add_launch_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<LaunchArguments>();
  launch::LaunchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "launch",
      "Start the processes of a run: hekla launch --nproc N PROGRAM ARGUMENTS on one machine, with "
      "--nnodes and --rdzv on each of several");
  command
      ->add_option("--nproc,--nproc-per-node", options.nproc, "how many processes, on this machine")
      ->check(CLI::PositiveNumber);
  command->add_option("--nnodes", arguments->nnodes,
                      "how many machines: N or MIN:MAX; all start again when one is lost or comes");
  command->add_option(
      "--rdzv,--rdzv-endpoint", options.rendezvous,
      "HOST:PORT, the same on all machines: where the launcher on HOST listens. What "
      "launchers say to each other is not encrypted");
  command
      ->add_option("--join-timeout", arguments->join_timeout_s,
                   "seconds to wait for as many machines as there must be")
      ->check(seconds_from(0, kMostSeconds));
  command
      ->add_option("--last-call", arguments->last_call_s,
                   "seconds that the first attempt waits for more machines than there must be")
      ->check(seconds_from(0, kMostSeconds));
  command
      ->add_option("--silence", arguments->silence_s,
                   "seconds after which a machine that says nothing is lost; the same on all")
      ->check(seconds_from(0.5, 3600));
  command
      ->add_option("--max-restarts", options.max_restarts,
                   "how often all start again when one has failed; exit code 75 is free")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--grace", arguments->grace_s,
                   "seconds between SIGTERM and SIGKILL when the others are ended")
      ->check(seconds_from(0, kMostSeconds));
  command
      ->add_option(
          "--run-id", options.run_id,
          "TORCHELASTIC_RUN_ID; with --rdzv it must be given, the same on all machines and "
          "nothing that is guessed: who knows it and reaches the port can take part. Other "
          "users see a command's arguments, and not its variables")
      ->envname("HEKLA_RUN_ID");
  command->add_option("--master-addr", options.address,
                      "an address of this machine, where the store listens as well; not looked at "
                      "with --rdzv");
  command
      ->add_option("--master-port", options.port,
                   "MASTER_PORT; one that is free when left out; not looked at with --rdzv")
      ->check(CLI::Range(0, 65535));
  command
      ->add_option("--flight-dir", options.flight_folder,
                   "keep what the ranks record of their calls to process groups there, for --why")
      ->envname("HEKLA_FLIGHT_DIR");
  command->add_option("--why", arguments->why,
                      "launch nothing; say what the records in this folder of a run that hangs or "
                      "has failed mean: who waits in which call for whom, which calls differ, who "
                      "died");
  command->add_flag("--no-prefix", arguments->no_prefix, "do not put ranks in front of lines");
  // From the program's name on all words are its own.
  command->prefix_command();
  command->callback([arguments, command, &exit_code] {
    arguments->options.command = command->remaining();
    exit_code = launch_run(*arguments);
  });
}

}  // namespace hekla::tools
