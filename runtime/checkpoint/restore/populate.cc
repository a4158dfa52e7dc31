// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/populate.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <stop_token>
#include <utility>

#include "runtime/base/async/thread.h"

namespace hekla::checkpoint {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;
#endif

constexpr uintptr_t kStep = uintptr_t{4} << 20;  // some ms, so that the end of it is not waited for
constexpr size_t kSmall = size_t{16} << 20;
// What the readers begin with: they are not to be overtaken, but met ahead.
constexpr size_t kAhead = size_t{36} << 20;

void populate(const std::vector<std::span<std::byte>>& arrays, const std::stop_token& stop) {
  size_t left_out = kAhead;
  for (const std::span<std::byte>& array : arrays) {
    if (array.size() <= left_out) {
      left_out -= array.size();
      continue;
    }
    const auto begin = reinterpret_cast<uintptr_t>(array.data());
    const uintptr_t end = (begin + array.size()) / kStep * kStep;
    uintptr_t at = (begin + left_out + kStep - 1) / kStep * kStep;
    left_out = 0;
    if (array.size() < kSmall) continue;
    for (; at < end; at += kStep) {
      if (stop.stop_requested()) return;
      // A wish: without memory the reads say so.
      if (::madvise(reinterpret_cast<void*>(at), kStep, kPopulateWrite) != 0 && errno != EAGAIN) {
        return;
      }
    }
  }
}

}  // namespace

Populate::Populate(std::vector<std::span<std::byte>> arrays) : arrays_(std::move(arrays)) {
  size_t bytes = 0;
  for (const std::span<std::byte>& array : arrays_) {
    if (array.size() >= kSmall) bytes += array.size();
  }
  if (bytes <= kAhead) return;
  thread_ = start_thread([this](const std::stop_token& stop) { populate(arrays_, stop); });
}

}  // namespace hekla::checkpoint
