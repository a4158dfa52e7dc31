// SPDX-License-Identifier: Apache-2.0
// `hekla plugins`: the registered plugins and whether each works, tried in a child process.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code as `hekla --help` says.
void add_plugins_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
