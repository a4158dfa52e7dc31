// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/callback_queue.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace hekla {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int callback_depth = 0;
// Of the queue whose job the thread runs.
thread_local const void* running_state = nullptr;

}  // namespace

CallbackScope::CallbackScope() { ++callback_depth; }
CallbackScope::~CallbackScope() { --callback_depth; }
bool CallbackScope::is_inside() { return callback_depth > 0; }

struct CallbackQueue::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;  // guarded by mutex, as all below
  size_t threads = 0;
  size_t busy = 0;       // threads that run a job
  uint64_t started = 0;  // jobs in the order of the queue
  uint64_t current = 0;  // the job whose end the next one waits for; 0: none
  Clock::time_point current_began;
  bool is_closing = false;
};

CallbackQueue::CallbackQueue() : state_(std::make_shared<State>()) {}

CallbackQueue::~CallbackQueue() {
  std::unique_lock lock(state_->mutex);
  state_->is_closing = true;
  state_->changed.notify_all();
  if (running_state == state_.get()) return;
  state_->changed.wait(lock, [&] { return state_->threads == 0; });
}

bool CallbackQueue::add_thread(const std::shared_ptr<State>& state, std::function<void()> first) {
  const bool is_busy = first != nullptr;
  try {
    // Signals stay as the caller has them: processes that a callback starts inherit them.
    std::thread([state, first = std::move(first)]() mutable {
      run(state, std::move(first));
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  ++state->threads;
  if (is_busy) ++state->busy;
  return true;
}

Status CallbackQueue::start_thread() {
  const std::lock_guard lock(state_->mutex);
  if (state_->threads > 0 || add_thread(state_, nullptr)) return ok_status();
  return resource_exhausted("no thread for the callbacks of a launch");
}

void CallbackQueue::post(std::function<void()> job) {
  const std::lock_guard lock(state_->mutex);
  if (CallbackScope::is_inside() && add_thread(state_, job)) return;
  state_->jobs.push_back(std::move(job));
  // One that is free watches the current job. Without it the job waits for a thread that there is.
  if (state_->busy == state_->threads && state_->threads < kMaxThreads) {
    add_thread(state_, nullptr);
  }
  state_->changed.notify_all();
}

void CallbackQueue::run(const std::shared_ptr<State>& state, std::function<void()> first) {
  running_state = state.get();
  const bool was_first = first != nullptr;
  if (was_first) {
    first();
    first = nullptr;
  }
  std::unique_lock lock(state->mutex);
  if (was_first) --state->busy;
  while (true) {
    if (state->jobs.empty()) {
      // One free thread is enough, and none where the queue ends.
      if (state->is_closing || state->threads - state->busy > 1) break;
      state->changed.wait(lock);
      continue;
    }
    if (state->current != 0) {
      const Clock::time_point end = state->current_began + kPatience;
      if (Clock::now() < end) {
        state->changed.wait_until(lock, end);
        continue;
      }
    }
    std::function<void()> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    const uint64_t number = ++state->started;
    state->current = number;
    state->current_began = Clock::now();
    ++state->busy;
    // Somebody must see when this job has had its time.
    if (!state->jobs.empty() && state->busy == state->threads && state->threads < kMaxThreads) {
      add_thread(state, nullptr);
    }
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    --state->busy;
    if (state->current == number) state->current = 0;
    state->changed.notify_all();
  }
  --state->threads;
  state->changed.notify_all();
}

}  // namespace hekla
