// SPDX-License-Identifier: Apache-2.0
// DeviceMemory's blocks whose memory is the host's, or another device's too.
#include <unistd.h>

#include <bit>

#include "backends/vulkan/memory/memory_block.h"

namespace hekla::vulkan {
namespace {

VkExternalMemoryHandleTypeFlagBits handle_type(SharedHandle handle) {
  return handle == SharedHandle::kOpaqueFd ? VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT
                                           : VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT;
}

const char* extension_of(SharedHandle handle) {
  return handle == SharedHandle::kOpaqueFd ? "VK_KHR_external_memory_fd"
                                           : "VK_EXT_external_memory_dma_buf";
}

// The feature is enabled, and buffers can be used so.
Status check_shareable(const Device& device, SharedHandle handle,
                       VkExternalMemoryFeatureFlagBits use) {
  const Features& features = device.plan().features;
  const bool has =
      handle == SharedHandle::kOpaqueFd ? features.opaque_fd_memory : features.dma_buf_memory;
  if (has && device.call().GetMemoryFdKHR != nullptr &&
      (device.external_buffer_features(handle_type(handle), kBufferUsage) & use) != 0) {
    return ok_status();
  }
  return unimplemented("{} does not {} memory of buffers ({})", device.snapshot().name,
                       use == VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT ? "export" : "import",
                       extension_of(handle));
}

}  // namespace

Status DeviceMemory::back(MemoryBlock& block, const void* extension) const {
  VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, extension};
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo memory = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags};
  memory.allocationSize = block.memory_bytes;
  memory.memoryTypeIndex = block.memory_type;
  const Status status = device_->check(
      device_->call().AllocateMemory(device_->handle(), &memory, nullptr, &block.memory),
      "vkAllocateMemory");
  if (status.ok()) return bind(block);
  block.memory = VK_NULL_HANDLE;
  return status;
}

