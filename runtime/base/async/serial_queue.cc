// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/serial_queue.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/async/thread.h"

namespace hekla {

struct SerialQueue::State {
  std::function<void()> on_start;
  bool takes_signals = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;  // guarded by mutex, as all below
  uint64_t posted = 0;
  uint64_t ended = 0;
  bool is_closing = false;
  std::jthread thread;  // written under the mutex, and by the destructor

  // Under the mutex.
  static void start(const std::shared_ptr<State>& state) {
    const auto work = [state] { run(*state); };
    state->thread = state->takes_signals ? std::jthread(work) : start_thread(work);
  }
};

SerialQueue::SerialQueue(SerialQueueOptions options) : state_(std::make_shared<State>()) {
  state_->on_start = std::move(options.on_start);
  state_->takes_signals = options.takes_signals;
  const std::lock_guard lock(state_->mutex);
  if (options.starts_now) State::start(state_);
}

void SerialQueue::run(State& state) {
  if (state.on_start) state.on_start();
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.is_closing || !state.jobs.empty(); });
    if (state.jobs.empty()) return;
    std::function<void()> job = std::move(state.jobs.front());
    state.jobs.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++state.ended;
    state.changed.notify_all();
  }
}

SerialQueue::~SerialQueue() {
  bool is_own = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_closing = true;
    is_own = state_->thread.get_id() == std::this_thread::get_id();
    // The last owner may be a job.
    if (is_own) state_->thread.detach();
  }
  state_->changed.notify_all();
  if (!is_own && state_->thread.joinable()) state_->thread.join();
}

void SerialQueue::post(std::function<void()> job) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->thread.joinable()) State::start(state_);
  state_->jobs.push_back(std::move(job));
  ++state_->posted;
  // Under the lock: the last job may destroy the queue as soon as it can run.
  state_->changed.notify_all();
}

bool SerialQueue::drain() {
  std::unique_lock lock(state_->mutex);
  const uint64_t last = state_->posted;
  if (state_->ended >= last || state_->thread.get_id() == std::this_thread::get_id()) return false;
  state_->changed.wait(lock, [&] { return state_->ended >= last; });
  return true;
}

bool SerialQueue::is_own_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->thread.get_id() == std::this_thread::get_id();
}

}  // namespace hekla
