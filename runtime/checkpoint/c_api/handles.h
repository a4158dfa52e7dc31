// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of checkpoint_c.h, and how its functions report.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

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

// Of this thread's last call that failed.
std::string& last_error();

inline int report(const Status& status) {
  if (status.ok()) return 0;
  last_error() = status.message();
  return static_cast<int>(status.code());
}

// The body of a C function: a Status, and no memory as an error instead of an exception.
template <typename Body>
int run(const Body& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(resource_exhausted("out of memory"));
  } catch (const std::exception& error) {
    return report(internal_error("{}", error.what()));
  }
}

// A text for the caller, who frees it.
inline char* give(std::string_view text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace hekla::checkpoint::c_api
