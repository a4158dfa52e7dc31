// SPDX-License-Identifier: Apache-2.0
// LogicalDevice: what one PJRT device is made of; memory, lanes, transfers, host worker, counters.
//
// Several logical devices may be cut from one Device; they share its queues and its pipelines. It
// outlives everything launched on it: close() ends what runs. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/vulkan/launch/clock_offset.h"
#include "backends/vulkan/memory/device_memory.h"
#include "backends/vulkan/pipeline/pipelines.h"
#include "backends/vulkan/queue/lane.h"
#include "backends/vulkan/transfer/transfers.h"
#include "runtime/base/async/callback_queue.h"
#include "runtime/base/async/completion.h"
#include "runtime/base/async/serial_queue.h"

namespace hekla::vulkan {

struct LaunchCounters {
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> submissions{0};  // of launches; transfers not counted
  std::atomic<int64_t> dispatches{0};
  std::atomic<int64_t> barriers{0};
  std::atomic<int64_t> host_steps{0};
  std::atomic<int64_t> recordings{0};  // of a slot; a launch that finds one records nothing
  std::atomic<int64_t> held_back{0};   // launches that waited for inputs or for a slot
};

struct LogicalDeviceOptions {
  int64_t memory_limit_bytes = 0;  // 0: the device plan's
  TransferOptions transfer;
};

class LogicalDevice : public std::enable_shared_from_this<LogicalDevice> {
 public:
  static Result<std::shared_ptr<LogicalDevice>> create(std::shared_ptr<Device> device,
                                                       std::shared_ptr<Pipelines> pipelines,
                                                       int index,
                                                       const LogicalDeviceOptions& options);
  ~LogicalDevice();

  int index() const { return index_; }
  Device& device() { return *device_; }
  const std::shared_ptr<Device>& device_ref() const { return device_; }
  DeviceMemory& memory() { return *memory_; }
  Pipelines& pipelines() { return *pipelines_; }
  Lane& compute() { return *compute_; }
  // Where uploads and downloads run.
  Lane& transfer() { return *transfer_; }
  Transfers& transfers() { return *transfers_; }
  // Runs host steps, one after the other in the order in which they became ready.
  SerialQueue& worker() { return *worker_; }
  // Runs host steps of launches that call the client, which would hold up the others.
  CallbackQueue& callbacks() { return *callbacks_; }
  // Where collectives of the gang that runs wait for peers.
  SerialQueue& communication() { return *communication_; }
  LaunchCounters& counters() { return counters_; }
  // Of the compute lane's queue.
  ClockOffset& clock() { return clock_; }

  // Temporary memory, of at least so many bytes each, null for none; shared by all launches of the
  // compute lane: it runs them one after the other, and each recording begins with a barrier.
  Result<std::vector<AllocationRef>> lane_arenas(const std::vector<int64_t>& bytes);

  // A launch that is on the lane or on the worker. No new ones begin after close().
  bool begin_launch();
  void end_launch();
  bool is_closed();
  // The launch of a gang that was the last one so far, as it was given here; null: none. From now
  // on it is `submitted`.
  CompletionRef replace_last_gang(CompletionRef submitted);
  // Waits for the launches that have begun; on a thread that the device works with, where the
  // launch whose callbacks are the last to hold a client would never end, another thread waits and
  // keeps the device meanwhile. Others end with CANCELLED when their inputs come.
  void close();

 private:
  LogicalDevice(std::shared_ptr<Device> device, std::shared_ptr<Pipelines> pipelines, int index)
      : device_(std::move(device)), pipelines_(std::move(pipelines)), index_(index) {}
  // Waits for work in flight that ends by itself; whether there was any.
  bool relieve_pressure();
  // On a thread of its own where the caller is one that the device would wait for; not at all where
  // the process ends already.
  static void destroy(LogicalDevice* device);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Pipelines> pipelines_;
  const int index_;
  LaunchCounters counters_;
  ClockOffset clock_;
  std::shared_ptr<DeviceMemory> memory_;
  std::unique_ptr<Lane> compute_;
  std::unique_ptr<Lane> transfer_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<SerialQueue> communication_;
  std::unique_ptr<SerialQueue> worker_;
  std::unique_ptr<CallbackQueue> callbacks_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<AllocationRef> arenas_;  // guarded by mutex_; null: none
  int64_t in_flight_ = 0;              // guarded by mutex_
  bool is_closed_ = false;             // guarded by mutex_
  CompletionRef last_gang_;            // guarded by mutex_
};

}  // namespace hekla::vulkan
