// SPDX-License-Identifier: Apache-2.0
// Transfers: bytes between the host and device memory, within the device, and the device's half of
// copies to and from others.
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

  // The halves of a copy from this device to another one, or from another one to this, through a
  // piece that both have (shared_piece.h): bytes of `source` into the beginning of `piece`, which
  // the queue family `between` owns afterwards, and from there into `target`.
  void send(AllocationRef source, int64_t offset, AllocationRef piece, int64_t bytes,
            uint32_t between, Done done);
  void receive(AllocationRef piece, uint32_t between, AllocationRef target, int64_t offset,
               int64_t bytes, Done done);

  const std::shared_ptr<DeviceMemory>& memory() const { return memory_; }
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
  // A place in a buffer. `between`: the family that has it before this copy reads it or after this
  // copy wrote it; ignored: none but ours.
  struct Range {
    VkBuffer buffer;
    int64_t offset;
    uint32_t between = VK_QUEUE_FAMILY_IGNORED;
  };
  Result<uint64_t> submit_copy(CommandBuffer& commands, Lane& lane, const Lane& other,
                               const Range& from, const Range& to, int64_t bytes);
  Status run_upload(const std::byte* source, const AllocationRef& target, int64_t offset,
                    int64_t bytes);
  Status run_download(const AllocationRef& source, int64_t offset, std::byte* target,
                      int64_t bytes);
  Status run_copy(const AllocationRef& source, const AllocationRef& target, int64_t bytes);
  // One half; `commands` is the thread's, made with its first.
  Status run_half(std::unique_ptr<CommandBuffer>& commands, const Range& from, const Range& to,
                  int64_t bytes);

  const std::shared_ptr<DeviceMemory> memory_;
  Lane& transfer_;
  Lane& compute_;
  const TransferOptions options_;
  std::vector<Slot> up_slots_;                       // of the thread of up_
  std::vector<Slot> down_slots_;                     // of the thread of down_
  std::unique_ptr<CommandBuffer> receive_commands_;  // of the thread of up_
  std::unique_ptr<CommandBuffer> send_commands_;     // of the thread of down_
  // Behind what their jobs use.
  SerialQueue down_;  // also what is sent to other devices
  SerialQueue up_;    // also copies within the device, and what comes from others
};

}  // namespace hekla::vulkan
