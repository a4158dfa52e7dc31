// SPDX-License-Identifier: Apache-2.0
// train: a training job on one device with checkpoints in the background.
//
// Resumes from the newest step of the root folder, else starts with the stored first state. The
// state never leaves the device but for the checkpoints. Blocking; one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"

namespace hekla::tools {

struct TrainRequest {
  std::string folder;  // with case.json and training.json
  std::string device;  // name or path; empty: as open_client
  std::vector<std::string> client_options;
  std::string root;        // of the checkpoints
  int64_t epochs = 0;      // 0: as stored
  int64_t save_every = 0;  // steps; 0: one epoch
  // Called with {"event": ...}: "started" (step, steps, resumed), "saved" (step), "epoch" (epoch,
  // step, loss), "end" (steps, accuracy, saved, blocked_seconds, seconds).
  std::function<void(const nlohmann::json&)> report;
};

enum class TrainStage { kInput, kDevice };
struct TrainResult {
  Status status;
  TrainStage stage = TrainStage::kInput;  // where `status` is from
};
TrainResult train(const TrainRequest& request);

}  // namespace hekla::tools
