// SPDX-License-Identifier: Apache-2.0
// `hekla devices`: what this machine can compute on, as a table or JSON.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code (0, also when there is no Vulkan device).
void add_devices_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
