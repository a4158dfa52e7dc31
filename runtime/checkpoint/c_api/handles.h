// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of checkpoint_c.h, and how its functions report.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/c_report.h"
#include "runtime/checkpoint/c_api/checkpoint_c.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/checkpoint/sharding/boxes_cache.h"

struct hekla_checkpoint_state {
  hekla::checkpoint::State state;
  hekla::checkpoint::BoxesCache boxes;
};

struct hekla_checkpoint_step {
  std::shared_ptr<const hekla::checkpoint::StepReader> reader;
};

namespace hekla::checkpoint::c_api {

using hekla::c_report::last_error;
using hekla::c_report::report;
using hekla::c_report::run;

// A text for the caller, who frees it.
inline char* give(std::string_view text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace hekla::checkpoint::c_api
