// SPDX-License-Identifier: Apache-2.0
// GuardedMemory: bytes with an unreadable page right behind or right before them, so that a test
// ends at the first access outside. One owner; aborts when the system has no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hekla::cpu {

class GuardedMemory {
 public:
  // `guard_end`: the guard is right behind the bytes, whose start has then any alignment that the
  // size gives; else it is right before them.
  GuardedMemory(int64_t bytes, bool guard_end);
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory& operator=(GuardedMemory&&) = delete;
  ~GuardedMemory();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace hekla::cpu
