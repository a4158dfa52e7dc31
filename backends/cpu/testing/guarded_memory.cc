// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/testing/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace hekla::cpu {

GuardedMemory::GuardedMemory(int64_t bytes, bool guard_end) {
  const auto size = static_cast<size_t>(bytes);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t inner = (size + page - 1) / page * page;
  mapping_size_ = inner + 2 * page;
  mapping_ = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) std::abort();
  std::byte* start = static_cast<std::byte*>(mapping_) + page;
  if (inner > 0 && mprotect(start, inner, PROT_READ | PROT_WRITE) != 0) std::abort();
  bytes_ = {guard_end ? start + (inner - size) : start, size};
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(other.mapping_size_),
      bytes_(other.bytes_) {}

GuardedMemory::~GuardedMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

}  // namespace hekla::cpu
