// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/host_callbacks.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "backends/pjrt/abi.h"
#include "runtime/base/async/callback_queue.h"
#include "runtime/program/ir/device_groups.h"

namespace hekla::pjrt {

// Where the launch waits for its streams, one at a time.
struct HostMeeting {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_aborted = false;  // guarded by mutex
};

// What a launch waits for and a stream fills; lives as long as one of them.
struct Incoming {
  std::shared_ptr<HostMeeting> meeting;
  int64_t total = 0;
  std::span<std::byte> to;  // guarded by meeting->mutex, as all below; the launch's, while it waits
  int64_t filled = 0;
  bool is_waited_for = true;
  bool is_destroyed = false;
  bool has_chunk = false;
};

}  // namespace hekla::pjrt

struct PJRT_CopyToDeviceStream {
  std::shared_ptr<hekla::pjrt::Incoming> incoming;
};

namespace hekla::pjrt {
namespace {

// Chunks of any size fit.
constexpr int64_t kGranule = 1;

PJRT_Error* error_of_callback(PJRT_Error_Code code, const char* message, size_t size) {
  return to_error(status_of(code, message, size));
}
PJRT_CallbackError kErrorOfCallback = error_of_callback;

Status status_and_delete(PJRT_Error* error) {
  if (error == nullptr) return ok_status();
  const std::unique_ptr<ErrorObject> owner(static_cast<ErrorObject*>(error));
  return owner->status;
}

// Alignment of what is sent, for clients that compute there.
constexpr size_t kSentAlignment = 64;

class Callbacks : public HostTransfers {
 public:
  explicit Callbacks(GangRef gang) : gang_(std::move(gang)) {
    if (gang_ == nullptr) return;
    gang_->on_abort([weak = std::weak_ptr(meeting_)](const Status&) {
      const auto alive = weak.lock();
      if (alive == nullptr) return;
      const std::lock_guard lock(alive->mutex);
      alive->is_aborted = true;
      alive->changed.notify_all();
    });
  }

  void add(const PJRT_SendCallbackInfo& info) { sends_[info.channel_id] = info; }
  void add(const PJRT_RecvCallbackInfo& info) { receives_[info.channel_id] = info; }
  bool has_send(int64_t channel) const { return sends_.contains(channel); }
  bool has_receive(int64_t channel) const { return receives_.contains(channel); }

  Status send(int64_t channel, std::span<const std::byte> bytes) override {
    const auto it = sends_.find(channel);
    if (it == sends_.end()) return no_callback("send", channel);
    const size_t rounded =
        (std::max<size_t>(bytes.size(), 1) + kSentAlignment - 1) & -kSentAlignment;
    PJRT_Chunk chunk = {};
    chunk.data = std::aligned_alloc(kSentAlignment, rounded);
    if (chunk.data == nullptr) {
      return resource_exhausted("no {} bytes of host memory for what channel {} sends", rounded,
                                channel);
    }
    if (!bytes.empty()) std::memcpy(chunk.data, bytes.data(), bytes.size());
    chunk.size = bytes.size();
    chunk.deleter = [](void* data, void*) { std::free(data); };
    const CallbackScope scope;
    return status_and_delete(it->second.send_callback(&chunk, &kErrorOfCallback, bytes.size(),
                                                      /*done=*/true, it->second.user_arg));
  }

  Status receive(int64_t channel, std::span<std::byte> bytes) override {
    const auto it = receives_.find(channel);
    if (it == receives_.end()) return no_callback("receive", channel);
    const auto incoming = std::make_shared<Incoming>();
    incoming->meeting = meeting_;
    incoming->to = bytes;
    incoming->total = static_cast<int64_t>(bytes.size());
    {
      const CallbackScope scope;
      it->second.recv_callback(new PJRT_CopyToDeviceStream{incoming}, it->second.user_arg);
    }
    std::unique_lock lock(meeting_->mutex);
    const auto is_full = [&] { return incoming->has_chunk && incoming->filled == incoming->total; };
    meeting_->changed.wait(
        lock, [&] { return is_full() || incoming->is_destroyed || meeting_->is_aborted; });
    incoming->is_waited_for = false;
    incoming->to = {};
    if (incoming->filled == incoming->total) return ok_status();
    if (meeting_->is_aborted) return gang_->status();
    return internal_error("the host gave {} of {} bytes for channel {} and then no more",
                          incoming->filled, incoming->total, channel);
  }

 private:
  static Status no_callback(const char* what, int64_t channel) {
    return failed_precondition("the launch has no {} callback for channel {}", what, channel);
  }

  const GangRef gang_;
  const std::shared_ptr<HostMeeting> meeting_ = std::make_shared<HostMeeting>();
  std::map<int64_t, PJRT_SendCallbackInfo> sends_;
  std::map<int64_t, PJRT_RecvCallbackInfo> receives_;
};

// Takes the chunk over, whatever becomes of it.
class OwnedChunk {
 public:
  explicit OwnedChunk(const PJRT_Chunk& chunk) : chunk_(chunk) {}
  OwnedChunk(const OwnedChunk&) = delete;
  OwnedChunk& operator=(const OwnedChunk&) = delete;
  ~OwnedChunk() {
    if (chunk_.deleter != nullptr) chunk_.deleter(chunk_.data, chunk_.deleter_arg);
  }
  const PJRT_Chunk& operator*() const { return chunk_; }

