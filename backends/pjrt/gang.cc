// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/gang.h"

#include <utility>

namespace hekla::pjrt {

void Gang::abort(Status status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    status_ = status;
    aborted_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback(status);
}

Status Gang::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Gang::on_abort(std::function<void(const Status&)> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.load(std::memory_order_relaxed)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(status());
}

CompletionRef Gang::all_or_abort(std::vector<CompletionRef> parts) {
  CompletionRef either = Completion::make();
  Completion::all(std::move(parts))->on_done([either](const Status& status) {
    either->complete(status);
  });
  if (!either->is_done()) {
    on_abort([either](const Status& status) { either->complete(status); });
  }
  return either;
}

void Gang::post_when(std::vector<CompletionRef> parts, std::function<void()> post) {
  const auto post_alone = [post = std::move(post)] {
    // What ends at once in a post may be what another gang waits for.
    static std::recursive_mutex order;
    const std::lock_guard lock(order);
    post();
  };
  if (link_ == nullptr && parts.empty()) return post_alone();
  const CompletionRef ready = parts.empty() ? Completion::ready() : all_or_abort(std::move(parts));
  if (link_ != nullptr) return link_->post_in_order(ready, post_alone);
  ready->on_done([post_alone](const Status&) { post_alone(); });
}

}  // namespace hekla::pjrt
