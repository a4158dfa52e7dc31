// SPDX-License-Identifier: Apache-2.0
// Pair: one end of a connection by UCX, and PairBuffer, memory that is sent from and received into.
//
// Each pair has a worker of its own, with all that UCX keeps for it: when the worker is gone,
// nothing of the pair's is written any more, which UCX does not promise of a single receive that is
// cancelled. Messages are UCX's tagged ones; a tag is the channel and a random word that stands in
// the receiver's name.
//
// Thread-safe: each call of UCX holds the pair's mutex. The device's thread and whoever posts
// something take what has come.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "runtime/collectives/carrier.h"

namespace hekla::collectives::carrier {

class Device;
class PairBuffer;

class Pair {
 public:
  // Throws std::runtime_error: what UCX or the system says.
  Pair(Device& device, std::chrono::milliseconds connect_time);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  int descriptor() const { return descriptor_; }  // readable: serve() has something to do
  void serve();

  // As in carrier.h, but that failures are thrown as std::runtime_error.
  const std::string& name() const { return name_; }
  void connect(std::string_view partner);
  void shut();
  // Empty: it is open.
  std::string why_closed();
  // What has been sent still goes out, if it does soon; nothing is served afterwards.
  void close();

 private:
  friend class PairBuffer;
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  struct Operation {
    Pair* pair;
    void* request = nullptr;
    ucs_status_t status = UCS_INPROGRESS;
  };
  enum Direction { kSend, kReceive, kDirections };

  // Of the mutex, as all below.
  void check_open() const;
  void fail(std::string why);
  void post(Operation& operation, Direction direction, uint64_t channel,
            std::span<std::byte> bytes);
  void cancel(Operation& operation);
  void create_endpoint(const std::string& address);
  // Takes what has come, a limited amount at once, and sees to it that the descriptor tells of
  // more.
  void progress();
  // Until `is_over` or the time; whether it is over.
  template <typename IsOver>
  bool progress_until(Lock& lock, Clock::time_point end, const IsOver& is_over);
  void close_endpoint(bool by_force);
  void destroy_worker();
  static void completed(void* request, ucs_status_t status, Operation& operation);

  Device& device_;
  const std::chrono::milliseconds connect_time_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, but for what never changes.
  ucp_worker_h worker_ = nullptr;  // null: nothing comes or goes any more
  ucp_ep_h endpoint_ = nullptr;
  int descriptor_ = -1;
  uint64_t word_ = 0, partner_word_ = 0;  // of the tags of what is received, sent
  std::string name_;
  std::string failure_;
  std::set<PairBuffer*> buffers_;
};

class PairBuffer {
 public:
  PairBuffer(std::shared_ptr<Pair> pair, std::span<std::byte> memory);
  ~PairBuffer();
  PairBuffer(const PairBuffer&) = delete;
  PairBuffer& operator=(const PairBuffer&) = delete;

  void send(uint64_t channel, size_t offset, size_t bytes);
  void receive(uint64_t channel, size_t offset, size_t bytes);
  Waited wait_sent() { return wait(Pair::kSend); }
  Waited wait_received() { return wait(Pair::kReceive); }
  // The pair fails where it takes longer.
  void last_sent(std::chrono::milliseconds most) { last(Pair::kSend, most); }
  void last_received(std::chrono::milliseconds most) { last(Pair::kReceive, most); }
  void wake_sender() { wake(Pair::kSend); }
  void wake_receiver() { wake(Pair::kReceive); }

 private:
  friend class Pair;
  struct Side {
    std::deque<Pair::Operation> posted;  // that nobody has waited for
    bool is_woken = false;
  };

  void post(Pair::Direction direction, uint64_t channel, size_t offset, size_t bytes);
  // Of the first one posted: false while it is under way; throws where it has failed.
  bool take(Side& side);
  Waited wait(Pair::Direction direction);
  void last(Pair::Direction direction, std::chrono::milliseconds most);
  void wake(Pair::Direction direction);

  const std::shared_ptr<Pair> pair_;
  const std::span<std::byte> memory_;
  Side sides_[Pair::kDirections];  // guarded by the pair's mutex
};

}  // namespace hekla::collectives::carrier
