// SPDX-License-Identifier: Apache-2.0
// `hekla run`: one program, or every case folder below a folder, on a device; results compared.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code as `hekla --help` says.
void add_run_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
