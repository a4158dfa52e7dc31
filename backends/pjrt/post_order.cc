// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/post_order.h"

#include <utility>

namespace hekla::pjrt {

void PostOrder::add(const CompletionRef& ready, std::function<void()> post) {
  {
    const std::lock_guard lock(mutex_);
    turns_.push_back({ready, std::move(post)});
  }
  ready->on_done([weak = weak_from_this()](const Status&) {
    if (const auto self = weak.lock()) self->serve();
  });
}

// One thread at a time calls those at the front that are ready; another one's, ready meanwhile, it
// sees before it ends.
void PostOrder::serve() {
  std::unique_lock lock(mutex_);
  if (is_serving_) return;
  is_serving_ = true;
  while (!turns_.empty() && turns_.front().ready->is_done()) {
    const std::function<void()> post = std::move(turns_.front().post);
    turns_.pop_front();
    lock.unlock();
    post();
    lock.lock();
  }
  is_serving_ = false;
}

}  // namespace hekla::pjrt
