// SPDX-License-Identifier: Apache-2.0
// BlockPool: memory of buffers and arenas, kept between launches.
//
// The first write to a fresh page costs 15 times what the write itself does, so blocks that are
// given back are kept, up to a bound, and handed out again. Sizes are rounded up to classes (powers
// of two and 1.25, 1.5 and 1.75 times those). Blocks start at multiples of 64 bytes; large ones ask
// for huge pages. One pool a process, which is never destroyed; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::cpu {

class BlockPool;

// Owns its bytes; gives them back to the pool. Moved, not copied.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  std::byte* data() const { return data_; }
  // At least what was asked for.
  int64_t size_bytes() const { return size_; }

 private:
  friend class BlockPool;
  Block(BlockPool* pool, std::byte* data, int64_t size) : pool_(pool), data_(data), size_(size) {}
  BlockPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

class BlockPool {
 public:
  // Keeps a quarter of the machine's memory at most.
  static BlockPool& process_pool();
  explicit BlockPool(int64_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~BlockPool();

  // Uninitialized. RESOURCE_EXHAUSTED: the system has no such memory.
  Result<Block> allocate(int64_t bytes);
  // Bytes of free blocks that are kept.
  int64_t kept_bytes() const;
  // Gives all free blocks back to the system.
  void trim();

  // The class that `bytes` falls into.
  static int64_t rounded_size(int64_t bytes);

 private:
  friend class Block;
  void give_back(std::byte* data, int64_t size);

  const int64_t keep_bytes_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<std::byte*>> free_;  // by size; guarded by mutex_
  int64_t kept_ = 0;                                 // guarded by mutex_
};

}  // namespace hekla::cpu
