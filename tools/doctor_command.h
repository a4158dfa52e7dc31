// SPDX-License-Identifier: Apache-2.0
// `hekla doctor`: what is in the way of a device, each with its reason and its remedy.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code: 0 when a Vulkan device is usable, 1 otherwise.
void add_doctor_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
