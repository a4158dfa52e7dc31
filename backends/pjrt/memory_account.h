// SPDX-License-Identifier: Apache-2.0
// MemoryAccount: the bytes that are in use on one logical device, and their limit. Shared by the
// storages of the device; thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "backends/pjrt/backend.h"

namespace hekla::pjrt {

// "CPU device", and with its number where there are several.
std::string account_name(const std::string& kind, int64_t index, int64_t device_count);

class MemoryAccount {
 public:
  // `device`: for messages, as account_name gives it.
  MemoryAccount(std::string device, int64_t limit_bytes) : device_(std::move(device)) {
    stats_.bytes_limit = limit_bytes;
  }
  // RESOURCE_EXHAUSTED with sizes and limit.
  Status add(int64_t bytes);
  void remove(int64_t bytes);
  MemoryStats stats() const;
  void reset_peak();

 private:
  const std::string device_;
  mutable std::mutex mutex_;
  MemoryStats stats_;  // guarded by mutex_
};

}  // namespace hekla::pjrt