Result<AllocationRef> DeviceMemory::import_host(void* data, int64_t bytes,
                                                std::function<void()> released) {
  if (bytes < 0) return invalid_argument("{} bytes cannot be imported", bytes);
  HEKLA_RETURN_IF_ERROR(device_->health());
  if (bytes == 0) {  // nothing to import, but somebody waits for the end of it
    HEKLA_ASSIGN_OR_RETURN(AllocationRef nothing, allocate(0));
    nothing->released_ = std::move(released);
    return nothing;
  }
  const DevicePlan& plan = device_->plan();
  const DeviceFunctions& call = device_->call();
  const std::string& name = device_->snapshot().name;
  if (!plan.features.host_memory_import || call.GetMemoryHostPointerPropertiesEXT == nullptr) {
    return unimplemented("{} does not import host memory (VK_EXT_external_memory_host)", name);
  }
  const auto at = reinterpret_cast<uintptr_t>(data);
  if (at % kImportAlignment != 0) {
    return invalid_argument("host memory at {} cannot be used in place: it must be aligned to {}",
                            data, kImportAlignment);
  }
  // Whole pages around the bytes, which are there: an address space comes in pages.
  const uint64_t unit = device_->snapshot().limits.min_imported_host_alignment_bytes;
  const uint64_t first = at / unit * unit;
  const uint64_t size = (at + static_cast<uint64_t>(bytes) + unit - 1) / unit * unit - first;
  if (static_cast<int64_t>(size) > plan.max_buffer_bytes) {
    return resource_exhausted("{} bytes are more than the largest buffer of {}, {} bytes", size,
                              name, plan.max_buffer_bytes);
  }
  constexpr auto kHandle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  VkMemoryHostPointerPropertiesEXT importable = {
      VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
  HEKLA_RETURN_IF_ERROR(
      device_->check(call.GetMemoryHostPointerPropertiesEXT(
                         device_->handle(), kHandle, reinterpret_cast<void*>(first), &importable),
                     "vkGetMemoryHostPointerPropertiesEXT"));
  auto block = std::make_unique<MemoryBlock>(MemoryRole::kTensor, static_cast<int64_t>(size),
                                             plan.allocation_alignment);
  const auto fail = [&](Status status) {
    destroy_block(*block);
    return status;
  };
  VkExternalMemoryBufferCreateInfo external = {
      VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
  external.handleTypes = kHandle;
  HEKLA_RETURN_IF_ERROR(make_buffer(*block, static_cast<int64_t>(size), &external, false));
  VkMemoryRequirements requirements = {};
  call.GetBufferMemoryRequirements(device_->handle(), block->buffer, &requirements);
  uint32_t types = importable.memoryTypeBits & requirements.memoryTypeBits;
  const std::vector<MemoryType>& all = device_->snapshot().memory_types;
  for (uint32_t type = 0; type < all.size(); ++type) {
    if (!all[type].is_host_visible || !all[type].is_host_coherent) types &= ~(1U << type);
  }
  if (types == 0 || requirements.size > size || first % requirements.alignment != 0) {
    return fail(unimplemented("{} does not import this host memory for buffers", name));
  }
  VkImportMemoryHostPointerInfoEXT import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT};
  import.handleType = kHandle;
  import.pHostPointer = reinterpret_cast<void*>(first);
  block->memory_type = static_cast<uint32_t>(std::countr_zero(types));
  block->memory_bytes = size;
  if (const Status status = back(*block, &import); !status.ok()) return fail(status);
  block->host = reinterpret_cast<std::byte*>(first);
  return std::make_shared<Allocation>(shared_from_this(), std::move(block),
                                      static_cast<int64_t>(at - first), bytes, std::move(released));
}

Result<AllocationRef> DeviceMemory::allocate_shared(int64_t bytes, SharedHandle handle) {
  if (bytes <= 0) return invalid_argument("{} bytes cannot be shared", bytes);
  HEKLA_RETURN_IF_ERROR(device_->health());
  HEKLA_RETURN_IF_ERROR(
      check_shareable(*device_, handle, VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT));
  const DevicePlan& plan = device_->plan();
  const int64_t unit = plan.allocation_alignment;
  const int64_t size = (bytes + unit - 1) / unit * unit;
  auto block = std::make_unique<MemoryBlock>(MemoryRole::kTensor, size, unit);
  const auto fail = [&](Status status) {
    destroy_block(*block);
    return status;
  };
  VkExternalMemoryBufferCreateInfo external = {
      VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
  external.handleTypes = handle_type(handle);
  HEKLA_RETURN_IF_ERROR(make_buffer(*block, size, &external, true));
  VkMemoryRequirements requirements = {};
  device_->call().GetBufferMemoryRequirements(device_->handle(), block->buffer, &requirements);
  block->memory_bytes = requirements.size;
  // Some drivers share memory only where a buffer has it for itself, and none minds.
  VkMemoryDedicatedAllocateInfo alone = {VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
  alone.buffer = block->buffer;
  VkExportMemoryAllocateInfo exported = {VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, &alone};
  exported.handleTypes = handle_type(handle);
  Status status = unimplemented("no memory of {} can be shared", device_->snapshot().name);
  for (const uint32_t type : plan.device_types) {
    if ((requirements.memoryTypeBits & (1U << type)) == 0) continue;
    block->memory_type = type;
    status = back(*block, &exported);
    if (status.ok() || device_->is_lost()) break;
  }
  if (!status.ok()) return fail(status);
  return std::make_shared<Allocation>(shared_from_this(), std::move(block), 0, bytes, nullptr);
}

Result<AllocationRef> DeviceMemory::import_shared(const Allocation& exported, SharedHandle handle) {
  HEKLA_RETURN_IF_ERROR(device_->health());
  HEKLA_RETURN_IF_ERROR(
      check_shareable(*device_, handle, VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT));
  const MemoryBlock& other = *exported.block_;
  Device& owner = *exported.owner_->device_;
  auto block = std::make_unique<MemoryBlock>(MemoryRole::kTensor, other.ranges.capacity_bytes(),
                                             device_->plan().allocation_alignment);
  VkExternalMemoryBufferCreateInfo external = {
      VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
  external.handleTypes = handle_type(handle);
  HEKLA_RETURN_IF_ERROR(make_buffer(*block, block->ranges.capacity_bytes(), &external, true));
  int fd = -1;
  const auto fail = [&](Status status) {
    if (fd >= 0) close(fd);
    destroy_block(*block);
    return status;
  };
  VkMemoryGetFdInfoKHR get = {VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR};
  get.memory = other.memory;
  get.handleType = handle_type(handle);
  if (const Status status =
          owner.check(owner.call().GetMemoryFdKHR(owner.handle(), &get, &fd), "vkGetMemoryFdKHR");
      !status.ok()) {
    fd = -1;
    return fail(status);
  }
  VkMemoryRequirements requirements = {};
  device_->call().GetBufferMemoryRequirements(device_->handle(), block->buffer, &requirements);
  uint32_t types = requirements.memoryTypeBits;
  if (handle == SharedHandle::kOpaqueFd) {
    types &= 1U << other.memory_type;  // the same device: its types have the same numbers
  } else {
    VkMemoryFdPropertiesKHR properties = {VK_STRUCTURE_TYPE_MEMORY_FD_PROPERTIES_KHR};
    if (const Status status =
            device_->check(device_->call().GetMemoryFdPropertiesKHR(
                               device_->handle(), get.handleType, fd, &properties),
                           "vkGetMemoryFdPropertiesKHR");
        !status.ok()) {
      return fail(status);
    }
    types &= properties.memoryTypeBits;
  }
  if (types == 0 || requirements.size > other.memory_bytes) {
    return fail(unimplemented("{} has no memory type for what {} shares", device_->snapshot().name,
                              owner.snapshot().name));
  }
  block->memory_type = static_cast<uint32_t>(std::countr_zero(types));
  block->memory_bytes = other.memory_bytes;
  VkMemoryDedicatedAllocateInfo alone = {VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
  alone.buffer = block->buffer;
  VkImportMemoryFdInfoKHR import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, &alone};
  import.handleType = get.handleType;
  import.fd = fd;
  const Status status = back(*block, &import);
  // From a successful import on the file is the driver's.
  if (block->memory != VK_NULL_HANDLE) fd = -1;
  if (!status.ok()) return fail(status);
  return std::make_shared<Allocation>(shared_from_this(), std::move(block), 0, exported.bytes(),
                                      nullptr);
}

}  // namespace hekla::vulkan
