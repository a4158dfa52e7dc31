// SPDX-License-Identifier: Apache-2.0
// run_child: a command in a child process with a time limit and its output.
//
// Blocking; one thread. The command has its own process group, which is killed at the limit and
// when the command has ended.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hekla::tools {

struct ChildResult {
  bool started = false;
  bool timed_out = false;
  bool was_stopped = false;  // by `stop_when`
  int signal = 0;            // that ended it; 0 if none
  int exit_code = -1;        // if it ended by itself
  std::string output;        // standard output, at most 4 MiB
  std::string errors;        // the last 16 KiB of standard error
};

// `words[0]` is the program's path; `environment` is added to this process's. `stop_when` sees all
// standard output so far whenever there is more of it; true: the command is killed (SIGKILL).
ChildResult run_child(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& environment,
                      std::chrono::milliseconds limit,
                      const std::function<bool(std::string_view output)>& stop_when = nullptr);

}  // namespace hekla::tools
