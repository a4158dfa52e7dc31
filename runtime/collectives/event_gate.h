// SPDX-License-Identifier: Apache-2.0
// EventGate: lets the threads of a transport call events one after the other, and none any more
// once it is closed. Thread-safe; closing does not wait for the event under way, which may be who
// closes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/collectives/transport.h"

namespace hekla::collectives {

class EventGate {
 public:
  template <typename Event>
  void call(const Event& event) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_closed_ || !is_taken_; });
      if (is_closed_) return;
      is_taken_ = true;
    }
    event();
    {
      const std::lock_guard lock(mutex_);
      is_taken_ = false;
    }
    changed_.notify_one();
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
  }

  // Events that go through the gate, for several transports that share it.
  static Transport::Events guard(const std::shared_ptr<EventGate>& gate, Transport::Events events) {
    const auto shared = std::make_shared<Transport::Events>(std::move(events));
    Transport::Events guarded = {[gate, shared](int from, Message message) {
                                   gate->call([&] { shared->received(from, std::move(message)); });
                                 },
                                 [gate, shared](int process, const Status& why) {
                                   gate->call([&] { shared->lost(process, why); });
                                 },
                                 {}};
    if (shared->place) {
      guarded.place = [gate, shared](int from, const Message& begun, int64_t bytes) {
        std::shared_ptr<void> memory;
        gate->call([&] { memory = shared->place(from, begun, bytes); });
        return memory;
      };
    }
    return guarded;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_taken_ = false;   // guarded by mutex_
  bool is_closed_ = false;  // guarded by mutex_
};

}  // namespace hekla::collectives
