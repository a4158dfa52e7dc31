// SPDX-License-Identifier: Apache-2.0
// Completion: a one-shot event that ends with a Status; the currency between backends and the C
// API.
//
// Shared by whoever makes it true and whoever waits. complete() is called once, from any thread; a
// second call is ignored and returns false. Callbacks run exactly once: at once when the completion
// is done, else on the thread that completes it, without a lock held. They must be short: callbacks
// of API users go through a SerialThread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::pjrt {

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
  void on_done(std::function<void(const Status&)> callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable done_condition_;
  bool is_done_ = false;                                       // guarded by mutex_
  Status status_;                                              // guarded by mutex_
  std::vector<std::function<void(const Status&)>> callbacks_;  // guarded by mutex_
};

// One thread that runs callbacks of API users in order. They may take locks of the client's
// language (Python's GIL) and call any API function. Callbacks that are queued when it is destroyed
// still run.
class SerialThread {
 public:
  SerialThread();
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;
  ~SerialThread();
  void post(std::function<void()> callback);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace hekla::pjrt
