// SPDX-License-Identifier: Apache-2.0
// CommandBuffer: one primary command buffer with a pool of its own.
//
// Owned by whoever records; recording and submitting are the owner's one thread at a time. It must
// outlive the work that was submitted with it. Begun buffers open with a barrier against everything
// earlier on the queue and end with one that lets the host read what was written.
#pragma once

#include <memory>

#include "backends/vulkan/device/device.h"

namespace hekla::vulkan {

class CommandBuffer {
 public:
  static Result<std::unique_ptr<CommandBuffer>> create(std::shared_ptr<Device> device,
                                                       uint32_t queue_family);
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;
  ~CommandBuffer();

  enum class Use : uint8_t {
    kOnce,      // submitted one time
    kRepeated,  // again and again, when the time before has passed
    kSeveral,   // also several times in one submission
  };
  // Forgets what was recorded, and opens.
  Status begin(Use use);
  Status end();
  // All writes so far become visible to all later commands.
  void barrier();
  // The writes of dispatches so far become visible to dispatches, not to their indirect grids.
  void dispatch_barrier();
  VkCommandBuffer handle() const { return buffer_; }
  const DeviceFunctions& call() const { return device_->call(); }

 private:
  CommandBuffer(std::shared_ptr<Device> device, uint32_t queue_family);
  void barrier(VkPipelineStageFlags from, VkAccessFlags writes, VkPipelineStageFlags to,
               VkAccessFlags accesses);

  const std::shared_ptr<Device> device_;
  const uint32_t family_;
  VkPipelineStageFlags stages_;  // that work on this family
  VkAccessFlags accesses_;       // of these stages
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer buffer_ = VK_NULL_HANDLE;
};

}  // namespace hekla::vulkan
