// SPDX-License-Identifier: Apache-2.0
// `hekla group-check`: the conformance suite of process groups (runtime/process_group/conformance)
// with processes of this machine, over each transport.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code: 0 when all results are right, 1 otherwise. Ranks
// are this program again, with the hidden options --rank and --store.
void add_group_check_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
