// SPDX-License-Identifier: Apache-2.0
// DeviceQueue: the order of one CPU device's launches.
//
// One job runs at a time, in the order of the calls. A job that waits for its inputs lets later
// ones pass, since nothing may ever make them but those. A job that may wait for peers on other
// devices never passes another such job, or two devices could run two of them in different orders
// and wait for ever: so it is posted when its inputs are there, on all devices in one order. Jobs
// of a launch over several devices run on a thread of the device's own: the pool has fewer threads
// than there may be devices, and each of them may be what ends the others. Others run on the pool,
// or on the caller's thread (try_run_here). Thread-safe; jobs keep the queue alive.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "runtime/base/async/completion.h"
#include "runtime/base/async/serial_queue.h"

namespace hekla::cpu {

class DeviceJob {
 public:
  virtual ~DeviceJob() = default;
  // All of the work. `is_parallel`: it may be split over the pool.
  virtual void run(bool is_parallel) = 0;
  // Says that it is done, after run(): what was waiting for it may begin at once.
  virtual void tell() = 0;
};

class DeviceQueue : public std::enable_shared_from_this<DeviceQueue> {
 public:
  // Runs the job before it returns, if nothing else runs or waits in the queue; else false.
  bool try_run_here(DeviceJob& job);
  // Starts the thread of jobs of several devices, and the device's communication lane; to be
  // called before the first of them. RESOURCE_EXHAUSTED: there is no thread.
  Status start_threads();
  // Where the collectives of the job that runs wait for peers; null before start_threads().
  SerialQueue* communication_lane() const { return communication_lane_.get(); }
  // `ready`: when the job may run, whatever its status; null: now. On the device's own thread only
  // after start_threads().
  void post(std::shared_ptr<DeviceJob> job, CompletionRef ready, bool on_own_thread);

 private:
  struct Entry {
    std::shared_ptr<DeviceJob> job;
    CompletionRef ready;
    bool on_own_thread = false;
  };
  void insert(Entry entry, bool is_first);
  void next();
  void start(Entry entry);
  void run(DeviceJob& job, bool is_parallel);
  bool free_if_idle();

  std::mutex mutex_;
  bool is_busy_ = false;       // guarded by mutex_; true while anything waits
  std::deque<Entry> waiting_;  // guarded by mutex_
  // Guarded by mutex_ until they are there, then constant; jobs of the thread use the lane.
  std::unique_ptr<SerialQueue> communication_lane_;
  std::unique_ptr<SerialQueue> thread_;
};

}  // namespace hekla::cpu