 private:
  const PJRT_Chunk chunk_;
};

Status Stream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_CopyToDeviceStream_Destroy_Args, stream);
  if (args->stream == nullptr) return ok_status();
  const std::unique_ptr<PJRT_CopyToDeviceStream> stream(args->stream);
  HostMeeting& meeting = *stream->incoming->meeting;
  const std::lock_guard lock(meeting.mutex);
  stream->incoming->is_destroyed = true;
  meeting.changed.notify_all();
  return ok_status();
}

Status Stream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args* args) {
  HEKLA_REQUIRE(args, PJRT_CopyToDeviceStream_AddChunk_Args, transfer_complete);
  args->transfer_complete = nullptr;
  HEKLA_REQUIRE_HANDLE(args, chunk);
  const OwnedChunk chunk(*args->chunk);
  HEKLA_REQUIRE_HANDLE(args, stream);
  const std::shared_ptr<Incoming> incoming = args->stream->incoming;
  std::unique_ptr<PJRT_Event> event(make_event(Completion::ready(), nullptr));
  {
    const std::lock_guard lock(incoming->meeting->mutex);
    const size_t size = (*chunk).size;
    const int64_t left = incoming->total - incoming->filled;
    if (size > static_cast<size_t>(left)) {
      return invalid_argument("a chunk of {} bytes for a stream that takes {} more of {}", size,
                              left, incoming->total);
    }
    if (!incoming->is_waited_for) {
      return cancelled("the launch that would receive the chunk has ended");
    }
    if (size > 0) {
      if ((*chunk).data == nullptr) return invalid_argument("the chunk's data is null");
      std::memcpy(incoming->to.data() + incoming->filled, (*chunk).data, size);
    }
    incoming->filled += static_cast<int64_t>(size);
    incoming->has_chunk = true;
    incoming->meeting->changed.notify_all();
  }
  args->transfer_complete = event.release();
  return ok_status();
}

Status Stream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_CopyToDeviceStream_TotalBytes_Args, total_bytes);
  HEKLA_REQUIRE_HANDLE(args, stream);
  args->total_bytes = args->stream->incoming->total;
  return ok_status();
}

Status Stream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args* args) {
  HEKLA_REQUIRE(args, PJRT_CopyToDeviceStream_GranuleSize_Args, granule_size_in_bytes);
  HEKLA_REQUIRE_HANDLE(args, stream);
  args->granule_size_in_bytes = kGranule;
  return ok_status();
}

Status Stream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_CopyToDeviceStream_CurrentBytes_Args, current_bytes);
  HEKLA_REQUIRE_HANDLE(args, stream);
  const std::lock_guard lock(args->stream->incoming->meeting->mutex);
  args->current_bytes = args->stream->incoming->filled;
  return ok_status();
}

Status no_function(const char* what, size_t number) {
  return invalid_argument("{} callback {} of the launch is null", what, number);
}

void sort_unique(std::vector<int64_t>& channels) {
  std::sort(channels.begin(), channels.end());
  channels.erase(std::unique(channels.begin(), channels.end()), channels.end());
}

}  // namespace

HostChannels host_channels(const ir::Module& module) {
  HostChannels channels;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      if (!ir::is_host_transfer(op)) return;
      const auto* channel = op.attribute("channel_handle").get<ir::ChannelHandle>();
      auto& list = op.code() == ir::OpCode::kSend ? channels.sends : channels.receives;
      list.push_back(channel == nullptr ? 0 : channel->handle);
    });
  }
  sort_unique(channels.sends);
  sort_unique(channels.receives);
  return channels;
}

Result<std::shared_ptr<HostTransfers>> make_host_transfers(const HostChannels& channels,
                                                           const PJRT_ExecuteOptions* options,
                                                           size_t device, GangRef gang) {
  if (!channels.any()) return std::shared_ptr<HostTransfers>();
  auto callbacks = std::make_shared<Callbacks>(std::move(gang));
  if (options != nullptr && options->send_callbacks != nullptr) {
    const PJRT_SendCallbackInfo* const infos = options->send_callbacks[device];
    for (size_t i = 0; i < options->num_send_ops; ++i) {
      if (infos == nullptr || infos[i].send_callback == nullptr) return no_function("send", i);
      callbacks->add(infos[i]);
    }
  }
  if (options != nullptr && options->recv_callbacks != nullptr) {
    const PJRT_RecvCallbackInfo* const infos = options->recv_callbacks[device];
    for (size_t i = 0; i < options->num_recv_ops; ++i) {
      if (infos == nullptr || infos[i].recv_callback == nullptr) return no_function("receive", i);
      callbacks->add(infos[i]);
    }
  }
  for (const int64_t channel : channels.sends) {
    if (callbacks->has_send(channel)) continue;
    return invalid_argument(
        "the program sends to the host on channel {}, for which the launch "
        "has no send callback",
        channel);
  }
  for (const int64_t channel : channels.receives) {
    if (callbacks->has_receive(channel)) continue;
    return invalid_argument(
        "the program receives from the host on channel {}, for which the "
        "launch has no receive callback",
        channel);
  }
  return std::shared_ptr<HostTransfers>(std::move(callbacks));
}

void add_stream_slots(PJRT_Api& api) {
  api.PJRT_CopyToDeviceStream_Destroy = Slot<Stream_Destroy>::call;
  api.PJRT_CopyToDeviceStream_AddChunk = Slot<Stream_AddChunk>::call;
  api.PJRT_CopyToDeviceStream_TotalBytes = Slot<Stream_TotalBytes>::call;
  api.PJRT_CopyToDeviceStream_GranuleSize = Slot<Stream_GranuleSize>::call;
  api.PJRT_CopyToDeviceStream_CurrentBytes = Slot<Stream_CurrentBytes>::call;
}

}  // namespace hekla::pjrt
