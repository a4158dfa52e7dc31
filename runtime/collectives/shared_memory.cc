// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/shared_memory.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/async/deadline.h"
#include "runtime/base/async/thread.h"
#include "runtime/base/copy_bytes.h"
#include "runtime/base/log.h"
#include "runtime/collectives/frame.h"
#include "runtime/collectives/shared_segment.h"

namespace hekla::collectives {
namespace {

using Clock = Deadline::Clock;

// Copied at once: what one side writes the other reads meanwhile.
constexpr size_t kPieceBytes = size_t{128} << 10;
// Messages up to this size the caller writes, where there is room.
constexpr size_t kShortBytes = size_t{64} << 10;

// Rings of all processes to each other, as if all were on this host, are held to a quarter of the
// memory, but not to less than this each; those to this process alone always are.
constexpr uint64_t kGoodRingBytes = uint64_t{256} << 10;

Result<uint64_t> ring_bytes_of(int size, const SharedMemoryOptions& options) {
  const auto count = static_cast<double>(size);
  const MemoryRoom& room = options.room;
  const auto most = static_cast<double>(room.limit.bytes) / 4;
  const auto all = [&](uint64_t ring) {
    return count * (static_cast<double>(ring) + kSharedPageBytes);
  };
  uint64_t ring = options.ring_bytes;
  while (ring > kGoodRingBytes && count * all(ring) > most) ring /= 2;
  const MemoryRoom::Bound& least =
      most < static_cast<double>(room.left.bytes) ? room.limit : room.left;
  const double own = std::min(most, static_cast<double>(room.left.bytes));
  while (ring > kSharedPageBytes && all(ring) > own) ring /= 2;
  if (all(ring) > own) {
    return unavailable(
        "the shortest rings for messages from {} processes take {} bytes, and of the memory that "
        "is {} {} are to be had: give it more",
        size, static_cast<int64_t>(all(ring)), least.whose, static_cast<int64_t>(own));
  }
  if (ring < options.ring_bytes) {
    log_message(LogLevel::kInfo,
                "messages between {} processes go through rings of {} bytes instead of {}: the "
                "memory is {}, {} bytes, of which {} are left",
                size, ring, options.ring_bytes, room.limit.whose, room.limit.bytes,
                room.left.bytes);
  }
  return ring;
}

// Completed without a lock held.
using Ends = std::vector<std::pair<CompletionRef, Status>>;
void complete_all(const Ends& ends) {
  for (const auto& [sent, status] : ends) {
    if (sent != nullptr) sent->complete(status);
  }
}

}  // namespace

struct SharedMemory::Peer {
  ~Peer() {
    if (pid_file >= 0) ::close(pid_file);
  }
  // Set once, before is_connected.
  SharedSegment segment;
  int pid_file = -1;
  std::atomic<bool> is_connected = false;

  mutable std::mutex mutex;
  std::string name;                   // guarded by mutex, as all below
  Status status;                      // why it is lost
  Status fault;                       // what the sender saw; the receiver loses the process for it
  std::deque<OutgoingMessage> queue;  // what is not in the ring yet
  uint64_t written = 0;

  // The receiver's alone.
  bool is_lost = false;
  uint64_t read = 0;
  FrameReader frames;
  uint64_t beats = 0;
  std::atomic<std::chrono::nanoseconds> silent{};  // others read it

  // Of the mutex: moves what there is room for into the ring, `most` bytes at most; whether there
  // was anything to move.
  bool write(int rank, size_t most, Ends& ends);
};

struct SharedMemory::State {
  int rank = 0, size = 1;
  Events events;
  SharedMemoryOptions options;
  SharedSegment own;
  std::vector<std::unique_ptr<Peer>> peers;  // by rank; of this process's own nothing is used
  std::atomic<bool> is_over = false;

