// SPDX-License-Identifier: Apache-2.0
// The `hekla` command. Each subcommand stands in its own file NAME_command.cc.
#include <string_view>

#include <CLI/CLI.hpp>

#include "tools/ckpt_command.h"
#include "tools/compile_command.h"
#include "tools/demo_command.h"
#include "tools/devices_command.h"
#include "tools/doctor_command.h"
#include "tools/group_check_command.h"
#include "tools/launch_command.h"
#include "tools/plugin_check_command.h"
#include "tools/plugins_command.h"
#include "tools/run_command.h"
#include "tools/train_command.h"

int main(int argc, char** argv) {
  CLI::App app("Hekla: StableHLO programs on Vulkan GPUs and CPUs, behind the PJRT C API.");
  app.footer(
      "Exit status: 0 all is well; 1 a check failed; 2 wrong usage or bad input; 3 no device, or "
      "an error of the device or the launch.\n"
      "Environment: PJRT_DEVICE, HEKLA_PLUGIN_PATH, HEKLA_CLIENT_OPTIONS, HEKLA_LOG "
      "(error, warning, info, verbose).");
  app.set_version_flag("--version", "hekla " HEKLA_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  hekla::tools::add_run_command(app, exit_code);
  hekla::tools::add_demo_command(app, exit_code);
  hekla::tools::add_train_commands(app, exit_code);
  hekla::tools::add_compile_command(app, exit_code);
  hekla::tools::add_ckpt_command(app, exit_code);
  hekla::tools::add_plugins_command(app, exit_code);
  hekla::tools::add_plugin_check_command(app, exit_code);
  hekla::tools::add_group_check_command(app, exit_code);
  hekla::tools::add_launch_command(app, exit_code);
  hekla::tools::add_devices_command(app, exit_code);
  hekla::tools::add_doctor_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 2 means "corrupt" for `hekla ckpt`.
    const int usage =
        argc > 1 && std::string_view(argv[1]) == "ckpt" ? hekla::tools::kCkptUsageError : 2;
    return app.exit(error) == 0 ? 0 : usage;
  }
  return exit_code;
}
