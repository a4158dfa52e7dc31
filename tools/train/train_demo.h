// SPDX-License-Identifier: Apache-2.0
// train_demo: does a training that is killed and resumed end with the bits of one that was not?
//
// On each device `hekla train` runs in child processes: once to the end; once until half of its
// steps are in a committed checkpoint, when it is killed with SIGKILL; and again from what is left.
// The last steps of both must be equal bit for bit, and the accuracy that the device's classifier
// reaches on the test examples high enough. Blocking.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hekla::tools {

struct TrainDemoRequest {
  std::string folder;
  std::vector<std::string> devices;  // empty: every plugin of the registry whose library is there
  std::vector<std::string> client_options;
  std::string root;        // folders of the checkpoints are made and kept here; empty: temporary
  int64_t epochs = 0;      // 0: as stored
  int64_t save_every = 0;  // 0: one epoch
  // Unset: as stored for the stored number of epochs, none for fewer.
  std::optional<double> min_accuracy;
  double timeout_seconds = 600;  // of each child
  bool as_json = false;
};

// Exit code: 0 all well, 1 other bits or too low an accuracy, 2 bad input, 3 an error of a device.
int train_demo(const TrainDemoRequest& request);

}  // namespace hekla::tools
