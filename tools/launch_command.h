// SPDX-License-Identifier: Apache-2.0
// `hekla launch`: the processes of a run on this machine (runtime/launch/launcher.h).
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code to what the run ends with, 2 where it could not be
// started.
void add_launch_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
