// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "runtime/base/cpu_info.h"

namespace hekla::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;

// Large blocks are mapped, at multiples of a huge page.
bool is_mapped(int64_t size) { return size >= kHugePage; }

std::byte* map_aligned(int64_t size) {
  const auto wanted = static_cast<size_t>(size + kHugePage);
  void* start = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t huge = static_cast<uintptr_t>(kHugePage);
  const uintptr_t aligned = (address + huge - 1) / huge * huge;
  auto* data = reinterpret_cast<std::byte*>(aligned);
  // The ends that the alignment leaves over.
  if (aligned > address) munmap(start, aligned - address);
  const uintptr_t end = aligned + static_cast<uintptr_t>(size);
  if (address + wanted > end) munmap(data + size, address + wanted - end);
  madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);  // a wish: no error matters
  return data;
}

std::byte* get_from_system(int64_t size) {
  if (is_mapped(size)) return map_aligned(size);
  return static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(size)));
}

void give_to_system(std::byte* data, int64_t size) {
  if (is_mapped(size)) {
    munmap(data, static_cast<size_t>(size));
  } else {
    std::free(data);
  }
}

}  // namespace

Block::Block(Block&& other) noexcept
    : pool_(other.pool_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Block::~Block() {
  if (data_ != nullptr) pool_->give_back(data_, size_);
}

BlockPool& BlockPool::process_pool() {
  // Never destroyed: buffers may outlive static objects.
  static BlockPool* pool = new BlockPool(read_cpu_info().memory_bytes / 4);
  return *pool;
}

BlockPool::~BlockPool() { trim(); }

int64_t BlockPool::rounded_size(int64_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  const int64_t step = std::max(below / 4, kAlignment);
  const int64_t size = (bytes + step - 1) / step * step;
  // Whole pages where blocks are mapped.
  constexpr int64_t kPage = 4096;
  return is_mapped(size) ? (size + kPage - 1) / kPage * kPage : size;
}

Result<Block> BlockPool::allocate(int64_t bytes) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (bytes > kMost) return resource_exhausted("{} bytes are more than any machine has", bytes);
  const int64_t size = rounded_size(bytes);
  {
    std::lock_guard lock(mutex_);
    const auto it = free_.find(size);
    if (it != free_.end() && !it->second.empty()) {
      std::byte* data = it->second.back();
      it->second.pop_back();
      kept_ -= size;
      return Block(this, data, size);
    }
  }
  std::byte* data = get_from_system(size);
  if (data == nullptr) {
    // What is kept may be what is missing.
    trim();
    data = get_from_system(size);
  }
  if (data == nullptr) {
    return resource_exhausted("the system has no {} bytes of memory for a buffer", size);
  }
  return Block(this, data, size);
}

void BlockPool::give_back(std::byte* data, int64_t size) {
  {
    std::lock_guard lock(mutex_);
    if (kept_ + size <= keep_bytes_) {
      free_[size].push_back(data);
      kept_ += size;
      return;
    }
  }
  give_to_system(data, size);
}

int64_t BlockPool::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

void BlockPool::trim() {
  std::map<int64_t, std::vector<std::byte*>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(free_);
    kept_ = 0;
  }
  for (const auto& [size, blocks] : all) {
    for (std::byte* data : blocks) give_to_system(data, size);
  }
}

}  // namespace hekla::cpu
