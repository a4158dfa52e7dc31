// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/queue/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "backends/vulkan/queue/internal_thread.h"
#include "runtime/base/async/thread.h"

namespace hekla::vulkan {
namespace {

// Some drivers do not wake waiters when the device is lost.
constexpr uint64_t kPollNanoseconds = 1'000'000'000;
// Waits that took longer say nothing of when the next one ends.
constexpr int64_t kLongWaitNanoseconds = 100'000'000;

}  // namespace

Result<std::unique_ptr<Lane>> Lane::create(std::shared_ptr<Device> device, Queue& queue,
                                           std::string name) {
  std::unique_ptr<Lane> lane(new Lane(std::move(device), queue, std::move(name)));
  VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  info.pNext = &type;
  Device& d = *lane->device_;
  HEKLA_RETURN_IF_ERROR(
      d.check(d.call().CreateSemaphore(d.handle(), &info, nullptr, &lane->semaphore_),
              "vkCreateSemaphore"));
  return lane;
}

Lane::~Lane() {
  {
    std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Work without watches may still run; after a loss nothing does.
  (void)wait(submitted());
  if (semaphore_ != VK_NULL_HANDLE) {
    device_->call().DestroySemaphore(device_->handle(), semaphore_, nullptr);
  }
}

Result<uint64_t> Lane::submit(std::span<const VkCommandBuffer> commands,
                              std::span<const TimelinePoint> waits) {
  HEKLA_RETURN_IF_ERROR(device_->health());
  // Of several points of one lane the last one says all.
  std::map<const Lane*, uint64_t> latest;
  for (const TimelinePoint& point : waits) {
    if (point.lane == nullptr || point.epoch == 0) continue;
    uint64_t& epoch = latest[point.lane];
    epoch = std::max(epoch, point.epoch);
  }
  std::vector<VkSemaphore> semaphores;
  std::vector<uint64_t> values;
  for (const auto& [lane, epoch] : latest) {
    if (epoch > lane->submitted()) {
      return internal_error("lane {} waits for epoch {} of lane {}, which is not submitted", name_,
                            epoch, lane->name());
    }
    semaphores.push_back(lane->semaphore());
    values.push_back(epoch);
  }
  const std::vector<VkPipelineStageFlags> stages(semaphores.size(),
                                                 VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);

  std::lock_guard lock(submit_mutex_);
  const uint64_t epoch = submitted_.load(std::memory_order_relaxed) + 1;
  VkTimelineSemaphoreSubmitInfo timeline = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  timeline.waitSemaphoreValueCount = static_cast<uint32_t>(values.size());
  timeline.pWaitSemaphoreValues = values.data();
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &epoch;
  VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
  info.pNext = &timeline;
  info.waitSemaphoreCount = static_cast<uint32_t>(semaphores.size());
  info.pWaitSemaphores = semaphores.data();
  info.pWaitDstStageMask = stages.data();
  info.commandBufferCount = static_cast<uint32_t>(commands.size());
  info.pCommandBuffers = commands.data();
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &semaphore_;
  VkResult result = VK_SUCCESS;
  {
    std::lock_guard queue_lock(queue_.mutex);
    result = device_->call().QueueSubmit(queue_.handle, 1, &info, VK_NULL_HANDLE);
  }
  HEKLA_RETURN_IF_ERROR(device_->check(result, "vkQueueSubmit"));
  submitted_.store(epoch, std::memory_order_release);
  return epoch;
}

void Lane::note_passed(uint64_t epoch) {
  uint64_t known = passed_.load(std::memory_order_relaxed);
  while (known < epoch && !passed_.compare_exchange_weak(known, epoch, std::memory_order_release)) {
  }
}

bool Lane::has_passed(uint64_t epoch) {
  if (passed() >= epoch) return true;
  if (device_->is_lost()) return false;
  uint64_t value = 0;
  const VkResult result =
      device_->call().GetSemaphoreCounterValue(device_->handle(), semaphore_, &value);
  if (!device_->check(result, "vkGetSemaphoreCounterValue").ok()) return false;
  note_passed(value);
  return passed() >= epoch;
}

void Lane::poll(uint64_t epoch) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::nanoseconds budget =
      std::chrono::microseconds(device_->plan().wait_poll_microseconds);
  if (budget.count() == 0) return;
  // Errors of the sleep are those of the next one, in wait().
  const int64_t usual = usual_wait_ns_.load(std::memory_order_relaxed);
  if (usual > budget.count()) {
    VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1;
    info.pSemaphores = &semaphore_;
    info.pValues = &epoch;
    const auto most = static_cast<uint64_t>(usual - budget.count());
    if (device_->call().WaitSemaphores(device_->handle(), &info, most) == VK_SUCCESS) {
      note_passed(epoch);
    }
  }
  const Clock::time_point end = Clock::now() + budget;
  while (!has_passed(epoch) && !device_->is_lost() && Clock::now() < end) {
    std::this_thread::yield();
  }
}

Status Lane::wait(uint64_t epoch) {
  using Clock = std::chrono::steady_clock;
  if (passed() >= epoch) return ok_status();
  const Clock::time_point begin = Clock::now();
  poll(epoch);
  const std::chrono::seconds timeout(device_->plan().launch_timeout_seconds);
  Clock::time_point since = Clock::now();  // the lane has not come on
  uint64_t before = passed();
  while (passed() < epoch) {
    if (device_->is_lost()) {
      // Whoever waited frees what the work used.
      device_->wait_idle();
      return device_->health();
    }
    VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1;
    info.pSemaphores = &semaphore_;
    info.pValues = &epoch;
    const VkResult result =
        device_->call().WaitSemaphores(device_->handle(), &info, kPollNanoseconds);
    if (result == VK_SUCCESS) {
      note_passed(epoch);
    } else if (result == VK_TIMEOUT && timeout.count() > 0) {
      (void)has_passed(epoch);
      if (passed() != before) {
        before = passed();
        since = Clock::now();
      } else if (Clock::now() - since >= timeout) {
        device_->give_up(
            fmt::format("submission {} of its queue \"{}\" has not ended within {} seconds "
                        "(vulkan_launch_timeout)",
                        passed() + 1, name_, timeout.count()));
      }
    } else if (Status status = device_->check(result, "vkWaitSemaphores"); !status.ok()) {
      if (device_->is_lost()) continue;
      // Out of host memory for the wait itself: the work goes on, so look again.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)has_passed(epoch);
    }
  }
  const int64_t took =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  if (took < kLongWaitNanoseconds) {
    const int64_t usual = usual_wait_ns_.load(std::memory_order_relaxed);
    usual_wait_ns_.store(usual + (took - usual) / 4, std::memory_order_relaxed);
  }
  return ok_status();
}

void Lane::when_passed(uint64_t epoch, std::function<void(const Status&)> callback) {
  std::lock_guard lock(mutex_);
  const auto place =
      std::upper_bound(watches_.begin(), watches_.end(), epoch,
                       [](uint64_t value, const Watch& watch) { return value < watch.epoch; });
  watches_.insert(place, {epoch, std::move(callback)});
  if (!thread_.joinable()) thread_ = start_thread([this] { run(); });
  changed_.notify_all();
}

bool Lane::drain() {
  const uint64_t last = submitted();
  std::unique_lock lock(mutex_);
  if (thread_.joinable() && thread_.get_id() == std::this_thread::get_id()) return false;
  const auto is_done = [&] {
    return !is_running_callback_ && (watches_.empty() || watches_.front().epoch > last);
  };
  if (is_done()) return false;
  changed_.wait(lock, is_done);
  return true;
}

void Lane::run() {
  is_internal_thread = true;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closing_ || !watches_.empty(); });
    if (watches_.empty()) return;
    const uint64_t epoch = watches_.front().epoch;
    lock.unlock();
    const Status status = wait(epoch);
    lock.lock();
    // A watch of an earlier epoch may have come meanwhile; it has passed as well.
    while (!watches_.empty() && (watches_.front().epoch <= epoch || !status.ok())) {
      std::function<void(const Status&)> callback = std::move(watches_.front().callback);
      watches_.pop_front();
      is_running_callback_ = true;
      lock.unlock();
      callback(status);
      callback = nullptr;
      lock.lock();
      is_running_callback_ = false;
    }
    changed_.notify_all();
  }
}

}  // namespace hekla::vulkan
