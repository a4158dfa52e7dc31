// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace hekla {
namespace {

using StagingClock = std::chrono::steady_clock;

// Of the large pages that a processor has; what has room for several begins with one.
constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;
// A size has so many steps to its double: arrays of about one size take each other's memory.
constexpr int64_t kStepsToDouble = 8;

struct IdleBlock {
  void* memory;
  int64_t bytes;
  StagingClock::time_point since;
};

struct IdleBlocks {
  std::mutex mutex;
  std::deque<IdleBlock> blocks;  // guarded by mutex; the oldest first
  int64_t bytes = 0;             // guarded by mutex
};

// Arrays may live as long as the process.
IdleBlocks& idle_blocks() {
  static auto* const all = new IdleBlocks;
  return *all;
}

int64_t staged_size(int64_t bytes) {
  const auto floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  const int64_t step = floor / kStepsToDouble;
  return (bytes + step - 1) / step * step;
}

void* take_block(int64_t bytes) {
  IdleBlocks& idle = idle_blocks();
  {
    const std::lock_guard lock(idle.mutex);
    // The one that was used last is in the caches, if any is.
    const auto found =
        std::find_if(idle.blocks.rbegin(), idle.blocks.rend(),
                     [bytes](const IdleBlock& block) { return block.bytes == bytes; });
    if (found != idle.blocks.rend()) {
      void* const memory = found->memory;
      idle.bytes -= bytes;
      idle.blocks.erase(std::next(found).base());
      return memory;
    }
  }
  void* memory = nullptr;
  const auto size = static_cast<size_t>(bytes);
  const bool is_large = size >= 2 * kLargePage;
  if (::posix_memalign(&memory, is_large ? kLargePage : kPageBytes, size) != 0) return nullptr;
  if (is_large) ::madvise(memory, size / kPageBytes * kPageBytes, MADV_HUGEPAGE);
  return memory;
}

void give_block(void* memory, int64_t bytes) {
#ifdef HEKLA_SANITIZED
  constexpr bool kIsKept = false;  // so that what is used after its end is seen
#else
  constexpr bool kIsKept = true;
#endif
  if (!kIsKept || bytes > Staging::kHeld) return std::free(memory);
  IdleBlocks& idle = idle_blocks();
  const StagingClock::time_point now = StagingClock::now();
  std::vector<void*> freed;
  {
    const std::lock_guard lock(idle.mutex);
    idle.blocks.push_back({memory, bytes, now});
    idle.bytes += bytes;
    while (idle.bytes > Staging::kHeld || idle.blocks.front().since + Staging::kIdleFor < now) {
      freed.push_back(idle.blocks.front().memory);
      idle.bytes -= idle.blocks.front().bytes;
      idle.blocks.pop_front();
    }
  }
  for (void* const one : freed) std::free(one);
}

}  // namespace

Result<HostArray> Staging::allocate(DType dtype, Dims dims) {
  HEKLA_ASSIGN_OR_RETURN(const int64_t bytes, checked_bytes(dtype, dims));
  if (bytes < kLeastBytes) return HostArray::allocate(dtype, std::move(dims), /*zero=*/false);
  const int64_t size = staged_size(bytes);
  void* const memory = take_block(size);
  if (memory == nullptr) {
    return resource_exhausted("no host memory for {} ({} bytes)", shape_string(dtype, dims), bytes);
  }
  return HostArray::adopt(
      dtype, std::move(dims),
      std::shared_ptr<void>(memory, [size](void* block) { give_block(block, size); }));
}

int64_t Staging::idle_bytes() {
  IdleBlocks& idle = idle_blocks();
  const std::lock_guard lock(idle.mutex);
  return idle.bytes;
}

}  // namespace hekla
