// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "runtime/launch/launcher.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

struct LaunchArguments {
  launch::LaunchOptions options;
  double grace_s = 10;
  bool no_prefix = false;
  std::string nnodes = "1";
};

int launch_run(const LaunchArguments& arguments) {
  if (arguments.nnodes != "1") {
    fmt::print(stderr,
               "hekla launch: --nnodes {}: runs over several machines are not there yet; start the "
               "ranks by torchrun, mpirun, srun or an indexed job of Kubernetes, which programs of "
               "Hekla read as well\n",
               arguments.nnodes);
    return kBadInput;
  }
  launch::LaunchOptions options = arguments.options;
  options.grace = std::chrono::milliseconds(static_cast<int64_t>(arguments.grace_s * 1000));
  options.has_prefix = !arguments.no_prefix;
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
      "Start the processes of a run on this machine: hekla launch --nproc N PROGRAM ARGUMENTS");
  command->add_option("--nproc,--nproc-per-node", options.nproc, "how many processes")
      ->check(CLI::PositiveNumber);
  command->add_option("--nnodes", arguments->nnodes, "machines; 1 is all there is yet");
  command
      ->add_option("--max-restarts", options.max_restarts,
                   "how often all start again when one has failed; exit code 75 is free")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--grace", arguments->grace_s,
                   "seconds between SIGTERM and SIGKILL when the others are ended")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--run-id", options.run_id, "TORCHELASTIC_RUN_ID");
  command->add_option("--master-addr", options.address,
                      "an address of this machine, where the store listens as well");
  command->add_option("--master-port", options.port, "MASTER_PORT; one that is free when left out")
      ->check(CLI::Range(0, 65535));
  command->add_flag("--no-prefix", arguments->no_prefix, "do not put ranks in front of lines");
  // From the program's name on all words are its own.
  command->prefix_command();
  command->callback([arguments, command, &exit_code] {
    arguments->options.command = command->remaining();
    exit_code = launch_run(*arguments);
  });
}

}  // namespace hekla::tools
