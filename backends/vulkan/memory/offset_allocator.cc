// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/memory/offset_allocator.h"

#include <algorithm>

namespace hekla::vulkan {

OffsetAllocator::OffsetAllocator(int64_t capacity_bytes, int64_t alignment)
    : capacity_(capacity_bytes / alignment * alignment), alignment_(alignment) {
  if (capacity_ == 0) return;
  free_.emplace(0, capacity_);
  by_size_.emplace(capacity_, 0);
}

std::optional<int64_t> OffsetAllocator::allocate(int64_t bytes) {
  if (bytes < 0 || bytes > capacity_) return std::nullopt;
  const int64_t size = std::max((bytes + alignment_ - 1) / alignment_, int64_t{1}) * alignment_;
  const auto best = by_size_.lower_bound({size, 0});
  if (best == by_size_.end()) return std::nullopt;
  const auto [free_size, offset] = *best;
  by_size_.erase(best);
  free_.erase(offset);
  if (free_size > size) {
    free_.emplace(offset + size, free_size - size);
    by_size_.emplace(free_size - size, offset + size);
  }
  taken_.emplace(offset, size);
  used_ += size;
  return offset;
}

void OffsetAllocator::release(int64_t offset) {
  const auto taken = taken_.find(offset);
  if (taken == taken_.end()) return;
  int64_t start = offset;
  int64_t size = taken->second;
  used_ -= size;
  taken_.erase(taken);
  auto after = free_.lower_bound(start);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) {
      start = before->first;
      size += before->second;
      by_size_.erase({before->second, before->first});
      free_.erase(before);
    }
  }
  if (after != free_.end() && after->first == start + size) {
    size += after->second;
    by_size_.erase({after->second, after->first});
    free_.erase(after);
  }
  free_.emplace(start, size);
  by_size_.emplace(size, start);
}

int64_t OffsetAllocator::largest_free_bytes() const {
  return by_size_.empty() ? 0 : by_size_.rbegin()->first;
}

}  // namespace hekla::vulkan
