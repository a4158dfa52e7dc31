// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/serial_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace hekla {

struct SerialQueue::State {
  std::mutex mutex;
  std::condition_variable condition;
  std::deque<std::function<void()>> queue;  // guarded by mutex
  bool is_closing = false;                  // guarded by mutex
  std::thread thread;
};

SerialQueue::SerialQueue() : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_] {
    std::unique_lock lock(state->mutex);
    while (true) {
      state->condition.wait(lock, [&] { return state->is_closing || !state->queue.empty(); });
      if (state->queue.empty()) return;
      std::function<void()> job = std::move(state->queue.front());
      state->queue.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
  });
}

SerialQueue::~SerialQueue() {
  {
    std::lock_guard lock(state_->mutex);
    state_->is_closing = true;
  }
  state_->condition.notify_all();
  // The last owner may be a job.
  if (state_->thread.get_id() == std::this_thread::get_id()) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

void SerialQueue::post(std::function<void()> job) {
  {
    std::lock_guard lock(state_->mutex);
    state_->queue.push_back(std::move(job));
  }
  state_->condition.notify_one();
}

}  // namespace hekla
