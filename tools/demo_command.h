// SPDX-License-Identifier: Apache-2.0
// `hekla demo`: every case folder on each device there is, as a table.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code as `hekla --help` says.
void add_demo_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
