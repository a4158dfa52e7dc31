// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/transfers.h"

#include <algorithm>
#include <deque>

#include "backends/vulkan/queue/internal_thread.h"
#include "runtime/base/copy_bytes.h"

namespace hekla::vulkan {
namespace {

// Keeps launches from taking memory over while a job still reads it. Shared by its copies, since
// jobs are copyable.
class Reader {
 public:
  explicit Reader(AllocationRef memory)
      : memory_(new AllocationRef(std::move(memory)), [](AllocationRef* read) {
          --(*read)->unordered_readers;
          delete read;
        }) {
    ++(*memory_)->unordered_readers;
  }
  const AllocationRef& memory() const { return *memory_; }
  void release() { memory_.reset(); }

 private:
  std::shared_ptr<AllocationRef> memory_;
};

}  // namespace

Transfers::Transfers(std::shared_ptr<DeviceMemory> memory, Lane& transfer, Lane& compute,
                     TransferOptions options)
    : memory_(std::move(memory)),
      transfer_(transfer),
      compute_(compute),
      options_(options),
      down_(internal_thread_options()),
      up_(internal_thread_options()) {}

bool Transfers::drain() {
  const bool up = up_.drain();
  return down_.drain() || up;
}

void Transfers::upload(const void* source, AllocationRef target, int64_t offset, int64_t bytes,
                       Done done) {
  if (std::byte* host = target->host(); host != nullptr || bytes == 0) {
    if (bytes > 0) copy_bytes(host + offset, source, bytes);
    done(ok_status());
    return;
  }
  // Jobs let go of memory before they report: who hears of the end may count what is in use.
  up_.post([this, source, target = std::move(target), offset, bytes,
            done = std::move(done)]() mutable {
    const Status status = run_upload(static_cast<const std::byte*>(source), target, offset, bytes);
    target.reset();
    done(status);
  });
}

void Transfers::download(AllocationRef source, int64_t offset, void* target, int64_t bytes,
                         Done done) {
  if (std::byte* host = source->host(); host != nullptr || bytes == 0) {
    if (bytes > 0) copy_bytes(target, host + offset, bytes);
    // What a lost device wrote, nobody knows.
    done(transfer_.device().health());
    return;
  }
  down_.post([this, reader = Reader(std::move(source)), offset, target, bytes,
              done = std::move(done)]() mutable {
    const Status status =
        run_download(reader.memory(), offset, static_cast<std::byte*>(target), bytes);
    reader.release();
    done(status);
  });
}

void Transfers::copy(AllocationRef source, AllocationRef target, int64_t bytes, Done done) {
  if (bytes == 0 || (source->host() != nullptr && target->host() != nullptr)) {
    copy_bytes(target->host(), source->host(), bytes);
    done(transfer_.device().health());
    return;
  }
  up_.post([this, reader = Reader(std::move(source)), target = std::move(target), bytes,
            done = std::move(done)]() mutable {
    const Status status = run_copy(reader.memory(), target, bytes);
    reader.release();
    target.reset();
    done(status);
  });
}

void Transfers::send(AllocationRef source, int64_t offset, AllocationRef piece, int64_t bytes,
                     uint32_t between, Done done) {
  down_.post([this, reader = Reader(std::move(source)), offset, piece = std::move(piece), bytes,
              between, done = std::move(done)]() mutable {
    const Allocation& from = *reader.memory();
    const Status status = run_half(send_commands_, {from.buffer(), from.offset() + offset},
                                   {piece->buffer(), piece->offset(), between}, bytes);
    reader.release();
    piece.reset();
    done(status);
  });
}

void Transfers::receive(AllocationRef piece, uint32_t between, AllocationRef target, int64_t offset,
                        int64_t bytes, Done done) {
  up_.post([this, piece = std::move(piece), between, target = std::move(target), offset, bytes,
            done = std::move(done)]() mutable {
    const Status status = run_half(receive_commands_, {piece->buffer(), piece->offset(), between},
                                   {target->buffer(), target->offset() + offset}, bytes);
    piece.reset();
    target.reset();
    done(status);
  });
}

Status Transfers::add_slot(std::vector<Slot>& slots, MemoryRole role) {
  Slot slot;
  HEKLA_ASSIGN_OR_RETURN(slot.staging, memory_->allocate(options_.chunk_bytes, role));
  HEKLA_ASSIGN_OR_RETURN(slot.commands,
                         CommandBuffer::create(transfer_.device_ref(), transfer_.queue().family));
  slots.push_back(std::move(slot));
  return ok_status();
}

Result<Transfers::Slot*> Transfers::take_slot(std::vector<Slot>& slots, MemoryRole role) {
  Slot* oldest = nullptr;
  for (Slot& slot : slots) {
    if (transfer_.has_passed(slot.epoch)) return &slot;
    if (oldest == nullptr || slot.epoch < oldest->epoch) oldest = &slot;
  }
  // The ring grows to what the jobs use; with at least one slot it can do with fewer.
  if (slots.size() < static_cast<size_t>(options_.slots)) {
    const Status status = add_slot(slots, role);
    if (status.ok()) return &slots.back();
    if (oldest == nullptr) return status;
  }
  HEKLA_RETURN_IF_ERROR(transfer_.wait(oldest->epoch));
  return oldest;
}

Result<uint64_t> Transfers::submit_copy(CommandBuffer& commands, Lane& lane, const Lane& other,
                                        const Range& from, const Range& to, int64_t bytes) {
  HEKLA_RETURN_IF_ERROR(commands.begin(CommandBuffer::Use::kOnce));
  const auto change_owner = [&](const Range& range, bool is_ours) {
    if (range.between == VK_QUEUE_FAMILY_IGNORED) return;
    VkBufferMemoryBarrier change = {VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER};
    change.srcAccessMask = is_ours ? 0 : VK_ACCESS_TRANSFER_WRITE_BIT;
    change.dstAccessMask = is_ours ? VK_ACCESS_TRANSFER_READ_BIT : 0;
    change.srcQueueFamilyIndex = is_ours ? range.between : lane.queue().family;
    change.dstQueueFamilyIndex = is_ours ? lane.queue().family : range.between;
    change.buffer = range.buffer;
    change.offset = static_cast<VkDeviceSize>(range.offset);
    change.size = static_cast<VkDeviceSize>(bytes);
    commands.call().CmdPipelineBarrier(
        commands.handle(),
        is_ours ? VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT : VK_PIPELINE_STAGE_TRANSFER_BIT,
        is_ours ? VK_PIPELINE_STAGE_TRANSFER_BIT : VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, 0, 0,
        nullptr, 1, &change, 0, nullptr);
  };
  change_owner(from, true);
  VkBufferCopy region = {};
  region.srcOffset = static_cast<VkDeviceSize>(from.offset);
  region.dstOffset = static_cast<VkDeviceSize>(to.offset);
  region.size = static_cast<VkDeviceSize>(bytes);
  commands.call().CmdCopyBuffer(commands.handle(), from.buffer, to.buffer, 1, &region);
  change_owner(to, false);
  HEKLA_RETURN_IF_ERROR(commands.end());
  const VkCommandBuffer submitted[] = {commands.handle()};
  // What the other lane wrote has passed; the wait makes it visible here.
  const TimelinePoint waits[] = {{&other, other.passed()}};
  return lane.submit(submitted, waits);
}

Status Transfers::run_upload(const std::byte* source, const AllocationRef& target, int64_t offset,
                             int64_t bytes) {
  uint64_t last = 0;
  const auto send = [&]() -> Status {
    for (int64_t at = 0; at < bytes; at += options_.chunk_bytes) {
      const int64_t part = std::min(options_.chunk_bytes, bytes - at);
      HEKLA_ASSIGN_OR_RETURN(Slot * slot, take_slot(up_slots_, MemoryRole::kUpload));
      copy_bytes(slot->staging->host(), source + at, part);
      HEKLA_ASSIGN_OR_RETURN(slot->epoch,
                             submit_copy(*slot->commands, transfer_, compute_,
                                         {slot->staging->buffer(), slot->staging->offset()},
                                         {target->buffer(), target->offset() + offset + at}, part));
      last = slot->epoch;
    }
    return ok_status();
  };
  const Status status = send();
  // Also after an error: nothing may still write into the target when its owner lets it go.
  const Status passed = transfer_.wait(last);
  return status.ok() ? passed : status;
}

Status Transfers::run_download(const AllocationRef& source, int64_t offset, std::byte* target,
                               int64_t bytes) {
  struct Pending {
    Slot* slot;
    int64_t at;
    int64_t bytes;
  };
  std::deque<Pending> pending;
  const auto take_first = [&]() -> Status {
    const Pending first = pending.front();
    pending.pop_front();
    HEKLA_RETURN_IF_ERROR(transfer_.wait(first.slot->epoch));
    copy_bytes(target + first.at, first.slot->staging->host(), first.bytes);
    return ok_status();
  };
  // Slots are taken in rotation, so all of them must exist before any is waited for.
  while (down_slots_.size() < static_cast<size_t>(options_.slots)) {
    const Status status = add_slot(down_slots_, MemoryRole::kDownload);
    if (status.ok()) continue;
    if (down_slots_.empty()) return status;
    break;
  }
  size_t next_slot = 0;
  const auto fetch = [&]() -> Status {
    for (int64_t at = 0; at < bytes; at += options_.chunk_bytes) {
      const int64_t part = std::min(options_.chunk_bytes, bytes - at);
      if (pending.size() == down_slots_.size()) HEKLA_RETURN_IF_ERROR(take_first());
      Slot& slot = down_slots_[next_slot++ % down_slots_.size()];
      HEKLA_ASSIGN_OR_RETURN(slot.epoch,
                             submit_copy(*slot.commands, transfer_, compute_,
                                         {source->buffer(), source->offset() + offset + at},
                                         {slot.staging->buffer(), slot.staging->offset()}, part));
      pending.push_back({&slot, at, part});
    }
    while (!pending.empty()) HEKLA_RETURN_IF_ERROR(take_first());
    return ok_status();
  };
  const Status status = fetch();
  for (const Pending& left : pending) (void)transfer_.wait(left.slot->epoch);
  return status;
}

Status Transfers::run_copy(const AllocationRef& source, const AllocationRef& target,
                           int64_t bytes) {
  // Copy engines are slow within the device, so this runs on the compute queue.
  HEKLA_ASSIGN_OR_RETURN(const std::unique_ptr<CommandBuffer> commands,
                         CommandBuffer::create(compute_.device_ref(), compute_.queue().family));
  HEKLA_ASSIGN_OR_RETURN(
      const uint64_t epoch,
      submit_copy(*commands, compute_, transfer_, {source->buffer(), source->offset()},
                  {target->buffer(), target->offset()}, bytes));
  return compute_.wait(epoch);
}

Status Transfers::run_half(std::unique_ptr<CommandBuffer>& commands, const Range& from,
                           const Range& to, int64_t bytes) {
  if (commands == nullptr) {
    HEKLA_ASSIGN_OR_RETURN(commands,
                           CommandBuffer::create(transfer_.device_ref(), transfer_.queue().family));
  }
  HEKLA_ASSIGN_OR_RETURN(const uint64_t epoch,
                         submit_copy(*commands, transfer_, compute_, from, to, bytes));
  return transfer_.wait(epoch);
}

}  // namespace hekla::vulkan
