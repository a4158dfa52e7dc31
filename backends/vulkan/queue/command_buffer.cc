// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/queue/command_buffer.h"

namespace hekla::vulkan {
namespace {

constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;

}  // namespace

CommandBuffer::CommandBuffer(std::shared_ptr<Device> device, uint32_t queue_family)
    : device_(std::move(device)),
      family_(queue_family),
      stages_(VK_PIPELINE_STAGE_TRANSFER_BIT),
      accesses_(VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT) {
  // A family that only copies knows no other stages.
  if (!device_->snapshot().queue_families[family_].has_compute) return;
  stages_ |= VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT;
  accesses_ |=
      VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_INDIRECT_COMMAND_READ_BIT;
}

Result<std::unique_ptr<CommandBuffer>> CommandBuffer::create(std::shared_ptr<Device> device,
                                                             uint32_t queue_family) {
  std::unique_ptr<CommandBuffer> made(new CommandBuffer(std::move(device), queue_family));
  Device& d = *made->device_;
  VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = queue_family;
  HEKLA_RETURN_IF_ERROR(d.check(
      d.call().CreateCommandPool(d.handle(), &pool, nullptr, &made->pool_), "vkCreateCommandPool"));
  VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  info.commandPool = made->pool_;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  HEKLA_RETURN_IF_ERROR(d.check(d.call().AllocateCommandBuffers(d.handle(), &info, &made->buffer_),
                                "vkAllocateCommandBuffers"));
  return made;
}

CommandBuffer::~CommandBuffer() {
  if (pool_ != VK_NULL_HANDLE) {
    device_->call().DestroyCommandPool(device_->handle(), pool_, nullptr);
  }
}

Status CommandBuffer::begin(Use use) {
  HEKLA_RETURN_IF_ERROR(
      device_->check(call().ResetCommandPool(device_->handle(), pool_, 0), "vkResetCommandPool"));
  VkCommandBufferBeginInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  if (use == Use::kOnce) info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  if (use == Use::kSeveral) info.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  HEKLA_RETURN_IF_ERROR(
      device_->check(call().BeginCommandBuffer(buffer_, &info), "vkBeginCommandBuffer"));
  barrier();
  return ok_status();
}

Status CommandBuffer::end() {
  barrier(stages_, accesses_ & kWrites, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  return device_->check(call().EndCommandBuffer(buffer_), "vkEndCommandBuffer");
}

void CommandBuffer::barrier() { barrier(stages_, accesses_ & kWrites, stages_, accesses_); }

void CommandBuffer::dispatch_barrier() {
  barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
          VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
}

void CommandBuffer::barrier(VkPipelineStageFlags from, VkAccessFlags writes,
                            VkPipelineStageFlags to, VkAccessFlags accesses) {
  VkMemoryBarrier memory = {VK_STRUCTURE_TYPE_MEMORY_BARRIER};
  memory.srcAccessMask = writes;
  memory.dstAccessMask = accesses;
  call().CmdPipelineBarrier(buffer_, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

}  // namespace hekla::vulkan
