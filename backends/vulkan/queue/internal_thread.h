// SPDX-License-Identifier: Apache-2.0
// Marks the back end's own threads: lanes, transfer workers, host workers.
//
// They serve each other, so one of them must never wait until another one is idle; who wants to
// wait asks first.
#pragma once

namespace hekla::vulkan {

inline thread_local bool is_internal_thread = false;

}  // namespace hekla::vulkan
