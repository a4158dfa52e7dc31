// SPDX-License-Identifier: Apache-2.0
// CallbackQueue: threads for jobs that call code of the client's and may block there.
//
// Jobs begin in the order in which they were posted, each after the one before has ended, unless
// that would wait without end: a job that was posted inside of a callback (CallbackScope) begins at
// once, since the callback may wait for it, and a job that has run for kPatience lets the next
// ones pass, since it may wait for them by way of another thread of the client. So the order is
// what callers can expect where nobody blocks, and not a promise. A thread is kept for the next
// job, for kAwake without sleeping where jobs come that often (BriefWait), and a second one for
// kRest; others end once they are idle. At most kMaxThreads stand in callbacks at a time, nested
// ones not counted. Thread-safe. Jobs must not throw.
//
// The destructor waits for the jobs posted so far and for the threads to be gone; where one of the
// jobs is what destroys the queue the threads end by themselves.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/base/status.h"

namespace hekla {

// While it lives, the thread runs code of the client's.
class CallbackScope {
 public:
  CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
  ~CallbackScope();
  static bool is_inside();
};

class CallbackQueue {
 public:
  static constexpr std::chrono::milliseconds kPatience{100};
  static constexpr std::chrono::microseconds kAwake{150};
  static constexpr std::chrono::seconds kRest{5};
  static constexpr size_t kMaxThreads = 256;

  CallbackQueue();
  CallbackQueue(const CallbackQueue&) = delete;
  CallbackQueue& operator=(const CallbackQueue&) = delete;
  ~CallbackQueue();

  // Starts a thread, once, so that post() cannot fail; to be called before the first post().
  // RESOURCE_EXHAUSTED: there is none.
  Status start_thread();
  void post(std::function<void()> job);

 private:
  struct State;
  using Handle = std::list<std::thread>::iterator;
  static void run(const std::shared_ptr<State>& state, Handle self);
  static bool rest(State& state, std::unique_lock<std::mutex>& lock);
  // Under the mutex; whether there is a thread more.
  static bool add_thread(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace hekla
