// SPDX-License-Identifier: Apache-2.0
// NetworkPeer: one other process of a NetworkTransport: its connection and the threads that serve
// it.
//
// All that travels on the first channel are pieces: a head and up to 64 KiB. Blocks larger than
// that go on the second, straight from array to array, where the stream of frames has come to one.
// A head says how many pieces and messages its sender has received so far; pieces that are counted
// free their place at the sender, messages complete. Nothing that comes is believed.
//
// The serving thread receives and calls events. Where large blocks come it posts their receives and
// reads on, and a delivering thread, which it starts with the first one, waits for the blocks and
// calls events from then on whenever some are under way: so the partner sends one block after the
// other without a round trip between them. Callers post what they send, which waits for nobody, as
// long as there are places; then a sending thread does, which the serving one owns, too. The keeper
// (look_after) sees what they cannot while they wait.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collectives/event_gate.h"
#include "runtime/collectives/frame.h"
#include "runtime/collectives/network_card.h"
#include "runtime/collectives/network_transport.h"

namespace hekla::collectives {

// What the peers of a transport share; immutable but for the gate and `is_over`.
struct NetworkBase {
  NetworkOptions options;
  NetworkCard own;
  Transport::Events events;
  EventGate gate;
  std::atomic<bool> is_over = false;

  const carrier::Table& carrier() const { return *options.carrier; }
};

// Completed without a lock held.
using NetworkEnds = std::vector<std::pair<CompletionRef, Status>>;
void complete_network_ends(const NetworkEnds& ends);

class NetworkPeer {
 public:
  // Owns `pair`, which is null where there is no way to the process.
  NetworkPeer(NetworkBase& base, int process, void* pair);
  ~NetworkPeer();
  NetworkPeer(const NetworkPeer&) = delete;
  NetworkPeer& operator=(const NetworkPeer&) = delete;

  std::string name() const;
  Status status() const;
  std::chrono::nanoseconds silent_for() const;
  // `alive` keeps all of this as long as the thread runs.
  Status connect(const NetworkCard& card, std::shared_ptr<void> alive);
  void send(Message message, CompletionRef sent);
  void abandon(const Status& why);
  // Every beat; `passed` since the last time.
  void look_after(std::chrono::nanoseconds passed);
  // Ends what is under way, soon; then join() waits, unless it is called by an event of this peer.
  void leave();
  void join();

 private:
  static constexpr size_t kWindow = 16;
  static constexpr size_t kPieceBytes = size_t{64} << 10;
  enum class Kind : uint16_t { kHello = 1, kStream, kCount, kLeave, kGivenUp };
  struct PieceHead {
    Kind kind;
    uint16_t wants_count;  // of a message, as soon as it has come
    uint32_t bytes;
    uint64_t pieces, messages;  // that its sender has received
  };
  using Memory = std::unique_ptr<std::byte[]>;
  // A place for a piece, on its way out or in.
  struct Place {
    Memory memory;
    void* buffer = nullptr;
    bool is_posted = false;
    bool is_waited_for = false;
  };
  // A message that is posted whole and not counted by the partner yet.
  struct Handed {
    CompletionRef sent;
    Message message;             // its blocks are read
    std::vector<void*> buffers;  // of the large ones
  };
  // A large block on its way in.
  struct IncomingBlock {
    void* buffer;
    size_t pieces, bytes;
  };
  // A message whose stream has been read, and what of it is still to come.
  struct Arrival {
    Message message;
    std::vector<IncomingBlock> blocks;
    bool wants_count = false;

    size_t bytes() const;  // of the blocks
  };
  enum Receiver { kServing, kDelivering, kReceivers };
  using Lock = std::unique_lock<std::mutex>;

  struct Hello {
    char token[NetworkCard::kTokenBytes];  // of the card of who is told
    int64_t rank;                          // of who tells
  };
  static Hello hello_of(const std::string& token, int64_t rank);

