// SPDX-License-Identifier: Apache-2.0
// SerialQueue: one thread that runs jobs in the order in which they were posted.
//
// Its owner makes and destroys it; post() may be called from any thread, its own jobs included, as
// long as the queue lives. Jobs run without a lock held, so they may block, take locks of the
// client's language (Python's GIL) and post; a job that waits for a later one never ends. Each job
// is destroyed on the thread, before the next one starts. Jobs that are queued when the queue is
// destroyed still run, those that they post after that too: the destructor waits for them, unless
// a job of its own is what destroys it; then it returns at once and the thread ends by itself after
// the last job. Jobs must not throw.
#pragma once

#include <functional>
#include <memory>

namespace hekla {

class SerialQueue {
 public:
  SerialQueue();
  SerialQueue(const SerialQueue&) = delete;
  SerialQueue& operator=(const SerialQueue&) = delete;
  ~SerialQueue();
  void post(std::function<void()> job);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace hekla
