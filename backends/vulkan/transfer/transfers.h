// SPDX-License-Identifier: Apache-2.0
// Transfers: bytes between the host and device memory, and within the device.
//
// Where the host has full access to device memory a transfer is a memcpy on the caller's thread.
// Elsewhere it goes through staging: a ring of slots per direction, each a persistently mapped
// range; while the device moves one slot the host fills or empties the next. Two threads, one per
// direction, do that, started with their first job, so callers never wait. Staging memory is
// bounded by slots * chunk per direction. Any offset and size in bytes is right. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backends/vulkan/memory/device_memory.h"
#include "backends/vulkan/queue/command_buffer.h"
#include "backends/vulkan/queue/lane.h"
#include "runtime/base/async/serial_queue.h"

namespace hekla::vulkan {

struct TransferOptions {
  int64_t chunk_bytes = int64_t{2} << 20;
  int64_t slots = 8;
};

class Transfers {
 public:
  // Called once, from any thread, when the bytes are there or with the error.
  using Done = std::function<void(const Status&)>;

  // Borrows the lanes, which outlive it: `transfer` moves bytes between host and device, `compute`
  // within the device.
  Transfers(std::shared_ptr<DeviceMemory> memory, Lane& transfer, Lane& compute,
            TransferOptions options = {});
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // Ends the jobs that were given first.
  ~Transfers() = default;

  // Ranges were checked by the caller. Host memory stays as it is until `done`. The device memory
  // may be touched: what writes or reads it otherwise has ended.
  void upload(const void* source, AllocationRef target, int64_t offset, int64_t bytes, Done done);
  void download(AllocationRef source, int64_t offset, void* target, int64_t bytes, Done done);
  void copy(AllocationRef source, AllocationRef target, int64_t bytes, Done done);

  // Of the device.
  Status health() const { return transfer_.device().health(); }

  // Blocks until the jobs given so far have ended; false where there were none.
  bool drain();

 private:
  struct Slot {
    AllocationRef staging;
    std::unique_ptr<CommandBuffer> commands;
    uint64_t epoch = 0;
  };
  Status add_slot(std::vector<Slot>& slots, MemoryRole role);
  // A slot whose staging range is free; waits for the oldest where none is.
  Result<Slot*> take_slot(std::vector<Slot>& slots, MemoryRole role);
  Result<uint64_t> submit_copy(Slot& slot, Lane& lane, const Lane& other, VkBuffer from,
                               int64_t from_offset, VkBuffer to, int64_t to_offset, int64_t bytes);
  Status run_upload(const std::byte* source, const AllocationRef& target, int64_t offset,
                    int64_t bytes);
  Status run_download(const AllocationRef& source, int64_t offset, std::byte* target,
                      int64_t bytes);
  Status run_copy(const AllocationRef& source, const AllocationRef& target, int64_t bytes);

  const std::shared_ptr<DeviceMemory> memory_;
  Lane& transfer_;
  Lane& compute_;
  const TransferOptions options_;
  std::vector<Slot> up_slots_;    // of the thread of up_
  std::vector<Slot> down_slots_;  // of the thread of down_
  // Behind what their jobs use.
  SerialQueue down_;
  SerialQueue up_;  // also copies within the device
};

}  // namespace hekla::vulkan