  // The serving thread's.
  void serve(const std::string& partner);
  Status meet(const std::string& partner);
  Status receive_all();
  Status take_piece(std::span<const std::byte> piece);
  Status take_counts(const PieceHead& head);
  Status take_stream(std::span<const std::byte> bytes);
  // Memory of the events' for a block that is received straight into it.
  std::shared_ptr<void> place_of(const Message& begun, int64_t bytes);
  // Posts the block's receives, when not too much is under way.
  Status post_receives(std::span<std::byte> block);
  // Delivers it, or has it delivered behind what is under way.
  Status take_message(Message message);
  void wait_delivered();
  // What of blocks has not come does not any more, and their memory is let go.
  void drop_arrivals();
  void end(const Status& why);
  // The delivering thread's.
  void deliver_all();
  Status wait_for_blocks(Arrival& arrival);
  // Of both: until what was posted first in `buffer` is there; an error ends the connection.
  Status wait_received(void* buffer, Receiver receiver);
  void deliver(Message message, bool wants_count);
  // The sending thread's, with the lock, which they give up while they wait. False: it must stop.
  void send_all();
  bool wait_for_place(Lock& lock);
  bool wait_sent(Lock& lock, void* buffer);
  // Of the mutex.
  bool must_stop() const;
  // Posts what there are places for of the first message in the queue; whether that was all of it.
  bool write_front(NetworkEnds& ends);
  void post_block(std::span<const std::byte> block);
  bool has_place() const;
  std::span<std::byte> place_payload();
  // What of the message goes into one piece, up to a large block.
  size_t fill_place(OutgoingMessage& out);
  static bool is_large_block(const OutgoingMessage& out);
  // Where there is a place; `bytes` of the payload.
  bool post(Kind kind, size_t bytes, bool wants_count = false);
  void settle(NetworkEnds& ends);
  void wake_waiters();
  void count();  // tells the partner how much has come, at once or soon

  Status closed(const carrier::Error& error) const;
  Status nonsense(const char* what) const;

  NetworkBase& base_;
  const int process_;
  std::string partner_token_;  // before the thread starts
  std::thread thread_;         // of the serving thread
  std::atomic<std::thread::id> deliverer_id_;

  mutable std::mutex mutex_;
  std::condition_variable to_send_, arrivals_changed_;  // with mutex_
  // Guarded by mutex_, as all to the next blank line.
  void* pair_;  // the serving thread alone changes it
  std::string name_;
  Status status_;  // why it is lost
  Status fault_;   // what the keeper saw; the serving thread ends for it
  bool is_connected_ = false, is_linked_ = false, has_met_ = false, has_ended_ = false;
  bool owes_count_ = false, is_broken_ = false;
  std::deque<OutgoingMessage> queue_;
  std::vector<void*> front_buffers_;  // of the first one's blocks that are posted
  std::deque<Handed> unconfirmed_;
  uint64_t handed_ = 0, confirmed_ = 0;  // messages
  uint64_t posted_ = 0, counted_ = 0;    // pieces, and those of them that the partner has counted
  uint64_t told_ = 0;                    // of pieces_, with the last one posted
  std::array<Place, kWindow> places_;
  std::deque<Arrival> arrivals_;  // the first one is under way; the delivering thread takes it
  size_t arriving_bytes_ = 0;     // of their blocks
  std::array<void*, kReceivers> receivers_wait_on_ = {};
  void* sender_waits_on_ = nullptr;
  std::chrono::steady_clock::time_point last_post_;  // on the first channel

  // The keeper's.
  uint64_t heard_before_ = 0;
  std::chrono::nanoseconds silent_{0}, leaving_{0};

  std::atomic<uint64_t> heard_{0};
  std::atomic<uint64_t> pieces_{0}, messages_{0};  // received
  std::atomic<bool> is_in_event_ = false;

  // The serving thread's.
  std::array<Place, kWindow> inbox_;
  FrameReader frames_{
      [this](const Message& begun, int64_t bytes) { return place_of(begun, bytes); }};
  // Of the message whose stream is read.
  bool wants_count_ = false;
  std::vector<IncomingBlock> incoming_;
  std::jthread deliverer_;
};

}  // namespace hekla::collectives
