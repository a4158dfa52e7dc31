// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/network_peer.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <system_error>

#include "runtime/base/async/deadline.h"
#include "runtime/base/async/thread.h"
#include "runtime/base/copy_bytes.h"

namespace hekla::collectives {
namespace {

using NetworkClock = Deadline::Clock;

constexpr uint64_t kPieces = 0, kBlocks = 1;  // channels
// What one side sends the other receives meanwhile; each is a sign of life.
constexpr size_t kBlockPieceBytes = size_t{1} << 20;
// Of blocks that come, more than one of which may be under way.
constexpr size_t kMostArriving = size_t{16} << 20;
// How long what the partner says it has may take to have been sent.
constexpr int64_t kCountedMs = 1000;
// Pieces after which the partner is told of them though no message is complete.
constexpr uint64_t kTellAfter = 4;
// Who has counted no more than this says nothing, so signs of life are lost on it; places are left
// for the word that it is given up.
constexpr uint64_t kMostUncounted = 8;
// How long who leaves waits for its last message to go out and the other to hear of it.
constexpr std::chrono::seconds kLeavingTime(1);
// How long who gives up waits for the word of it to go out.
constexpr int64_t kGivingUpMs = 100;

// A connection that the other side has closed ends whoever writes to it by SIGPIPE, where that is
// not blocked. The library's own threads and ours have it blocked; a caller's may not.
class PipeSignalHeld {
 public:
  PipeSignalHeld() {
    sigset_t pending;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  PipeSignalHeld(const PipeSignalHeld&) = delete;
  PipeSignalHeld& operator=(const PipeSignalHeld&) = delete;
  ~PipeSignalHeld() {
    const timespec now = {};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace

void complete_network_ends(const NetworkEnds& ends) {
  for (const auto& [sent, status] : ends) {
    if (sent != nullptr) sent->complete(status);
  }
}

NetworkPeer::NetworkPeer(NetworkBase& base, int process, void* pair)
    : base_(base), process_(process), pair_(pair), name_(fmt::format("process {}", process)) {}

NetworkPeer::~NetworkPeer() {
  if (pair_ != nullptr) base_.carrier().free_pair(pair_);
}

std::string NetworkPeer::name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

std::chrono::nanoseconds NetworkPeer::silent_for() const {
  const std::lock_guard lock(mutex_);
  return silent_;
}

Status NetworkPeer::status() const {
  const std::lock_guard lock(mutex_);
  if (!is_connected_) return failed_precondition("{} is not connected", name_);
  return status_;
}

Status NetworkPeer::closed(const carrier::Error& error) const {
  if (base_.is_over) return cancelled("this process has left the group");
  return unavailable("{} has died: its connection is closed ({})", name(), error.text);
}

Status NetworkPeer::nonsense(const char* what) const {
  return data_loss("{} sends what no process of a run would: {}", name(), what);
}

Status NetworkPeer::connect(const NetworkCard& card, std::shared_ptr<void> alive) {
  const std::lock_guard lock(mutex_);
  if (is_connected_) return ok_status();
  const std::string name = fmt::format("process {} (pid {} on {})", process_, card.pid, card.host);
  const auto partner = card.names.find(static_cast<int>(base_.own.rank));
  if (card.rank != process_ || card.size != base_.own.size || partner == card.names.end() ||
      pair_ == nullptr) {
    return invalid_argument("the description of {} is not one for process {} of {}", name,
                            base_.own.rank, base_.own.size);
  }
  if (card.engine != base_.own.engine) {
    return failed_precondition("{} has {}, this process {}: processes of a run need the same", name,
                               card.engine, base_.own.engine);
  }
  name_ = name;
  partner_token_ = card.token;
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread(
        [this, alive = std::move(alive), partner = partner->second] { serve(partner); });
  } catch (const std::system_error& error) {
    return resource_exhausted("no thread for messages of {}: {}", name, error.what());
  }
  is_connected_ = true;
  return ok_status();
}

// ---- what any thread may do ----

bool NetworkPeer::has_place() const {
  const Place& place = places_[posted_ % kWindow];
  return is_linked_ && !is_broken_ && !place.is_waited_for &&
         (!place.is_posted || posted_ - counted_ < kWindow);
}

std::span<std::byte> NetworkPeer::place_payload() {
  return {places_[posted_ % kWindow].memory.get() + sizeof(PieceHead), kPieceBytes};
}

bool NetworkPeer::post(Kind kind, size_t bytes, bool wants_count) {
  Place& place = places_[posted_ % kWindow];
  carrier::Error error;
  // At once: the partner has counted it, unless it lies.
  if (place.is_posted &&
      base_.carrier().last_sent(place.buffer, kCountedMs, &error) != carrier::kDone) {
    is_broken_ = true;
    return false;
  }
  told_ = pieces_;
  const PieceHead head{kind, wants_count, static_cast<uint32_t>(bytes), told_, messages_};
  std::memcpy(place.memory.get(), &head, sizeof(head));
  place.is_posted = base_.carrier().send(place.buffer, kPieces, 0, sizeof(head) + bytes, &error);
  is_broken_ = is_broken_ || !place.is_posted;  // the serving thread sees why
  ++posted_;
  last_post_ = NetworkClock::now();
  return !is_broken_;
}

size_t NetworkPeer::fill_place(OutgoingMessage& out) {
  std::span<std::byte> room = place_payload();
  out.skip_empty();
  while (!out.is_done() && !room.empty() && !is_large_block(out)) {
    const std::span<const std::byte> rest = out.rest();
    const size_t count = std::min(rest.size(), room.size());
    copy_bytes(room.data(), rest.data(), static_cast<int64_t>(count));
    room = room.subspan(count);
    out.offset += count;
    out.skip_empty();
  }
  return kPieceBytes - room.size();
}

bool NetworkPeer::is_large_block(const OutgoingMessage& out) {
  return out.part > 0 && out.offset == 0 && out.rest().size() > kPieceBytes;
}

void NetworkPeer::count() {
  if (has_place() && post(Kind::kCount, 0)) return;
  owes_count_ = true;
  to_send_.notify_one();
}

void NetworkPeer::settle(NetworkEnds& ends) {
  while (!unconfirmed_.empty() && handed_ - unconfirmed_.size() < confirmed_) {
    Handed& first = unconfirmed_.front();
    for (void* const buffer : first.buffers) base_.carrier().free_buffer(buffer);
    ends.emplace_back(std::move(first.sent), ok_status());
    unconfirmed_.pop_front();
  }
}

void NetworkPeer::post_block(std::span<const std::byte> block) {
  const carrier::Table& carrier = base_.carrier();
  carrier::Error error;
  // It is only read.
  void* const buffer =
      carrier.make_buffer(pair_, const_cast<std::byte*>(block.data()), block.size(), &error);
  is_broken_ = is_broken_ || buffer == nullptr;
  if (buffer == nullptr) return;
  front_buffers_.push_back(buffer);
  for (size_t at = 0; at < block.size() && !is_broken_; at += kBlockPieceBytes) {
    const size_t bytes = std::min(kBlockPieceBytes, block.size() - at);
    is_broken_ = !carrier.send(buffer, kBlocks, at, bytes, &error);
  }
}

bool NetworkPeer::write_front(NetworkEnds& ends) {
  OutgoingMessage& out = queue_.front();
  const bool wants_count = out.sent != nullptr || out.bytes() > kPieceBytes;
  out.skip_empty();
  while (!out.is_done()) {
    if (is_large_block(out)) {
      post_block(out.rest());
      out.offset = out.rest().size();
      out.skip_empty();
    } else {
      if (!has_place()) return false;
      post(Kind::kStream, fill_place(out), wants_count);
    }
    if (is_broken_) return false;
  }
  unconfirmed_.push_back(
      {std::move(out.sent), std::move(out.message), std::exchange(front_buffers_, {})});
  ++handed_;
  queue_.pop_front();
  settle(ends);  // the partner may have counted it already
  return true;
}

void NetworkPeer::send(Message message, CompletionRef sent) {
  NetworkEnds ends;
  {
    const std::lock_guard lock(mutex_);
    Result<std::string> frame = frame_of(message);
    const Status status = !is_connected_  ? failed_precondition("{} is not connected", name_)
                          : !status_.ok() ? status_
                                          : frame.status();
    if (!status.ok()) {
      ends.emplace_back(std::move(sent), status);
    } else {
      queue_.push_back({*std::move(frame), std::move(message), std::move(sent)});
      bool is_posted = false;
      if (queue_.size() == 1 && has_met_ && !base_.is_over && !must_stop()) {
        const PipeSignalHeld held;
        is_posted = write_front(ends);
      }
      if (!is_posted) to_send_.notify_one();
    }
  }
  complete_network_ends(ends);
}

void NetworkPeer::abandon(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!is_linked_ || has_ended_) return;
  if (fault_.ok()) fault_ = why;
  wake_waiters();
}

void NetworkPeer::wake_waiters() {
  for (void* const buffer : receivers_wait_on_) {
    if (buffer != nullptr) base_.carrier().wake_receiver(buffer);
  }
  arrivals_changed_.notify_all();
  if (sender_waits_on_ != nullptr) base_.carrier().wake_sender(sender_waits_on_);
  to_send_.notify_all();
}

void NetworkPeer::leave() {
  const std::lock_guard lock(mutex_);
  if (!has_met_) {
    fault_ = cancelled("this process has left the group");
    if (!is_linked_ && is_connected_ && pair_ != nullptr) base_.carrier().shut(pair_);
  }
  wake_waiters();
}

void NetworkPeer::join() {
  if (!thread_.joinable()) return;
  const std::thread::id caller = std::this_thread::get_id();
  if (caller == thread_.get_id() || caller == deliverer_id_) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void NetworkPeer::look_after(std::chrono::nanoseconds passed) {
  const std::lock_guard lock(mutex_);
  if (!is_linked_ || has_ended_) return;
  const NetworkOptions& options = base_.options;
  // A pause of this process says nothing of the other: both may have been stopped.
  const std::chrono::nanoseconds counted = std::min(passed, 2 * options.beat);
  const uint64_t heard = heard_;
  silent_ =
      heard != heard_before_ || is_in_event_ ? std::chrono::nanoseconds(0) : silent_ + counted;
  heard_before_ = heard;
  Status fault;
  if (base_.is_over) {
    leaving_ += passed;
    if (leaving_ >= kLeavingTime) fault = cancelled("this process has left the group");
  } else if (!has_met_) {
    if (silent_ >= options.patience) {
      fault = deadline_exceeded("{} does not answer: it has not reached for this process", name_);
    }
  } else if (options.silence.count() != 0 && silent_ >= options.silence) {
    fault = deadline_exceeded(
        "{} has given no sign of life for {:.1f} s: it is stopped, its machine stands still, or "
        "the "
        "network is down",
        name_, std::chrono::duration<double>(silent_).count());
  }
  if (fault_.ok()) fault_ = fault;
  carrier::Error error;
  if (!fault_.ok() || !base_.carrier().is_open(pair_, &error)) wake_waiters();
}

// ---- the serving thread ----

void NetworkPeer::serve(const std::string& partner) {
  Status why = meet(partner);
  if (why.ok()) {
    try {
      std::jthread sender = start_thread([this] { send_all(); });
      why = receive_all();
      wait_delivered();
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      wake_waiters();
    } catch (const std::system_error& error) {
      why = resource_exhausted("no thread for messages to {}: {}", name(), error.what());
    }
  }
  if (deliverer_.joinable()) deliverer_.join();
  end(why);
}

Status NetworkPeer::meet(const std::string& partner) {
  const carrier::Table& carrier = base_.carrier();
  carrier::Error error;
  if (!carrier.connect(pair_, partner.data(), partner.size(), &error)) {
    if (base_.is_over) return closed(error);
    return unavailable("{} cannot be reached from {}: {}", name(), base_.own.address, error.text);
  }
  const size_t bytes = sizeof(PieceHead) + kPieceBytes;
  for (auto* const places : {&places_, &inbox_}) {
    for (Place& place : *places) {
      place.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
      place.buffer = carrier.make_buffer(pair_, place.memory.get(), bytes, &error);
      if (place.buffer == nullptr) return closed(error);
    }
  }
  for (const Place& place : inbox_) {
    if (!carrier.receive(place.buffer, kPieces, 0, bytes, &error)) return closed(error);
  }
  {
    const std::lock_guard lock(mutex_);
    is_linked_ = true;
    const Hello hello = hello_of(partner_token_, base_.own.rank);
    std::memcpy(place_payload().data(), &hello, sizeof(hello));
    post(Kind::kHello, sizeof(hello));  // where it fails, so does the wait
  }
  HEKLA_RETURN_IF_ERROR(wait_received(inbox_[0].buffer, kServing));
  const std::span<const std::byte> piece(inbox_[0].memory.get(), bytes);
  PieceHead head;
  std::memcpy(&head, piece.data(), sizeof(head));
  const Hello expected = hello_of(base_.own.token, process_);
  if (head.kind != Kind::kHello || head.bytes != sizeof(expected) ||
      std::memcmp(piece.data() + sizeof(head), &expected, sizeof(expected)) != 0) {
    return data_loss("something that is not {} has connected in its place", name());
  }
  HEKLA_RETURN_IF_ERROR(take_counts(head));
  if (!carrier.receive(inbox_[0].buffer, kPieces, 0, bytes, &error)) return closed(error);
  ++pieces_;
  const std::lock_guard lock(mutex_);
  has_met_ = true;
  return ok_status();
}

NetworkPeer::Hello NetworkPeer::hello_of(const std::string& token, int64_t rank) {
  Hello hello = {};
  std::memcpy(hello.token, token.data(), std::min(token.size(), sizeof(hello.token)));
  hello.rank = rank;
  return hello;
}

Status NetworkPeer::wait_received(void* buffer, Receiver receiver) {
  const carrier::Table& carrier = base_.carrier();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!fault_.ok()) return fault_;
      receivers_wait_on_[receiver] = buffer;
    }
    carrier::Error error;
    const carrier::Waited waited = carrier.wait_received(buffer, &error);
    bool is_open = true, is_heard = false;
    {
      const std::lock_guard lock(mutex_);
      receivers_wait_on_[receiver] = nullptr;
      // While blocks are under way they are the signs of life: none may stay out for ever.
      is_heard = receiver == kDelivering || arrivals_.empty();
      if (waited == carrier::kWoken) is_open = carrier.is_open(pair_, &error);
    }
    if (waited == carrier::kFailed) return closed(error);
    // Woken: for a fault, or since nothing comes any more but what is there.
    if (waited == carrier::kWoken) {
      if (is_open) continue;
      carrier::Error none;
      if (carrier.last_received(buffer, 1, &none) != carrier::kDone) return closed(error);
    }
    if (is_heard) ++heard_;
    return ok_status();
  }
}

Status NetworkPeer::receive_all() {
  const carrier::Table& carrier = base_.carrier();
  const size_t bytes = sizeof(PieceHead) + kPieceBytes;
  for (;;) {
    const Place& place = inbox_[pieces_ % kWindow];
    HEKLA_RETURN_IF_ERROR(wait_received(place.buffer, kServing));
    ++pieces_;
    HEKLA_RETURN_IF_ERROR(take_piece({place.memory.get(), bytes}));
    carrier::Error error;
    // Where the connection has closed meanwhile, what came before is still there to be taken.
    static_cast<void>(carrier.receive(place.buffer, kPieces, 0, bytes, &error));
  }
}

Status NetworkPeer::take_piece(std::span<const std::byte> piece) {
  PieceHead head;
  std::memcpy(&head, piece.data(), sizeof(head));
  if (head.bytes > kPieceBytes) return nonsense("a piece of more bytes than there are");
  HEKLA_RETURN_IF_ERROR(take_counts(head));
  switch (head.kind) {
    case Kind::kStream:
      wants_count_ = wants_count_ || head.wants_count != 0;
      return take_stream(piece.subspan(sizeof(head), head.bytes));
    case Kind::kCount:
      return ok_status();
    case Kind::kLeave:
      return unavailable("{} has ended", name());
    case Kind::kGivenUp:
      return unavailable(
          "{} has given up on this process, of which it had heard nothing for too long, or nothing "
          "that makes sense",
          name());
    case Kind::kHello:
      break;
  }
  return nonsense("a piece of an unknown kind");
}

Status NetworkPeer::take_counts(const PieceHead& head) {
  NetworkEnds ends;
  {
    const std::lock_guard lock(mutex_);
    const bool is_sound = head.pieces >= counted_ && head.pieces <= posted_ &&
                          head.messages >= confirmed_ && head.messages <= handed_ + queue_.size();
    if (!is_sound) {
      return data_loss("{} sends what no process of a run would: it counts what was not sent",
                       name_);
    }
    counted_ = head.pieces;
    confirmed_ = head.messages;
    settle(ends);
    if (pieces_ - told_ >= kTellAfter) count();
  }
  complete_network_ends(ends);
  return ok_status();
}

Status NetworkPeer::take_stream(std::span<const std::byte> bytes) {
  for (;;) {
    const std::span<std::byte> target = frames_.target();
    size_t count = 0;
    if (frames_.is_in_block() && target.size() > kPieceBytes) {
      if (!bytes.empty()) return nonsense("a large block among the small ones");
      HEKLA_RETURN_IF_ERROR(post_receives(target));
      count = target.size();
    } else {
      if (bytes.empty()) return ok_status();
      count = std::min(target.size(), bytes.size());
      copy_bytes(target.data(), bytes.data(), static_cast<int64_t>(count));
      bytes = bytes.subspan(count);
    }
    Result<std::optional<Message>> message = frames_.advance(count);
    if (!message.ok()) return message.status().with_context(name());
    if (*message) HEKLA_RETURN_IF_ERROR(take_message(**std::move(message)));
  }
}

std::shared_ptr<void> NetworkPeer::place_of(const Message& begun, int64_t bytes) {
  std::shared_ptr<void> memory;
  if (!base_.events.place || bytes <= static_cast<int64_t>(kPieceBytes)) return memory;
  base_.gate.call([&] { memory = base_.events.place(process_, begun, bytes); });
  return memory;
}

Status NetworkPeer::post_receives(std::span<std::byte> block) {
  {
    Lock lock(mutex_);
    arrivals_changed_.wait(lock, [&] {
      return arrivals_.empty() || arriving_bytes_ + block.size() <= kMostArriving || !fault_.ok();
    });
    if (!fault_.ok()) return fault_;
  }
  const carrier::Table& carrier = base_.carrier();
  carrier::Error error;
  void* const buffer = carrier.make_buffer(pair_, block.data(), block.size(), &error);
  if (buffer == nullptr) return closed(error);
  const size_t pieces = (block.size() + kBlockPieceBytes - 1) / kBlockPieceBytes;
  incoming_.push_back({buffer, pieces, block.size()});
  for (size_t at = 0; at < block.size(); at += kBlockPieceBytes) {
    // Where it fails, so does the wait, once what has come is taken.
    static_cast<void>(carrier.receive(buffer, kBlocks, at,
                                      std::min(kBlockPieceBytes, block.size() - at), &error));
  }
  return ok_status();
}

Status NetworkPeer::take_message(Message message) {
  Arrival arrival{std::move(message), std::exchange(incoming_, {}),
                  std::exchange(wants_count_, false)};
  if (!arrival.blocks.empty() && !deliverer_.joinable()) {
    try {
      deliverer_ = start_thread([this] {
        deliverer_id_ = std::this_thread::get_id();
        deliver_all();
        deliverer_id_ = std::thread::id();
      });
    } catch (const std::system_error& error) {
      return resource_exhausted("no thread for blocks of {}: {}", name(), error.what());
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (!arrival.blocks.empty() || !arrivals_.empty()) {
      arriving_bytes_ += arrival.bytes();
      arrivals_.push_back(std::move(arrival));
      arrivals_changed_.notify_all();
      return ok_status();
    }
  }
  deliver(std::move(arrival.message), arrival.wants_count);
  return ok_status();
}

void NetworkPeer::wait_delivered() {
  Lock lock(mutex_);
  arrivals_changed_.wait(lock, [&] { return arrivals_.empty() || !fault_.ok(); });
}

void NetworkPeer::deliver(Message message, bool wants_count) {
  {
    const std::lock_guard lock(mutex_);
    ++messages_;
    if (wants_count) count();
  }
  is_in_event_ = true;
  base_.gate.call([&] { base_.events.received(process_, std::move(message)); });
  is_in_event_ = false;
}

void NetworkPeer::drop_arrivals() {
  for (const Arrival& arrival : arrivals_) {
    incoming_.insert(incoming_.end(), arrival.blocks.begin(), arrival.blocks.end());
  }
  for (const IncomingBlock& block : std::exchange(incoming_, {})) {
    if (block.buffer != nullptr) base_.carrier().free_buffer(block.buffer);
  }
  arrivals_.clear();
  frames_.drop();
}

void NetworkPeer::end(const Status& why) {
  const carrier::Table& carrier = base_.carrier();
  // First of all: somebody may wait for memory that blocks were to come into.
  drop_arrivals();
  carrier::Error error;
  void* last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    status_ = why;
    // It hears of it, should it still be there.
    const bool gives_up =
        is_linked_ && !base_.is_over &&
        (why.code() == StatusCode::kDeadlineExceeded || why.code() == StatusCode::kDataLoss ||
         why.code() == StatusCode::kResourceExhausted);
    has_ended_ = true;
    if (gives_up && has_place()) {
      last = places_[posted_ % kWindow].buffer;
      if (!post(Kind::kGivenUp, 0)) last = nullptr;
    }
  }
  if (last != nullptr) static_cast<void>(carrier.last_sent(last, kGivingUpMs, &error));
  for (auto* const places : {&places_, &inbox_}) {
    for (Place& place : *places) {
      if (place.buffer != nullptr) carrier.free_buffer(place.buffer);
      place = Place();
    }
  }
  NetworkEnds ends;
  void* pair = nullptr;
  {
    const std::lock_guard lock(mutex_);
    pair = std::exchange(pair_, nullptr);
    for (OutgoingMessage& out : queue_) ends.emplace_back(std::move(out.sent), why);
    for (Handed& handed : unconfirmed_) {
      front_buffers_.insert(front_buffers_.end(), handed.buffers.begin(), handed.buffers.end());
      ends.emplace_back(std::move(handed.sent), why);
    }
    for (void* const buffer : std::exchange(front_buffers_, {})) carrier.free_buffer(buffer);
    queue_.clear();
    unconfirmed_.clear();
  }
  carrier.free_pair(pair);
  complete_network_ends(ends);
  base_.gate.call([&] { base_.events.lost(process_, why); });
}

// ---- the delivering thread ----

size_t NetworkPeer::Arrival::bytes() const {
  size_t sum = 0;
  for (const IncomingBlock& block : blocks) sum += block.bytes;
  return sum;
}

void NetworkPeer::deliver_all() {
  Lock lock(mutex_);
  for (;;) {
    arrivals_changed_.wait(lock, [&] { return !arrivals_.empty() || has_ended_; });
    if (has_ended_) return;
    Arrival& arrival = arrivals_.front();  // stays where it is while others come behind it
    lock.unlock();
    const Status status = wait_for_blocks(arrival);
    if (status.ok()) deliver(std::move(arrival.message), arrival.wants_count);
    lock.lock();
    if (!status.ok()) {
      if (fault_.ok()) fault_ = status;
      wake_waiters();
      return;
    }
    arriving_bytes_ -= arrival.bytes();
    arrivals_.pop_front();
    arrivals_changed_.notify_all();
  }
}

Status NetworkPeer::wait_for_blocks(Arrival& arrival) {
  for (IncomingBlock& block : arrival.blocks) {
    for (size_t i = 0; i < block.pieces; ++i) {
      HEKLA_RETURN_IF_ERROR(wait_received(block.buffer, kDelivering));
    }
    base_.carrier().free_buffer(std::exchange(block.buffer, nullptr));
  }
  return ok_status();
}

// ---- the sending thread ----

bool NetworkPeer::must_stop() const { return has_ended_ || is_broken_ || !fault_.ok(); }

void NetworkPeer::send_all() {
  Lock lock(mutex_);
  while (!must_stop()) {
    if (base_.is_over && (queue_.empty() || !queue_.front().has_begun())) {
      if (wait_for_place(lock)) post(Kind::kLeave, 0);
      return;
    }
    const bool is_due = NetworkClock::now() >= last_post_ + base_.options.beat;
    if (owes_count_ || (is_due && posted_ - counted_ < kMostUncounted)) {
      if (!wait_for_place(lock)) return;
      owes_count_ = false;
      post(Kind::kCount, 0);
    } else if (!queue_.empty()) {
      NetworkEnds ends;
      const bool is_posted = write_front(ends);
      lock.unlock();
      complete_network_ends(ends);
      lock.lock();
      if (!is_posted && !wait_for_place(lock)) return;
    } else {
      to_send_.wait_for(lock, base_.options.beat);
    }
  }
}

bool NetworkPeer::wait_for_place(Lock& lock) {
  while (!has_place()) {
    if (must_stop()) return false;
    Place& place = places_[posted_ % kWindow];
    place.is_waited_for = true;
    const bool is_good = wait_sent(lock, place.buffer);
    place.is_waited_for = false;
    if (!is_good) return false;
    place.is_posted = false;
  }
  return true;
}

bool NetworkPeer::wait_sent(Lock& lock, void* buffer) {
  const carrier::Table& carrier = base_.carrier();
  while (!must_stop()) {
    sender_waits_on_ = buffer;
    lock.unlock();
    carrier::Error error;
    const carrier::Waited waited = carrier.wait_sent(buffer, &error);
    lock.lock();
    sender_waits_on_ = nullptr;
    if (waited == carrier::kDone) return true;
    if (waited == carrier::kFailed || !carrier.is_open(pair_, &error)) is_broken_ = true;
  }
  return false;
}

}  // namespace hekla::collectives
