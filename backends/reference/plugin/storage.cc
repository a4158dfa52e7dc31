// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/plugin/storage.h"

#include <algorithm>

namespace hekla::reference {

Status MemoryAccount::add(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > stats_.bytes_limit - stats_.bytes_in_use) {
    return resource_exhausted(
        "out of memory on the reference device: {} bytes are wanted, {} of {} are in use", bytes,
        stats_.bytes_in_use, stats_.bytes_limit);
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

pjrt::MemoryStats MemoryAccount::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void MemoryAccount::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

ReferenceStorage::~ReferenceStorage() {
  array_ = HostArray();
  account_->remove(size_bytes_);
  if (release_) release_();
}

void* ReferenceStorage::host_pointer() {
  std::lock_guard lock(mutex_);
  return const_cast<std::byte*>(array_.data());
}

HostArray ReferenceStorage::array() const {
  std::lock_guard lock(mutex_);
  return array_;
}

void ReferenceStorage::set_array(HostArray array) {
  std::lock_guard lock(mutex_);
  array_ = std::move(array);
}

HostArray ReferenceStorage::take_array() {
  std::lock_guard lock(mutex_);
  return std::exchange(array_, HostArray());
}

}  // namespace hekla::reference
