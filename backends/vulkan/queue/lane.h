// SPDX-License-Identifier: Apache-2.0
// Lane: a logical queue with a timeline; what was submitted, what has passed.
//
// Each submission signals the next epoch of the lane's timeline semaphore. An event is a
// TimelinePoint, a pair of lane and epoch: asking whether it has passed reads a counter.
// Submissions of one lane start in order; their command buffers begin with a barrier, so they also
// see each other's memory. Waits are for epochs that were submitted already: what waits for the
// host is held back by the caller, outside of the device's timeline.
//
// A thread per lane, started with its first watch, runs callbacks when epochs pass. (One thread for
// all lanes would need vkWaitSemaphores with WAIT_ANY, which Mesa's common code serves with a busy
// loop.) It looks for a lost device at least once a second; a loss runs all callbacks with its
// error. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backends/vulkan/device/device.h"

namespace hekla::vulkan {

class Lane;

struct TimelinePoint {
  const Lane* lane = nullptr;
  uint64_t epoch = 0;
};

class Lane {
 public:
  // `name` is for logs and errors. Errors as Device::check.
  static Result<std::unique_ptr<Lane>> create(std::shared_ptr<Device> device, Queue& queue,
                                              std::string name);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  // Waits for everything submitted and for its callbacks.
  ~Lane();

  // Submits the command buffers after `waits` and returns the epoch that says that they have ended.
  // After an error nothing was submitted and the lane is as it was.
  Result<uint64_t> submit(std::span<const VkCommandBuffer> commands,
                          std::span<const TimelinePoint> waits);

  // The last epoch that was submitted.
  uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }
  // The last epoch known to have passed. May lag behind; never calls the driver.
  uint64_t passed() const { return passed_.load(std::memory_order_acquire); }
  // Asks the driver where needed; does not wait. False after a loss.
  bool has_passed(uint64_t epoch);
  // Blocks until it has passed, or returns the loss. A lane that does not come on for
  // DevicePlan::launch_timeout_seconds while somebody waits gives the device up. For
  // DevicePlan::wait_poll_microseconds, about when recent waits ended, it polls; else it sleeps.
  Status wait(uint64_t epoch);

  // Runs `callback` on the lane's thread once `epoch` has passed, with ok or with the device's
  // loss. Callbacks run in the order of their epochs, must be short and may submit.
  void when_passed(uint64_t epoch, std::function<void(const Status&)> callback);
  // Blocks until the callbacks of all epochs submitted so far have run. False, at once, on the
  // lane's own thread and where nothing was pending.
  bool drain();

  VkSemaphore semaphore() const { return semaphore_; }
  const std::string& name() const { return name_; }
  Device& device() const { return *device_; }
  const std::shared_ptr<Device>& device_ref() const { return device_; }
  Queue& queue() const { return queue_; }
  // Submissions so far; what "one submit per launch" is counted with.
  int64_t submission_count() const { return static_cast<int64_t>(submitted()); }

 private:
  struct Watch {
    uint64_t epoch;
    std::function<void(const Status&)> callback;
  };

  Lane(std::shared_ptr<Device> device, Queue& queue, std::string name)
      : device_(std::move(device)), queue_(queue), name_(std::move(name)) {}
  void run();
  void note_passed(uint64_t epoch);
  // The part of a wait that comes before the long sleep.
  void poll(uint64_t epoch);

  const std::shared_ptr<Device> device_;
  Queue& queue_;
  const std::string name_;
  VkSemaphore semaphore_ = VK_NULL_HANDLE;
  std::mutex submit_mutex_;  // epochs rise in the order of submission
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> passed_{0};
  std::atomic<int64_t> usual_wait_ns_{0};  // of recent waits, smoothed

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Watch> watches_;         // guarded by mutex_; sorted by epoch
  bool is_running_callback_ = false;  // guarded by mutex_
  bool is_closing_ = false;           // guarded by mutex_
  std::jthread thread_;               // guarded by mutex_ until joined
};

}  // namespace hekla::vulkan
