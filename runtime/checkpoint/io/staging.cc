// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hekla::checkpoint {

Result<std::unique_ptr<StagingPool>> StagingPool::create(int64_t total_bytes, int64_t buffer_bytes,
                                                         bool touch) {
  if (buffer_bytes <= 0 || buffer_bytes % kDirectAlignment != 0) {
    return invalid_argument("a staging buffer of {} bytes: a positive multiple of {} is needed",
                            buffer_bytes, kDirectAlignment);
  }
  const int64_t buffers = std::max<int64_t>(1, total_bytes / buffer_bytes);
  if (buffers > INT64_MAX / buffer_bytes) {
    return resource_exhausted("a staging pool of {} bytes", total_bytes);
  }
  const auto size = static_cast<size_t>(buffers * buffer_bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return resource_exhausted("no memory for a staging pool of {} bytes: {}", size,
                              std::strerror(errno));
  }
  ::madvise(memory, size, MADV_HUGEPAGE);  // a wish: fewer faults and entries of the page table
  // Faults now, not while a save holds up its caller: writing fresh pages is 20 times slower.
  for (size_t at = 0; touch && at < size; at += kDirectAlignment)
    static_cast<volatile char*>(memory)[at] = 0;
  return std::unique_ptr<StagingPool>(
      new StagingPool(static_cast<std::byte*>(memory), buffers, buffer_bytes));
}

StagingPool::StagingPool(std::byte* memory, int64_t buffers, int64_t buffer_bytes)
    : memory_(memory), buffers_(buffers), buffer_bytes_(buffer_bytes) {
  for (int64_t i = buffers; i > 0; --i) free_.push_back(memory + (i - 1) * buffer_bytes);
}

StagingPool::~StagingPool() { ::munmap(memory_, static_cast<size_t>(buffers_ * buffer_bytes_)); }

Result<StagingPool::Buffer> StagingPool::acquire(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  if (!returned_.wait(lock, stop, [&] { return !free_.empty(); })) {
    return cancelled("waiting for one of {} staging buffers was cancelled", buffers_);
  }
  std::byte* data = free_.back();
  free_.pop_back();
  peak_ = std::max(peak_, buffers_ - static_cast<int64_t>(free_.size()));
  return Buffer(this, data);
}

void StagingPool::give_back(std::byte* data) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(data);
  }
  returned_.notify_one();
}

int64_t StagingPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return buffers_ - static_cast<int64_t>(free_.size());
}

int64_t StagingPool::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace hekla::checkpoint
