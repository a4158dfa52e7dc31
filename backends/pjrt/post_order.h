// SPDX-License-Identifier: Apache-2.0
// PostOrder: turns, each taken once it is ready and all before it have been.
//
// Shared by those who add turns and by what they wait for. Thread-safe; a turn runs on the thread
// that makes it or one before it ready, without a lock held, one at a time, and may add others.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "runtime/base/async/completion.h"

namespace hekla::pjrt {

class PostOrder : public std::enable_shared_from_this<PostOrder> {
 public:
  // Calls `post` when `ready` is done, whatever its status, and all that was added before has been
  // called; at once where that is now.
  void add(const CompletionRef& ready, std::function<void()> post);

 private:
  struct Turn {
    CompletionRef ready;
    std::function<void()> post;
  };
  void serve();

  std::mutex mutex_;
  std::deque<Turn> turns_;   // guarded by mutex_
  bool is_serving_ = false;  // guarded by mutex_
};

}  // namespace hekla::pjrt
