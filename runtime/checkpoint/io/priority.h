// SPDX-License-Identifier: Apache-2.0
// Priority: whether somebody stands still until work of the background is done.
//
// Threads that work behind a training loop have a low priority, and what is lowered cannot be
// raised again without privileges. So there are two sets of them: the lowered ones work while
// nobody waits, the others while somebody does. A Hold raises the priority as long as it lives.
//
// Thread-safe. Watchers are called under a lock of this class: they may take locks under which
// nobody makes or ends a Hold or a Watch.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace hekla::checkpoint {

class Priority {
 public:
  class Hold {
   public:
    Hold() = default;  // of nothing
    explicit Hold(std::shared_ptr<Priority> priority) : priority_(std::move(priority)) {
      priority_->add(1);
    }
    Hold(Hold&& other) noexcept = default;
    Hold& operator=(Hold&& other) noexcept {
      std::swap(priority_, other.priority_);
      return *this;
    }
    ~Hold() {
      if (priority_ != nullptr) priority_->add(-1);
    }

   private:
    std::shared_ptr<Priority> priority_;
  };

  class Watch {
   public:
    Watch(std::shared_ptr<Priority> priority, std::function<void()> changed);
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch();  // its function is not running any more, and not called again

   private:
    const std::shared_ptr<Priority> priority_;
    std::list<std::function<void()>>::iterator place_;
  };

  bool is_raised() const { return holds_.load() > 0; }

 private:
  void add(int change);

  std::mutex mutex_;
  std::atomic<int> holds_{0};                  // written under mutex_
  std::list<std::function<void()>> watchers_;  // guarded by mutex_
};

// Makes the calling thread one of the background, for good: it runs where cores are free, and gets
// a small share of those that are not, so that its work always ends.
void lower_this_thread();

}  // namespace hekla::checkpoint
