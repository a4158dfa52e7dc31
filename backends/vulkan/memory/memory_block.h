// SPDX-License-Identifier: Apache-2.0
// MemoryBlock: one VkDeviceMemory under one VkBuffer, which DeviceMemory cuts. Private to this
// folder; DeviceMemory owns blocks and destroys them, under its lock where they are in a pool.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/vulkan/memory/device_memory.h"
#include "backends/vulkan/memory/offset_allocator.h"

namespace hekla::vulkan {

struct MemoryBlock {
  MemoryBlock(MemoryRole block_role, int64_t bytes, int64_t alignment)
      : role(block_role), ranges(bytes, alignment) {}
  MemoryRole role;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  uint32_t memory_type = 0;
  uint64_t memory_bytes = 0;  // of `memory`
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t address = 0;
  std::byte* host = nullptr;
  OffsetAllocator ranges;
};

// Of all buffers.
inline constexpr VkBufferUsageFlags kBufferUsage =
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
    VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
    VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;

}  // namespace hekla::vulkan
