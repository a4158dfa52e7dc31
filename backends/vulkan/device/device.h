// SPDX-License-Identifier: Apache-2.0
// Device: an opened Vulkan device with its functions, its queues and its state of health.
//
// Owns a VkInstance and a VkDevice; whatever is made from it holds a shared_ptr to it and goes
// first. Thread-safe: a VkQueue is reached through Queue, which has the mutex that Vulkan asks for.
// Every VkResult passes through check(), which turns it into a Status that names the call and the
// device. VK_ERROR_DEVICE_LOST is sticky: from then on health() is that error, everything that
// works on the device fails with it, and destruction stays legal.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "backends/vulkan/device/functions.h"
#include "backends/vulkan/device/plan.h"
#include "backends/vulkan/snapshot/loader.h"

namespace hekla::vulkan {

// A VkQueue and its mutex, held around vkQueueSubmit alone.
struct Queue {
  VkQueue handle = VK_NULL_HANDLE;
  uint32_t family = 0;
  std::mutex mutex;
};

class Device {
 public:
  // `wanted` as choose_device takes it. UNAVAILABLE: no loader or driver; NOT_FOUND,
  // FAILED_PRECONDITION: as choose_device and plan_device; also when validation is asked for and
  // its layer is not installed.
  static Result<std::shared_ptr<Device>> open(std::string_view wanted,
                                              const DeviceOptions& options);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const DeviceSnapshot& snapshot() const { return snapshot_; }
  const DevicePlan& plan() const { return plan_; }
  // After give_up() those that would wait for the device, or free what it may still use, do
  // neither.
  const DeviceFunctions& call() const {
    return has_given_up_.load(std::memory_order_acquire) ? after_ : functions_;
  }
  VkDevice handle() const { return device_; }
  Queue& compute_queue() { return compute_; }
  // The compute queue itself where the device has no other.
  Queue& transfer_queue() { return plan_.has_transfer_queue() ? transfer_ : compute_; }

  // Ok for VK_SUCCESS and other codes that are no errors. RESOURCE_EXHAUSTED: out of memory or
  // handles; UNAVAILABLE: the device is lost, which health() says from now on; INTERNAL else.
  Status check(VkResult result, const char* call);
  // Ok, or the loss of the device in the words of its first victim.
  Status health() const;
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  // Marks the device as lost, as check() does.
  void lose(std::string reason);

  // Loses a device that does not end its work and does not say so. What was made on it is never
  // freed: it may still be at work.
  void give_up(std::string reason);

  // Blocks until nothing runs any more, also after a loss: then drivers return soon.
  void wait_idle();

  // Bytes that the heap of tensors can still give, by VK_EXT_memory_budget; -1: not known.
  int64_t heap_bytes_left() const;

  // What the driver can do with buffers of `usage` whose memory has handles of that type.
  VkExternalMemoryFeatureFlags external_buffer_features(VkExternalMemoryHandleTypeFlagBits handle,
                                                        VkBufferUsageFlags usage) const;

  // What the name of a cache must hold so that its content fits: device, driver, versions, UUIDs.
  std::string identity() const;

  // For tests: replaces entry points. Before any thread works on the device.
  DeviceFunctions& mutable_functions() { return functions_; }

 private:
  explicit Device(QueryInstance instance) : instance_(std::move(instance)) {}
  Status create(VkPhysicalDevice physical);
  Status load_functions();
  void add_messenger();

  QueryInstance instance_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  DeviceSnapshot snapshot_;
  DevicePlan plan_;
  DeviceFunctions functions_;
  DeviceFunctions after_;  // give_up()
  std::atomic<bool> has_given_up_{false};
  Queue compute_;
  Queue transfer_;
  std::atomic<bool> is_lost_{false};
  mutable std::mutex loss_mutex_;
  std::string loss_;  // guarded by loss_mutex_
};

// Warnings and errors of the validation layer in this process so far; each is also in the log.
int64_t validation_message_count();

}  // namespace hekla::vulkan
