// SPDX-License-Identifier: Apache-2.0
// `hekla train`: a stored training step as a job with checkpoints; `hekla train-demo`: the same,
// killed half-way and resumed, on each device.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommands; running one sets exit_code as `hekla --help` says.
void add_train_commands(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
