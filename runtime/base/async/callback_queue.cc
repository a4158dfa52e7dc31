// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/callback_queue.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/async/brief_wait.h"

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
  // How many jobs were posted: who waits without sleeping sees it.
  std::atomic<uint64_t> posted = 0;
  BriefWait brief;
  std::deque<std::function<void()>> jobs;    // guarded by mutex, as all below
  std::deque<std::function<void()>> urgent;  // posted inside of callbacks; each has a free thread
  size_t threads = 0;
  size_t busy = 0;       // threads that run a job
  uint64_t started = 0;  // jobs in the order of the queue
  uint64_t current = 0;  // the job whose end the next one waits for; 0: none
  Clock::time_point current_began;
  bool is_closing = false;
  // So that no thread is left when the queue is gone: each that leaves while it closes waits for
  // the one that left before, and the destructor for the last.
  std::list<std::thread> handles;
  std::thread left;
  bool is_abandoned = false;  // a job destroyed the queue: threads end by themselves
};

CallbackQueue::CallbackQueue() : state_(std::make_shared<State>()) {}

CallbackQueue::~CallbackQueue() {
  std::unique_lock lock(state_->mutex);
  state_->is_closing = true;
  state_->changed.notify_all();
  if (running_state == state_.get()) {
    state_->is_abandoned = true;
    if (state_->left.joinable()) state_->left.detach();
    return;
  }
  state_->changed.wait(lock, [&] { return state_->threads == 0; });
  if (state_->left.joinable()) state_->left.join();
}

bool CallbackQueue::add_thread(const std::shared_ptr<State>& state) {
  const auto self = state->handles.emplace(state->handles.end());
  try {
    // Signals stay as the caller has them: processes that a callback starts inherit them.
    *self = std::thread([state, self] { run(state, self); });
  } catch (const std::system_error&) {
    state->handles.erase(self);
    return false;
  }
  ++state->threads;
  return true;
}

Status CallbackQueue::start_thread() {
  const std::lock_guard lock(state_->mutex);
  if (state_->threads > 0 || add_thread(state_)) return ok_status();
  return resource_exhausted("no thread for the callbacks of a launch");
}

void CallbackQueue::post(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    const size_t free = state_->threads - state_->busy - state_->urgent.size();
    if (CallbackScope::is_inside() && (free > 0 || add_thread(state_))) {
      state_->urgent.push_back(std::move(job));
    } else {
      state_->jobs.push_back(std::move(job));
      // One that is free watches the current job. Without it the job waits for a thread that there
      // is.
      if (free == 0 && state_->threads < kMaxThreads) add_thread(state_);
    }
    state_->posted.fetch_add(1, std::memory_order_relaxed);
  }
  state_->changed.notify_all();
}

// Where there is no job; whether the thread is to look again.
bool CallbackQueue::rest(State& state, std::unique_lock<std::mutex>& lock) {
  const auto free = [&] { return state.threads - state.busy; };
  // One to run the next job, and one to watch it.
  if (state.is_closing || free() > 2) return false;
  if (free() == 1) {
    const uint64_t posted = state.posted.load(std::memory_order_relaxed);
    lock.unlock();
    const bool has_news = state.brief.wait(
        kAwake, [&] { return state.posted.load(std::memory_order_relaxed) != posted; });
    lock.lock();
    if (has_news || state.posted.load(std::memory_order_relaxed) != posted) return true;
    if (state.is_closing) return false;
  }
  if (free() == 1) {
    state.changed.wait(lock);
    return true;
  }
  return state.changed.wait_for(lock, kRest) == std::cv_status::no_timeout || free() == 1 ||
         !state.jobs.empty() || !state.urgent.empty();
}

void CallbackQueue::run(const std::shared_ptr<State>& state, Handle self) {
  running_state = state.get();
  std::unique_lock lock(state->mutex);
  while (true) {
    const bool is_urgent = !state->urgent.empty();
    if (!is_urgent && state->jobs.empty()) {
      if (!rest(*state, lock)) break;
      continue;
    }
    if (!is_urgent && state->current != 0) {
      const Clock::time_point end = state->current_began + kPatience;
      if (Clock::now() < end) {
        state->changed.wait_until(lock, end);
        continue;
      }
    }
    auto& queue = is_urgent ? state->urgent : state->jobs;
    std::function<void()> job = std::move(queue.front());
    queue.pop_front();
    uint64_t number = 0;
    if (!is_urgent) {
      number = ++state->started;
      state->current = number;
      state->current_began = Clock::now();
    }
    ++state->busy;
    // Somebody must see when the current job has had its time.
    if (!state->jobs.empty() && state->busy == state->threads && state->threads < kMaxThreads) {
      add_thread(state);
    }
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    --state->busy;
    if (number != 0 && state->current == number) state->current = 0;
    state->changed.notify_all();
  }
  std::thread before;
  if (state->is_closing && !state->is_abandoned) {
    before = std::exchange(state->left, std::move(*self));
  } else {
    self->detach();
  }
  state->handles.erase(self);
  --state->threads;
  state->changed.notify_all();
  lock.unlock();
  if (before.joinable()) before.join();
}

}  // namespace hekla
