// SPDX-License-Identifier: Apache-2.0
// run_all: every case folder on each device, as a table or JSON.
//
// Each case runs in a child process (`hekla run --case ... --json`) with a time limit, so a plugin
// that aborts or hangs costs one row. Blocking.
#pragma once

#include <string>
#include <vector>

namespace hekla::tools {

struct RunAllRequest {
  std::string folder;
  // Names or paths; empty: every plugin of the registry whose library is there.
  std::vector<std::string> devices;
  std::vector<std::string> client_options;
  int repeat = 1;
  double timeout_seconds = 600;
  bool as_json = false;
};

// `named`, or where that is empty every plugin whose library is there; none: says so on stderr.
std::vector<std::string> chosen_devices(const std::vector<std::string>& named);

// Prints the table as it grows, or the JSON at the end. The exit code: 0 all passed, 1 a case
// failed, 2 no case, 3 no device works or a device's error.
int run_all(const RunAllRequest& request);

}  // namespace hekla::tools
