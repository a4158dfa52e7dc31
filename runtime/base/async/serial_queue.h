// SPDX-License-Identifier: Apache-2.0
// SerialQueue: one thread that runs jobs in the order in which they were posted.
//
// Its owner makes and destroys it; all else may be called from any thread, its own jobs included,
// as long as the queue lives. Jobs run without a lock held, so they may block, take locks of the
// client's language (Python's GIL) and post; a job that waits for a later one never ends. Each job
// is destroyed on the thread, before the next one starts. Jobs must not throw.
//
// Jobs that are queued when the queue is destroyed still run, and those that they post meanwhile:
// the destructor waits for them, unless a job of its own is what destroys it; then it returns at
// once and the thread ends by itself after the last job.
//
// The child of a fork() has no such thread: a queue that the parent has started never runs a job
// there and must not be destroyed there.
#pragma once

#include <functional>
#include <memory>

namespace hekla {

struct SerialQueueOptions {
  bool starts_now = false;  // else with the first job
  // Jobs are the program's own: processes that they start must not inherit blocked signals.
  bool takes_signals = false;
  std::function<void()> on_start;  // called on the thread before all jobs; may be empty
};

class SerialQueue {
 public:
  // Throws std::system_error where a thread is to start and cannot, as post() does, which then has
  // not queued the job.
  explicit SerialQueue(SerialQueueOptions options = {});
  SerialQueue(const SerialQueue&) = delete;
  SerialQueue& operator=(const SerialQueue&) = delete;
  ~SerialQueue();

  void post(std::function<void()> job);
  // Blocks until the jobs posted so far have run. False, at once, where all had and on the queue's
  // own thread.
  bool drain();
  // Whether the caller is a job of this queue.
  bool is_own_thread() const;

 private:
  struct State;
  static void run(State& state);
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace hekla
