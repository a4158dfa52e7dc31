// SPDX-License-Identifier: Apache-2.0
// TaskPool: the threads on which handlers' tasks run.
//
// Handlers themselves run on the devices' threads and may wait there for their tasks, so tasks have
// threads of their own: as many as the process may use cores, started when the first task comes.
// Thread-safe. Never destroyed.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/status.h"

namespace hekla::ffi {

class TaskPool {
 public:
  static TaskPool& of_process();
  int64_t thread_count() const { return thread_count_; }
  // RESOURCE_EXHAUSTED: the system has not one thread for them.
  Status post(std::function<void()> task);

 private:
  TaskPool();
  struct State;
  const int64_t thread_count_;
  State* const state_;  // never freed
};

}  // namespace hekla::ffi
