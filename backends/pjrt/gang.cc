// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/gang.h"

#include <utility>

namespace hekla::pjrt {

GangRef Gang::of_one_device(const GangRef& whole, std::shared_ptr<PostOrder> order,
                            std::shared_ptr<const GangNames> names) {
  const GangRef gang(new Gang(whole->options_, std::move(names), whole, std::move(order)));
  {
    const std::lock_guard lock(whole->mutex_);
    std::erase_if(whole->parts_, [](const auto& part) { return part.expired(); });
    whole->parts_.push_back(gang);
  }
  // After it is listed: an abort meanwhile is seen by one of the two.
  if (whole->is_aborted()) gang->end(whole->status());
  return gang;
}

void Gang::abort(Status status) {
  if (whole_ == nullptr) return end(status);
  whole_->end(status);
  end(whole_->status());
}

void Gang::end(const Status& status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  std::vector<std::weak_ptr<Gang>> parts;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    status_ = status;
    aborted_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    parts.swap(parts_);
  }
  for (const auto& callback : callbacks) callback(status);
  for (const auto& part : parts) {
    if (const GangRef alive = part.lock()) alive->end(status);
  }
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

void Gang::leave(int64_t device) {
  std::function<void(int64_t)> callback;
  {
    const std::lock_guard lock(mutex_);
    left_.push_back(device);
    callback = leave_callback_;
  }
  if (callback) callback(device);
}

void Gang::on_leave(std::function<void(int64_t)> callback) {
  std::vector<int64_t> left;
  {
    const std::lock_guard lock(mutex_);
    leave_callback_ = callback;
    left = left_;
  }
  for (const int64_t device : left) callback(device);
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
  if (order_ == nullptr && link_ == nullptr && parts.empty()) return post_alone();
  const CompletionRef ready = parts.empty() ? Completion::ready() : all_or_abort(std::move(parts));
  if (order_ != nullptr) return order_->add(ready, post_alone);
  if (link_ != nullptr) return link_->post_in_order(ready, post_alone);
  ready->on_done([post_alone](const Status&) { post_alone(); });
}

}  // namespace hekla::pjrt
