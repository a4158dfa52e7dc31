// SPDX-License-Identifier: Apache-2.0
// `hekla compile FILE --emit STAGE`: shows a program at a stage of the compiler.
//
// vhlo-json: a bytecode artifact as it was sent (JSON). ir: the graph that the compiler works on,
// with canonical attributes and locations. The other stages are refused in words until they exist.
// Errors go to stderr and give exit code 1.
#pragma once

namespace CLI {
class App;
}

namespace hekla::tools {

// Adds the command to `app`; running it stores 0 or 1 in `exit_code`, which must outlive the app.
void add_compile_command(CLI::App& app, int& exit_code);

}  // namespace hekla::tools
