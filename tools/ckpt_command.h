// SPDX-License-Identifier: Apache-2.0
// `hekla ckpt`: checkpoints listed, inspected, verified, compared, converted and put in order.
//
// Exit status of all of them: 0 well · 1 a difference was found (diff) · 2 corrupt · 3 not
// committed, or not there · 4 any other error · 64 wrong usage.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

inline constexpr int kCkptUsageError = 64;

void add_ckpt_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
