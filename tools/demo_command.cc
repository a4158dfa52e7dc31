// SPDX-License-Identifier: Apache-2.0
#include "tools/demo_command.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "tools/run/run_all.h"

namespace hekla::tools {

void add_demo_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "demo", "Run every case folder below a folder on each device there is; print the table");
  auto request = std::make_shared<RunAllRequest>();
  command->add_option("folder", request->folder, "A folder of case folders")->required();
  command->add_option("--device", request->devices, "Only these devices");
  command->add_option("--client-option", request->client_options, "NAME=VALUE for the plugin");
  command->add_option("--repeat", request->repeat, "Launches per program")
      ->check(CLI::PositiveNumber);
  command->add_option("--timeout", request->timeout_seconds, "Seconds per program")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", request->as_json, "Print JSON");
  command->callback([request, &exit_code] { exit_code = run_all(*request); });
}

}  // namespace hekla::tools
