// SPDX-License-Identifier: Apache-2.0
// Allocations of the calling thread that fail: for tests of what is left when memory runs out.
//
// To be included by one source of a test program, whose operator new it replaces. Other threads get
// their memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace hekla::testing {

class ScarceMemory {
 public:
  // While it lives, the first `count` allocations succeed and no later one does.
  explicit ScarceMemory(int64_t count) { left_ = count; }
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  ~ScarceMemory() { left_ = kAll; }

  // Whether an allocation has failed.
  static bool was_missed() { return left_ < 0; }
  static void* allocate(size_t bytes) {
    if (left_ != kAll && --left_ < 0) {
      left_ = -1;
      return nullptr;
    }
    return std::malloc(bytes);
  }

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  static inline thread_local int64_t left_ = kAll;
};

}  // namespace hekla::testing

// Out of line: inlined, new and free would look mismatched to g++. Each form that programs here
// use: AddressSanitizer has its own of those that are not replaced.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return hekla::testing::ScarceMemory::allocate(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new[](size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
