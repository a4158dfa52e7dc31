// SPDX-License-Identifier: Apache-2.0
// OffsetAllocator: places ranges in a line of bytes; pure, no memory behind it.
//
// Best fit (the smallest free range that holds the request, the lowest of equals) with immediate
// coalescing; every operation takes O(log n). Sizes are rounded up to the alignment, so offsets are
// aligned too. Not thread-safe: its owner has a lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace hekla::vulkan {

class OffsetAllocator {
 public:
  // `alignment` is a power of two; the capacity is rounded down to it.
  OffsetAllocator(int64_t capacity_bytes, int64_t alignment);

  // Zero bytes take one unit of alignment, so that offsets are different. nullopt: no room.
  std::optional<int64_t> allocate(int64_t bytes);
  // `offset` came from allocate() and was not released since.
  void release(int64_t offset);

  int64_t capacity_bytes() const { return capacity_; }
  int64_t used_bytes() const { return used_; }
  int64_t largest_free_bytes() const;
  int64_t allocation_count() const { return static_cast<int64_t>(taken_.size()); }
  bool is_empty() const { return taken_.empty(); }

 private:
  int64_t capacity_;
  int64_t alignment_;
  int64_t used_ = 0;
  std::map<int64_t, int64_t> taken_;               // offset -> bytes
  std::map<int64_t, int64_t> free_;                // offset -> bytes, never adjacent
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset) of free_
};

}  // namespace hekla::vulkan
