// SPDX-License-Identifier: Apache-2.0
#include "backends/ffi/task_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "runtime/base/async/thread.h"
#include "runtime/base/cpu_info.h"

namespace hekla::ffi {

struct TaskPool::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;  // guarded by mutex, as below
  int64_t threads = 0;
  int64_t idle = 0;

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [&] { return !tasks.empty(); });
      --idle;
      const std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
};

TaskPool::TaskPool()
    : thread_count_(std::max(1, read_cpu_info().usable_cores)), state_(new State) {}

TaskPool& TaskPool::of_process() {
  static TaskPool& pool = *new TaskPool;
  return pool;
}

Status TaskPool::post(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->idle <= static_cast<int64_t>(state_->tasks.size()) &&
      state_->threads < thread_count_) {
    try {
      start_thread([state = state_] { state->work(); }).detach();
      ++state_->threads;
    } catch (const std::system_error& error) {
      if (state_->threads == 0) {
        return resource_exhausted("no thread for tasks of custom calls: {}", error.what());
      }
    }
  }
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_one();
  return ok_status();
}

}  // namespace hekla::ffi
