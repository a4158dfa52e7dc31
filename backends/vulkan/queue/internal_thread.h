// SPDX-License-Identifier: Apache-2.0
// Marks the back end's own threads: lanes, transfer workers, host workers.
//
// They serve each other, so one of them must never wait until another one is idle; who wants to
// wait asks first.
#pragma once

#include "runtime/base/async/serial_queue.h"

namespace hekla::vulkan {

inline thread_local bool is_internal_thread = false;

// Of a queue whose thread is one of them.
inline SerialQueueOptions internal_thread_options() {
  return {.on_start = [] { is_internal_thread = true; }};
}

}  // namespace hekla::vulkan
