// SPDX-License-Identifier: Apache-2.0
// The `hekla` command: one subcommand per file NAME_command.cc.
#include <CLI/CLI.hpp>

#include "tools/compile_command.h"
#include "tools/devices_command.h"
#include "tools/doctor_command.h"

int main(int argc, char** argv) {
  CLI::App app("Hekla: StableHLO programs on any Vulkan GPU and on CPUs", "hekla");
  app.require_subcommand(1);
  int exit_code = 0;
  hekla::tools::add_compile_command(app, exit_code);
  hekla::tools::add_devices_command(app, exit_code);
  hekla::tools::add_doctor_command(app, exit_code);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
