// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/memory_account.h"

#include <algorithm>

namespace hekla::pjrt {

std::string account_name(const std::string& kind, int64_t index, int64_t device_count) {
  return device_count > 1 ? fmt::format("{} {}", kind, index) : kind;
}

Status MemoryAccount::add(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > stats_.bytes_limit - stats_.bytes_in_use) {
    return resource_exhausted(
        "out of memory on the {}: {} bytes are wanted, {} of {} are in use; memory_limit_bytes or "
        "HEKLA_MEMORY_LIMIT raises the limit",
        device_, bytes, stats_.bytes_in_use, stats_.bytes_limit);
  }
  stats_.bytes_in_use += bytes;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  stats_.largest_allocation_bytes = std::max(stats_.largest_allocation_bytes, bytes);
  ++stats_.allocation_count;
  return ok_status();
}

void MemoryAccount::remove(int64_t bytes) {
  std::lock_guard lock(mutex_);
  stats_.bytes_in_use -= bytes;
}

MemoryStats MemoryAccount::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void MemoryAccount::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

}  // namespace hekla::pjrt