  Peer& peer(int process) const { return *peers[static_cast<size_t>(process)]; }
  void receive();
  void send();
  // Whether there was anything.
  bool drain(int process, Peer& peer);
  void look_after(int process, Peer& peer, std::chrono::nanoseconds passed);
  void lose(int process, Peer& peer, const Status& why);
};

bool SharedMemory::Peer::write(int rank, size_t most, Ends& ends) {
  if (!is_connected || !status.ok() || !fault.ok() || queue.empty()) return false;
  const Ring ring = segment.ring(rank);
  const uint64_t before = written;
  uint64_t published = written;
  const auto publish = [&] {
    ring.head->written.store(written, std::memory_order_release);
    published = written;
    segment.head().inbox.ring();
  };
  while (!queue.empty() && written - before < most) {
    OutgoingMessage& out = queue.front();
    out.skip_empty();
    if (out.is_done()) {
      ends.emplace_back(std::move(out.sent), ok_status());
      queue.pop_front();
      continue;
    }
    const uint64_t taken = written - ring.head->read.load(std::memory_order_acquire);
    if (taken > ring.size) {
      fault = data_loss("{} has written nonsense into shared memory", name);
      return false;
    }
    const std::span<std::byte> room = ring.from(written);
    const std::span<const std::byte> rest = out.rest();
    const size_t count =
        std::min({rest.size(), room.size(), kPieceBytes, static_cast<size_t>(ring.size - taken)});
    if (count == 0) break;
    copy_bytes(room.data(), rest.data(), static_cast<int64_t>(count));
    out.offset += count;
    written += count;
    if (written - published >= kPieceBytes) publish();
  }
  if (written != published) publish();
  // A message whose last byte went in with the last piece.
  while (!queue.empty()) {
    queue.front().skip_empty();
    if (!queue.front().is_done()) break;
    ends.emplace_back(std::move(queue.front().sent), ok_status());
    queue.pop_front();
  }
  return written != before;
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(int rank, int size, Events events,
                                                           const SharedMemoryOptions& options) {
  if (rank < 0 || rank >= size) {
    return invalid_argument("process {} of {} in a transport", rank, size);
  }
  auto state = std::make_shared<State>();
  state->rank = rank;
  state->size = size;
  state->events = std::move(events);
  state->options = options;
  HEKLA_ASSIGN_OR_RETURN(const uint64_t ring_bytes, ring_bytes_of(size, options));
  HEKLA_ASSIGN_OR_RETURN(state->own, SharedSegment::create(rank, size, ring_bytes));
  for (int p = 0; p < size; ++p) {
    state->peers.push_back(std::make_unique<Peer>());
    state->peers.back()->name = fmt::format("process {}", p);
  }
  std::unique_ptr<SharedMemory> made(new SharedMemory(state));
  try {
    made->receiver_ = start_thread([state] { state->receive(); });
    made->sender_ = start_thread([state] { state->send(); });
  } catch (const std::system_error& error) {
    return resource_exhausted("no threads for messages between processes: {}", error.what());
  }
  return made;
}

SharedMemory::~SharedMemory() {
  State& state = *state_;
  state.own.head().life.has_left.store(1, std::memory_order_release);
  state.is_over.store(true, std::memory_order_release);
  for (const auto& peer : state.peers) {
    if (peer->is_connected) peer->segment.head().inbox.ring();
  }
  state.own.head().inbox.ring();
  state.own.head().outbox.ring();
  for (std::jthread* thread : {&receiver_, &sender_}) {
    if (!thread->joinable()) continue;
    if (thread->get_id() == std::this_thread::get_id()) {
      thread->detach();
    } else {
      thread->join();
    }
  }
  Ends ends;
  for (const auto& peer : state.peers) {
    const std::lock_guard lock(peer->mutex);
    for (OutgoingMessage& out : peer->queue) {
      ends.emplace_back(std::move(out.sent), cancelled("this process has left the group"));
    }
    peer->queue.clear();
  }
  complete_all(ends);
}

std::string SharedMemory::card() const { return state_->own.card().text(); }
int SharedMemory::rank() const { return state_->rank; }
int SharedMemory::size() const { return state_->size; }

std::string SharedMemory::name(int process) const {
  const Peer& peer = state_->peer(process);
  const std::lock_guard lock(peer.mutex);
  return peer.name;
}

Status SharedMemory::status(int process) const {
  const Peer& peer = state_->peer(process);
  const std::lock_guard lock(peer.mutex);
  if (!peer.is_connected) return failed_precondition("{} is not connected", peer.name);
  return peer.status;
}

std::chrono::nanoseconds SharedMemory::silent_for(int process) const {
  return state_->peer(process).silent.load(std::memory_order_relaxed);
}

Status SharedMemory::connect(int process, std::string_view card) {
  State& state = *state_;
  if (process < 0 || process >= state.size || process == state.rank) {
    return invalid_argument("process {} cannot connect to process {} of {}", state.rank, process,
                            state.size);
  }
  Peer& peer = state.peer(process);
  {
    const std::lock_guard lock(peer.mutex);
    if (peer.is_connected) return ok_status();
    HEKLA_ASSIGN_OR_RETURN(const SegmentCard read, SegmentCard::read(card));
    // First the process, then its memory: a number that was given to another process meanwhile
    // does not lead to the memory with this token. Where the kernel has no such files, silence
    // tells of a death.
    const auto pid_file =
        static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(read.pid), 0));
    const std::string name = fmt::format("process {} (pid {} on {})", process, read.pid, read.host);
    Result<SharedSegment> segment = SharedSegment::open(read, process, state.rank, state.size);
    if (!segment.ok()) {
      if (pid_file >= 0) ::close(pid_file);
      return segment.status().with_context(name);
    }
    peer.name = name;
    peer.pid_file = pid_file;
    peer.segment = *std::move(segment);
    peer.is_connected = true;
  }
  state.own.head().inbox.ring();
  return ok_status();
}

