// SPDX-License-Identifier: Apache-2.0
// LaunchEnd: tells the callers of a gang's launch that the gang was aborted, at once.
//
// Nobody can call back what the device was given, so the launch itself ends later: it keeps its
// memory, its slot and its place in the lane's order until the device has let go of them, and what
// it then says of its end comes too late and is ignored. An abort that comes during a step of the
// host that calls functions of the client's is told when the step has returned, and none begins
// after it: a client that has heard of the end may take away what its functions need. Shared by the
// launch and, weakly, the gang. Thread-safe; callbacks run without a lock held.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "backends/vulkan/queue/internal_thread.h"
#include "runtime/base/async/completion.h"

namespace hekla::vulkan {

class LaunchEnd {
 public:
  // Those of the launch's outputs and of the launch.
  LaunchEnd(CompletionRef submitted, CompletionRef done)
      : submitted_(std::move(submitted)), done_(std::move(done)) {}

  // Not with ok; the first one counts.
  void abort(const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_.has_value()) return;
      aborted_ = status;
      if (is_in_client_) return;
    }
    tell(status);
  }

  // Before a step that calls the client. The abort's error: it must not begin, and leave_client()
  // is not called.
  Status enter_client() {
    const std::lock_guard lock(mutex_);
    if (aborted_.has_value()) return *aborted_;
    is_in_client_ = true;
    return ok_status();
  }
  void leave_client() {
    {
      const std::lock_guard lock(mutex_);
      is_in_client_ = false;
      if (!aborted_.has_value()) return;
    }
    tell(*aborted_);  // written once
  }

 private:
  // What hears of it may be the last that holds the client, whose end waits for launches.
  void tell(const Status& status) {
    const InternalScope scope;
    submitted_->complete(status);
    if (done_ != nullptr) done_->complete(status);
  }

  const CompletionRef submitted_;
  const CompletionRef done_;  // may be null
  std::mutex mutex_;
  std::optional<Status> aborted_;  // guarded by mutex_
  bool is_in_client_ = false;      // guarded by mutex_
};

}  // namespace hekla::vulkan
