// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/device_queue.h"

#include <system_error>
#include <utility>

#include "backends/cpu/threads/thread_pool.h"
#include "runtime/base/exceptions.h"

namespace hekla::cpu {

bool DeviceQueue::try_run_here(DeviceJob& job) {
  {
    const std::lock_guard lock(mutex_);
    if (is_busy_) return false;
    is_busy_ = true;
  }
  run(job, /*is_parallel=*/false);
  return true;
}

void DeviceQueue::post(std::shared_ptr<DeviceJob> job, CompletionRef ready, bool on_own_thread) {
  insert({std::move(job), std::move(ready), on_own_thread}, /*is_first=*/false);
}

Status DeviceQueue::start_threads() {
  const std::lock_guard lock(mutex_);
  if (thread_ != nullptr) return ok_status();
  try {
    if (communication_lane_ == nullptr) {
      communication_lane_ = std::make_unique<SerialQueue>(SerialQueueOptions{.starts_now = true});
    }
    thread_ = std::make_unique<SerialQueue>(SerialQueueOptions{.starts_now = true});
  } catch (const std::system_error& error) {
    return resource_exhausted("no thread for a device of a launch over several: {}", error.what());
  }
  return ok_status();
}

void DeviceQueue::insert(Entry entry, bool is_first) {
  {
    const std::lock_guard lock(mutex_);
    if (is_first) {
      waiting_.push_front(std::move(entry));
    } else {
      waiting_.push_back(std::move(entry));
    }
    if (is_busy_) return;
    is_busy_ = true;
  }
  next();
}

// Of a busy queue: starts the first job that can run, or frees the device.
void DeviceQueue::next() {
  while (true) {
    Entry entry;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        is_busy_ = false;
        return;
      }
      entry = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const CompletionRef ready = std::exchange(entry.ready, nullptr);
    if (ready == nullptr || ready->is_done()) return start(std::move(entry));
    auto self = shared_from_this();
    ready->on_done([self, entry](const Status&) { self->insert(entry, /*is_first=*/true); });
  }
}

void DeviceQueue::start(Entry entry) {
  const auto work = [self = shared_from_this(), job = std::move(entry.job)] {
    self->run(*job, /*is_parallel=*/true);
  };
  const Status posted = status_of_work([&] {
    if (entry.on_own_thread) {
      thread_->post(work);
    } else {
      ThreadPool::process_pool().post(work);
    }
    return ok_status();
  });
  // Without memory to hand it over it runs here: the queue must come on.
  if (!posted.ok()) work();
}

void DeviceQueue::run(DeviceJob& job, bool is_parallel) {
  job.run(is_parallel);
  // Before anybody hears of the end: who launches then finds the device free.
  const bool is_free = free_if_idle();
  job.tell();
  if (!is_free) next();
}

bool DeviceQueue::free_if_idle() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) return false;
  is_busy_ = false;
  return true;
}

}  // namespace hekla::cpu