void SharedMemory::send(int process, Message message, CompletionRef sent) {
  State& state = *state_;
  Ends ends;
  bool is_left_to_thread = false;
  {
    Peer& peer = state.peer(process);
    const std::lock_guard lock(peer.mutex);
    Result<std::string> frame = frame_of(message);
    const Status status = !peer.is_connected ? failed_precondition("{} is not connected", peer.name)
                          : !peer.status.ok() ? peer.status
                                              : frame.status();
    if (!status.ok()) {
      ends.emplace_back(std::move(sent), status);
    } else {
      peer.queue.push_back({*std::move(frame), std::move(message), std::move(sent)});
      if (peer.queue.size() == 1 && peer.queue.front().bytes() <= kShortBytes) {
        peer.write(state.rank, kShortBytes, ends);
      }
      is_left_to_thread = !peer.queue.empty();
    }
  }
  if (is_left_to_thread) state.own.head().outbox.ring();
  complete_all(ends);
}

void SharedMemory::State::send() {
  Bell& bell = own.head().outbox;
  while (!is_over.load(std::memory_order_acquire)) {
    const uint32_t seen = bell.count.load(std::memory_order_seq_cst);
    bool has_moved = false, has_fault = false;
    for (const auto& peer : peers) {
      Ends ends;
      {
        const std::lock_guard lock(peer->mutex);
        has_moved = peer->write(rank, 4 * kPieceBytes, ends) || has_moved;
        has_fault = has_fault || !peer->fault.ok();
      }
      complete_all(ends);
    }
    if (has_fault) own.head().inbox.ring();
    if (!has_moved) bell.wait(seen, options.beat.count());
  }
}

