// SPDX-License-Identifier: Apache-2.0
// `hekla plugin-check LIB.so`: runs the conformance suite against a PJRT plugin library.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the subcommand; running it sets exit_code: 0 when nothing failed, crashed or timed out, 1
// otherwise, 2 when the filter matches no check. The children that run single checks are this
// program again, with the hidden options --run-one and --result-fd.
void add_plugin_check_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
