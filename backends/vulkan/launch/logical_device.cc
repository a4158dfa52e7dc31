// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/logical_device.h"

#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/vulkan/queue/internal_thread.h"
#include "runtime/base/async/fork_mark.h"
#include "runtime/base/async/thread.h"

namespace hekla::vulkan {

namespace {

// Runs what one of a device's own threads would have to wait for itself to do: the end of a device
// whose last user it was, and the wait for launches that it is to end.
//
// Once the process ends, the drivers and the loader may be gone before such a thread lets go, so
// jobs, and the devices that they hold, are then kept as they are. Never destroyed, as those
// threads may come at any time.
class Reaper {
 public:
  using Job = std::function<void()>;

  static Reaper& instance() {
    static Reaper* const reaper = [] {
      // Runs before the end of the libraries that devices were made with.
      std::atexit([] { instance().end(); });
      return new Reaper;
    }();
    return *reaper;
  }

  // On a thread of the job's own, which destroys it.
  void run_or_keep(Job job) {
    std::lock_guard lock(mutex_);
    if (is_ending_) {
      kept_.push_back(std::move(job));
    } else {
      threads_.push_back(start_thread([job = std::move(job)] { job(); }));
    }
  }

 private:
  void end() {
    // The threads are a parent process's: nothing would end the wait.
    if (made_in_.is_inherited()) return;
    std::vector<std::jthread> threads;
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
      threads.swap(threads_);
    }
    for (std::jthread& thread : threads) thread.join();
  }

  const ForkMark made_in_;
  std::mutex mutex_;
  bool is_ending_ = false;             // guarded by mutex_
  std::vector<std::jthread> threads_;  // guarded by mutex_; few, joined when the process ends
  std::vector<Job> kept_;  // guarded by mutex_; what they hold stays reachable for leak checkers
};

}  // namespace

void LogicalDevice::destroy(LogicalDevice* device) {
  if (is_internal_thread) {
    Reaper::instance().run_or_keep([device] { delete device; });
  } else {
    delete device;
  }
}

Result<std::shared_ptr<LogicalDevice>> LogicalDevice::create(std::shared_ptr<Device> device,
                                                             std::shared_ptr<Pipelines> pipelines,
                                                             int index,
                                                             const LogicalDeviceOptions& options) {
  Reaper::instance();  // its handler must be in place before the process ends
  std::shared_ptr<LogicalDevice> made(
      new LogicalDevice(std::move(device), std::move(pipelines), index), destroy);
  Device& d = *made->device_;
  made->memory_ = DeviceMemory::create(made->device_, options.memory_limit_bytes, index);
  HEKLA_ASSIGN_OR_RETURN(made->compute_, Lane::create(made->device_, d.compute_queue(),
                                                      fmt::format("compute {}", index)));
  HEKLA_ASSIGN_OR_RETURN(made->transfer_, Lane::create(made->device_, d.transfer_queue(),
                                                       fmt::format("transfer {}", index)));
  made->transfers_ = std::make_unique<Transfers>(made->memory_, *made->transfer_, *made->compute_,
                                                 options.transfer);
  made->communication_ = std::make_unique<SerialQueue>(internal_thread_options());
  made->worker_ = std::make_unique<SerialQueue>(internal_thread_options());
  made->callbacks_ = std::make_unique<CallbackQueue>();
  made->memory_->set_pressure_handler([raw = made.get()] { return raw->relieve_pressure(); });
  return made;
}

LogicalDevice::~LogicalDevice() {
  if (memory_) memory_->set_pressure_handler(nullptr);
  // In this order: a worker's job may submit, a lane's callback may post.
  callbacks_.reset();
  worker_.reset();
  communication_.reset();
  transfers_.reset();
  transfer_.reset();
  compute_.reset();
}

Result<std::vector<AllocationRef>> LogicalDevice::lane_arenas(const std::vector<int64_t>& bytes) {
  std::vector<AllocationRef> wanted(bytes.size());
  std::vector<AllocationRef> old;
  {
    std::lock_guard lock(mutex_);
    if (arenas_.size() < bytes.size()) arenas_.resize(bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == 0) continue;
      if (arenas_[i] && arenas_[i]->bytes() >= bytes[i]) {
        wanted[i] = arenas_[i];
      } else {
        old.push_back(std::move(arenas_[i]));  // launches in flight keep it
      }
    }
  }
  old.clear();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0 || wanted[i]) continue;
    HEKLA_ASSIGN_OR_RETURN(wanted[i], memory_->allocate(bytes[i]));
    std::lock_guard lock(mutex_);
    if (!arenas_[i] || arenas_[i]->bytes() < bytes[i]) arenas_[i] = wanted[i];
  }
  return wanted;
}

bool LogicalDevice::begin_launch() {
  std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  ++in_flight_;
  return true;
}

void LogicalDevice::end_launch() {
  std::lock_guard lock(mutex_);
  --in_flight_;
  idle_.notify_all();
}

CompletionRef LogicalDevice::replace_last_gang(CompletionRef submitted) {
  std::lock_guard lock(mutex_);
  return std::exchange(last_gang_, std::move(submitted));
}

bool LogicalDevice::is_closed() {
  std::lock_guard lock(mutex_);
  return is_closed_;
}

void LogicalDevice::close() {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  const auto is_idle = [this] { return in_flight_ == 0; };
  if (is_internal_thread && !is_idle()) {
    lock.unlock();
    Reaper::instance().run_or_keep([held = shared_from_this()] { held->close(); });
    return;
  }
  idle_.wait(lock, is_idle);
}

bool LogicalDevice::relieve_pressure() {
  bool has_waited = false;
  {
    // No launch needs them right now, or the one that does keeps them.
    std::lock_guard lock(mutex_);
    for (AllocationRef& arena : arenas_) {
      if (!arena || arena.use_count() != 1) continue;
      arena.reset();
      has_waited = true;
    }
  }
  // These threads serve each other: one that waited here for another could be waited for.
  if (is_internal_thread) return has_waited;
  // What waits for inputs may wait for the caller; the rest ends by itself.
  has_waited |= worker_->drain();
  has_waited |= transfers_->drain();
  has_waited |= compute_->drain();
  return has_waited;
}

}  // namespace hekla::vulkan