bool SharedMemory::State::drain(int process, Peer& peer) {
  const Ring ring = own.ring(process);
  const uint64_t written = ring.head->written.load(std::memory_order_acquire);
  if (written - peer.read > ring.size) {
    lose(process, peer, data_loss("{} has written nonsense into shared memory", peer.name));
    return false;
  }
  const bool has_any = written != peer.read;
  while (written != peer.read && !is_over.load(std::memory_order_relaxed)) {
    const std::span<std::byte> target = peer.frames.target();
    const std::span<std::byte> there = ring.from(peer.read);
    const size_t count = std::min(
        {target.size(), there.size(), kPieceBytes, static_cast<size_t>(written - peer.read)});
    copy_bytes(target.data(), there.data(), static_cast<int64_t>(count));
    peer.read += count;
    ring.head->read.store(peer.read, std::memory_order_release);
    peer.segment.head().outbox.ring();
    Result<std::optional<Message>> message = peer.frames.advance(count);
    if (!message.ok()) {
      lose(process, peer, message.status().with_context(peer.name));
      return false;
    }
    if (*message) events.received(process, **std::move(message));
  }
  return has_any;
}

void SharedMemory::State::lose(int process, Peer& peer, const Status& why) {
  peer.is_lost = true;
  Ends ends;
  {
    const std::lock_guard lock(peer.mutex);
    peer.status = why;
    for (OutgoingMessage& out : peer.queue) ends.emplace_back(std::move(out.sent), why);
    peer.queue.clear();
  }
  own.ring(process).head->is_closed.store(1, std::memory_order_release);
  complete_all(ends);
  events.lost(process, why);
}

// Whether it lives and wants to hear from this process.
void SharedMemory::State::look_after(int process, Peer& peer, std::chrono::nanoseconds passed) {
  const SegmentHead& theirs = peer.segment.head();
  Status fault;
  {
    const std::lock_guard lock(peer.mutex);
    fault = peer.fault;
  }
  if (!fault.ok()) return lose(process, peer, fault);
  const bool has_left = theirs.life.has_left.load(std::memory_order_acquire) != 0;
  pollfd death = {peer.pid_file, POLLIN, 0};
  const bool has_died = peer.pid_file >= 0 && ::poll(&death, 1, 0) > 0;
  if (has_left || has_died) {
    drain(process, peer);  // what it wrote before
    if (peer.is_lost) return;
    return lose(process, peer, unavailable("{} has {}", peer.name, has_left ? "ended" : "died"));
  }
  if (peer.segment.ring(rank).head->is_closed.load(std::memory_order_acquire) != 0) {
    return lose(process, peer,
                unavailable("{} has given up on this process, of which it had heard nothing for "
                            "too long, or nothing that makes sense",
                            peer.name));
  }
  const uint64_t beats = theirs.life.beats.load(std::memory_order_relaxed);
  // A pause of this process says nothing of the other: both may have been stopped.
  std::chrono::nanoseconds silent(0);
  if (beats == peer.beats) silent = peer.silent.load() + std::min(passed, 2 * options.beat);
  peer.silent = silent;
  peer.beats = beats;
  if (options.silence.count() == 0 || silent < options.silence) return;
  lose(process, peer,
       deadline_exceeded("{} has given no sign of life for {:.1f} s: it is stopped, or its machine "
                         "stands still",
                         peer.name, std::chrono::duration<double>(silent).count()));
}

void SharedMemory::State::receive() {
  Bell& bell = own.head().inbox;
  Clock::time_point last = Clock::now();
  while (!is_over.load(std::memory_order_acquire)) {
    const uint32_t seen = bell.count.load(std::memory_order_seq_cst);
    const Clock::time_point now = Clock::now();
    const bool is_beat = now - last >= options.beat;
    if (is_beat) own.head().life.beats.fetch_add(1, std::memory_order_relaxed);
    bool has_moved = false;
    for (int process = 0; process < size; ++process) {
      Peer& peer = this->peer(process);
      if (!peer.is_connected || peer.is_lost) continue;
      has_moved = drain(process, peer) || has_moved;
      if (is_beat && !peer.is_lost) look_after(process, peer, now - last);
    }
    if (is_beat) last = now;
    if (!has_moved) bell.wait(seen, options.beat.count());
  }
}

}  // namespace hekla::collectives
