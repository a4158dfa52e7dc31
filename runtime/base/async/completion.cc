// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/completion.h"

#include <atomic>

namespace hekla {

CompletionRef Completion::ready(Status status) {
  CompletionRef completion = make();
  completion->complete(std::move(status));
  return completion;
}

CompletionRef Completion::all(std::vector<CompletionRef> parts) {
  if (parts.empty()) return ready();
  if (parts.size() == 1) return parts[0];
  CompletionRef whole = make();
  auto left = std::make_shared<std::atomic<size_t>>(parts.size());
  auto shared_parts = std::make_shared<std::vector<CompletionRef>>(std::move(parts));
  for (const CompletionRef& part : *shared_parts) {
    part->on_done([whole, left, shared_parts](const Status&) {
      if (left->fetch_sub(1) != 1) return;
      Status first;
      for (const CompletionRef& p : *shared_parts) {
        if (first.ok()) first = p->status();
      }
      whole->complete(std::move(first));
    });
  }
  return whole;
}

bool Completion::complete(Status status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (is_done_) return false;
    is_done_ = true;
    status_ = status;
    callbacks.swap(callbacks_);
    // Under the lock: a waiter may destroy this object as soon as it can see the result.
    done_condition_.notify_all();
  }
  for (auto& callback : callbacks) callback(status);
  return true;
}

bool Completion::is_done() const {
  std::lock_guard lock(mutex_);
  return is_done_;
}

Status Completion::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

Status Completion::await() const {
  std::unique_lock lock(mutex_);
  done_condition_.wait(lock, [this] { return is_done_; });
  return status_;
}

bool Completion::await_until(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return is_done_; };
  // The end of the clock is no time that every system can wait for.
  if (deadline.is_never()) done_condition_.wait(lock, is_done);
  return done_condition_.wait_until(lock, deadline.time(), is_done);
}

void Completion::on_done(std::function<void(const Status&)> callback) {
  Status status;
  {
    std::lock_guard lock(mutex_);
    if (!is_done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    status = status_;
  }
  callback(status);
}

}  // namespace hekla
