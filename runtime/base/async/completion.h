// SPDX-License-Identifier: Apache-2.0
// Completion: a one-shot event that ends with a Status; the currency of all that is asynchronous.
//
// Shared by whoever makes it true and whoever waits. complete() is called once, from any thread; a
// second call is ignored and returns false. Callbacks run exactly once: at once when the completion
// is done, else on the thread that completes it, without a lock held. They must be short: callbacks
// of API users go through a SerialQueue.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"

namespace hekla {

class Completion;
using CompletionRef = std::shared_ptr<Completion>;

class Completion {
 public:
  static CompletionRef make() { return std::make_shared<Completion>(); }
  // Done from the start.
  static CompletionRef ready(Status status = ok_status());
  // Done when all are: with the first error in the order of `parts`, else ok.
  static CompletionRef all(std::vector<CompletionRef> parts);

  bool complete(Status status);
  bool is_done() const;
  // Ok while it is not done.
  Status status() const;
  // Blocks until it is done.
  Status await() const;
  // Blocks until it is done, or the deadline: whether it is.
  bool await_until(Deadline deadline) const;
  void on_done(std::function<void(const Status&)> callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable done_condition_;
  bool is_done_ = false;                                       // guarded by mutex_
  Status status_;                                              // guarded by mutex_
  std::vector<std::function<void(const Status&)>> callbacks_;  // guarded by mutex_
};

}  // namespace hekla
