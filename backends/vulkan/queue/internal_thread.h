// SPDX-License-Identifier: Apache-2.0
// Marks the back end's own threads: lanes, transfer workers, host workers, and any other while it
// tells of the end of a launch that is not over.
//
// They serve each other, so one of them must never wait until another one is idle, or until a
// launch has ended that may be its own; who wants to wait asks first.
#pragma once

#include "runtime/base/async/serial_queue.h"

namespace hekla::vulkan {

inline thread_local bool is_internal_thread = false;

// The thread that has it is one of them.
class InternalScope {
 public:
  InternalScope() : before_(is_internal_thread) { is_internal_thread = true; }
  ~InternalScope() { is_internal_thread = before_; }
  InternalScope(const InternalScope&) = delete;
  InternalScope& operator=(const InternalScope&) = delete;

 private:
  const bool before_;
};

// Of a queue whose thread is one of them.
inline SerialQueueOptions internal_thread_options() {
  return {.on_start = [] { is_internal_thread = true; }};
}

}  // namespace hekla::vulkan
