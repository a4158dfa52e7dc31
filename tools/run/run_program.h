// SPDX-License-Identifier: Apache-2.0
// run_program: one program on one device through the C API: compile, upload, launch, read back.
//
// Blocking. A Status says what went wrong; `stage` in which step, so that a caller can tell bad
// input from a broken device.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/client/client.h"

namespace hekla::tools {

struct RunRequest {
  std::string program;
  std::vector<HostArray> inputs;  // the same for every device
  std::vector<std::pair<std::string, std::string>> compiler_options;
  int repeat = 1;
  int64_t replicas = 1;
  int64_t partitions = 1;
};

enum class RunStage { kCompile, kUpload, kLaunch, kRead };

struct RunResult {
  Status status;
  RunStage stage = RunStage::kCompile;  // where `status` is from
  // outputs[d][o]; of the last launch.
  std::vector<std::vector<HostArray>> outputs;
  double compile_seconds = 0;
  // Of the executable, after the last launch; empty where the plugin shows none.
  std::vector<std::pair<std::string, int64_t>> statistics;
  std::vector<double> launch_seconds;  // from launch() to all devices done, one per repetition
};

RunResult run_program(const runtime::Client& client, const RunRequest& request);

// Whether a launch error is the failure of one of the program's own assertions (check.expect_*).
bool is_failed_assertion(const Status& status);

}  // namespace hekla::tools
