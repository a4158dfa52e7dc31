// SPDX-License-Identifier: Apache-2.0
// DeviceMemory: the memory of one logical device, cut from large blocks.
//
// A block is one VkDeviceMemory under one VkBuffer with a device address; an Allocation is a range
// of it. Small requests share blocks that begin with 64 MiB and grow; what is larger than half a
// block gets a block of its size. Empty blocks stay up to a quarter of the limit. Tensors count
// against the limit; arrays in host memory, which are counted apart, staging and tables have pools
// of their own that do not. Freed memory may be
// handed out at once: whoever lets work run on an allocation keeps it until that work has ended
// (Lane does). When memory runs short: free empty blocks, let the pressure handler end work in
// flight, try exact sizes, then RESOURCE_EXHAUSTED with the numbers. Blocks may be larger than the
// driver promises (DevicePlan::max_allocation_bytes): those are tried. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/vulkan/device/device.h"
#include "backends/vulkan/memory/offset_allocator.h"

namespace hekla::vulkan {

// kHostTensor: arrays of the kinds pinned_host and unpinned_host.
enum class MemoryRole : uint8_t { kTensor, kUpload, kDownload, kTable, kHostTensor };
inline constexpr int kMemoryRoleCount = 5;

// How memory of one VkDevice becomes another's, too. kOpaqueFd: both are of one GPU and driver;
// kDmaBuf: any two whose drivers take it.
enum class SharedHandle : uint8_t { kOpaqueFd, kDmaBuf };

class DeviceMemory;
struct MemoryBlock;

// A range of device memory; given back when it is destroyed. Immutable but for `unordered_readers`.
class Allocation {
 public:
  Allocation(std::shared_ptr<DeviceMemory> owner, MemoryBlock* block, int64_t offset,
             int64_t bytes);
  // Of imported or shared memory: the block is its own, and `released` runs when it is gone.
  Allocation(std::shared_ptr<DeviceMemory> owner, std::unique_ptr<MemoryBlock> block,
             int64_t offset, int64_t bytes, std::function<void()> released);
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  int64_t bytes() const { return bytes_; }
  MemoryRole role() const;  // kTensor where it was imported
  // Memory of the host's or another device's, which still has it when this is gone: only its owner
  // writes it.
  bool is_imported() const { return imported_ != nullptr; }
  VkBuffer buffer() const;
  int64_t offset() const { return offset_; }  // within buffer()
  uint64_t address() const;
  // Null where the host does not see this memory. Of a tensor that was not imported: also null
  // unless the host has full access.
  std::byte* host() const;

  // Launches and transfers that will read this memory but are not in the lane's queue, so that the
  // device's order does not protect them. While there are any, nobody may overwrite it.
  std::atomic<int> unordered_readers{0};

 private:
  friend class DeviceMemory;
  std::shared_ptr<DeviceMemory> owner_;  // shared with all its allocations
  MemoryBlock* block_;                   // lives while it has allocations
  std::unique_ptr<MemoryBlock> imported_;
  std::function<void()> released_;
  int64_t offset_;
  int64_t bytes_;
};
using AllocationRef = std::shared_ptr<Allocation>;

struct MemoryStatistics {
  int64_t bytes_in_use = 0;  // of tensors, as they were asked for
  int64_t peak_bytes_in_use = 0;
  int64_t bytes_limit = 0;
  int64_t host_bytes_in_use = 0;  // of arrays in host memory
  int64_t peak_host_bytes_in_use = 0;
  int64_t allocation_count = 0;  // since the start
  int64_t largest_allocation_bytes = 0;
  int64_t block_count = 0;  // of all roles
  int64_t block_bytes = 0;
  int64_t largest_free_bytes = 0;  // in the tensors' blocks
};

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  // `limit_bytes` bounds the tensors; 0: the device plan's limit. `index`: of the logical device
  // that owns it, for errors.
  static std::shared_ptr<DeviceMemory> create(std::shared_ptr<Device> device,
                                              int64_t limit_bytes = 0, int index = 0);
  ~DeviceMemory();

  // RESOURCE_EXHAUSTED: the limit or the device's memory; INVALID_ARGUMENT: a negative size;
  // UNAVAILABLE: the device is lost.
  Result<AllocationRef> allocate(int64_t bytes, MemoryRole role = MemoryRole::kTensor);

  // Host memory as it is, which the device then reads and writes in place; it counts against no
  // limit. `released` runs when the device has let go of it, not after an error. UNIMPLEMENTED with
  // the reason: the driver imports no host memory, or not this one coherently; INVALID_ARGUMENT:
  // `data` is not a multiple of kImportAlignment. Otherwise as allocate.
  static constexpr int64_t kImportAlignment = 16;
  Result<AllocationRef> import_host(void* data, int64_t bytes, std::function<void()> released);

  // Device memory that copies between devices go through: another device may have it by
  // import_shared, and it counts against no limit. Its buffer belongs to one queue family at a time
  // (VK_SHARING_MODE_EXCLUSIVE). UNIMPLEMENTED: the driver shares no memory of buffers so; else as
  // allocate.
  Result<AllocationRef> allocate_shared(int64_t bytes, SharedHandle handle);
  // The memory of `exported`, which allocate_shared made on another device, on this one; it stays
  // until both are gone. UNIMPLEMENTED: this driver does not take it; else as allocate.
  Result<AllocationRef> import_shared(const Allocation& exported, SharedHandle handle);

  // Called without a lock when a request does not fit, and again while it still does not: waits
  // for work in flight that may hold memory, as far as that can end by itself, and says whether
  // there was any.
  void set_pressure_handler(std::function<bool()> handler);

  MemoryStatistics statistics() const;
  void reset_peak();
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  friend class Allocation;
  DeviceMemory(std::shared_ptr<Device> device, int64_t limit_bytes, int index);
  struct Pool {
    std::vector<std::unique_ptr<MemoryBlock>> blocks;
    int64_t next_block_bytes = 0;
  };

  Result<AllocationRef> try_allocate(int64_t bytes, MemoryRole role, bool exact);
  // `extension`: of the structure's chain. `is_exclusive`: to one queue family at a time.
  Status make_buffer(MemoryBlock& block, int64_t bytes, const void* extension,
                     bool is_exclusive) const;
  // Memory of the block's type and size, bound to its buffer. After an error destroy_block.
  Status back(MemoryBlock& block, const void* extension) const;
  Status bind(MemoryBlock& block) const;
  Result<std::unique_ptr<MemoryBlock>> make_block(int64_t bytes, MemoryRole role);
  void destroy_block(MemoryBlock& block);
  void free_empty_blocks(int64_t kept_bytes);
  void release(Allocation& allocation);
  Status out_of_memory(int64_t bytes, MemoryRole role, const Status& cause) const;

  const std::shared_ptr<Device> device_;
  const int index_;
  int64_t kept_bytes_ = 0;  // of empty blocks, per pool
  mutable std::mutex mutex_;
  Pool pools_[kMemoryRoleCount];    // guarded by mutex_
  MemoryStatistics statistics_;     // guarded by mutex_
  std::function<bool()> pressure_;  // guarded by mutex_
};

}  // namespace hekla::vulkan
