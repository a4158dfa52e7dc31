// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/memory/device_memory.h"

#include <algorithm>

#include "backends/vulkan/memory/memory_block.h"

namespace hekla::vulkan {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMaxBlockBytes = 512 * kMiB;
// Empty blocks that are kept in each pool: a quarter of the limit, at least this.
constexpr int64_t kMinKeptBytes = 64 * kMiB;

int64_t first_block_bytes(MemoryRole role) {
  switch (role) {
    case MemoryRole::kTensor:
      return 64 * kMiB;
    case MemoryRole::kUpload:
    case MemoryRole::kDownload:
    case MemoryRole::kHostTensor:
      return 16 * kMiB;
    case MemoryRole::kTable:
      return kMiB;
  }
  return kMiB;
}

const char* role_name(MemoryRole role) {
  switch (role) {
    case MemoryRole::kTensor:
      return "a tensor";
    case MemoryRole::kUpload:
      return "upload staging";
    case MemoryRole::kDownload:
      return "download staging";
    case MemoryRole::kTable:
      return "argument tables";
    case MemoryRole::kHostTensor:
      return "an array in host memory";
  }
  return "?";
}

const std::vector<uint32_t>& types_of(const DevicePlan& plan, MemoryRole role) {
  switch (role) {
    case MemoryRole::kUpload:
      return plan.upload_types;
    case MemoryRole::kDownload:
      return plan.download_types;
    case MemoryRole::kHostTensor:
      // Device memory is as good where it is the host's own.
      return plan.host_access == HostAccess::kFull ? plan.device_types : plan.download_types;
    case MemoryRole::kTable:
      return plan.table_types;
    case MemoryRole::kTensor:
      break;
  }
  return plan.device_types;
}

}  // namespace

Allocation::Allocation(std::shared_ptr<DeviceMemory> owner, MemoryBlock* block, int64_t offset,
                       int64_t bytes)
    : owner_(std::move(owner)), block_(block), offset_(offset), bytes_(bytes) {}

Allocation::Allocation(std::shared_ptr<DeviceMemory> owner, std::unique_ptr<MemoryBlock> block,
                       int64_t offset, int64_t bytes, std::function<void()> released)
    : owner_(std::move(owner)),
      block_(block.get()),
      imported_(std::move(block)),
      released_(std::move(released)),
      offset_(offset),
      bytes_(bytes) {}

Allocation::~Allocation() {
  owner_->release(*this);
  if (released_) released_();
}

MemoryRole Allocation::role() const { return block_->role; }
VkBuffer Allocation::buffer() const { return block_->buffer; }
uint64_t Allocation::address() const { return block_->address + static_cast<uint64_t>(offset_); }
std::byte* Allocation::host() const {
  return block_->host == nullptr ? nullptr : block_->host + offset_;
}

std::shared_ptr<DeviceMemory> DeviceMemory::create(std::shared_ptr<Device> device,
                                                   int64_t limit_bytes, int index) {
  return std::shared_ptr<DeviceMemory>(new DeviceMemory(std::move(device), limit_bytes, index));
}

DeviceMemory::DeviceMemory(std::shared_ptr<Device> device, int64_t limit_bytes, int index)
    : device_(std::move(device)), index_(index) {
  statistics_.bytes_limit = limit_bytes > 0 ? limit_bytes : device_->plan().memory_limit_bytes;
  kept_bytes_ = std::max(statistics_.bytes_limit / 4, kMinKeptBytes);
  for (int i = 0; i < kMemoryRoleCount; ++i) {
    pools_[i].next_block_bytes = first_block_bytes(static_cast<MemoryRole>(i));
  }
}

DeviceMemory::~DeviceMemory() {
  for (Pool& pool : pools_) {
    for (const std::unique_ptr<MemoryBlock>& block : pool.blocks) destroy_block(*block);
  }
}

Result<AllocationRef> DeviceMemory::allocate(int64_t bytes, MemoryRole role) {
  if (bytes < 0) return invalid_argument("{} bytes cannot be allocated", bytes);
  HEKLA_RETURN_IF_ERROR(device_->health());
  Result<AllocationRef> result = try_allocate(bytes, role, false);
  const auto is_short = [&] {
    return !result.ok() && result.status().code() == StatusCode::kResourceExhausted;
  };
  if (!is_short()) return result;
  free_empty_blocks(0);
  result = try_allocate(bytes, role, false);
  if (!is_short()) return result;
  std::function<bool()> pressure;
  {
    std::lock_guard lock(mutex_);
    pressure = pressure_;
  }
  // Launches that end may hold nothing that others behind them do not need: forward passes of
  // training steps, for one. Others may begin meanwhile, so not for ever.
  constexpr int kMostWaits = 256;
  for (int i = 0; i < kMostWaits && pressure && pressure(); ++i) {
    free_empty_blocks(0);
    result = try_allocate(bytes, role, false);
    if (!is_short()) return result;
  }
  result = try_allocate(bytes, role, true);
  if (!is_short()) return result;
  return out_of_memory(bytes, role, result.status());
}

Result<AllocationRef> DeviceMemory::try_allocate(int64_t bytes, MemoryRole role, bool exact) {
  const bool is_tensor = role == MemoryRole::kTensor;
  std::lock_guard lock(mutex_);
  if (is_tensor && bytes > statistics_.bytes_limit - statistics_.bytes_in_use) {
    return resource_exhausted("the limit is reached");
  }
  Pool& pool = pools_[static_cast<int>(role)];
  const auto finish = [&](MemoryBlock* block, int64_t offset) {
    if (is_tensor) {
      statistics_.bytes_in_use += bytes;
      statistics_.peak_bytes_in_use =
          std::max(statistics_.peak_bytes_in_use, statistics_.bytes_in_use);
      statistics_.largest_allocation_bytes = std::max(statistics_.largest_allocation_bytes, bytes);
      ++statistics_.allocation_count;
    } else if (role == MemoryRole::kHostTensor) {
      statistics_.host_bytes_in_use += bytes;
      statistics_.peak_host_bytes_in_use =
          std::max(statistics_.peak_host_bytes_in_use, statistics_.host_bytes_in_use);
    }
    return std::make_shared<Allocation>(shared_from_this(), block, offset, bytes);
  };
  for (const std::unique_ptr<MemoryBlock>& block : pool.blocks) {
    if (const std::optional<int64_t> offset = block->ranges.allocate(bytes)) {
      return finish(block.get(), *offset);
    }
  }
  const DevicePlan& plan = device_->plan();
  const int64_t unit = plan.allocation_alignment;
  const int64_t rounded = (std::max(bytes, int64_t{1}) + unit - 1) / unit * unit;
  int64_t block_bytes = std::min(pool.next_block_bytes, plan.max_allocation_bytes);
  if (is_tensor) {
    // A small limit is not to be outgrown by one block.
    const int64_t limit = std::max(statistics_.bytes_limit, unit);
    block_bytes = std::min(block_bytes, (limit + unit - 1) / unit * unit);
  }
  const bool is_dedicated = exact || rounded > block_bytes / 2;
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<MemoryBlock> block,
                         make_block(is_dedicated ? rounded : block_bytes, role));
  if (!is_dedicated) {
    pool.next_block_bytes = std::min(pool.next_block_bytes * 2, kMaxBlockBytes);
  }
  const std::optional<int64_t> offset = block->ranges.allocate(bytes);
  pool.blocks.push_back(std::move(block));
  return finish(pool.blocks.back().get(), *offset);
}

Status DeviceMemory::make_buffer(MemoryBlock& block, int64_t bytes, const void* extension,
                                 bool is_exclusive) const {
  const DevicePlan& plan = device_->plan();
  VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.pNext = extension;
  info.size = static_cast<VkDeviceSize>(bytes);
  info.usage = kBufferUsage;
  const uint32_t families[] = {plan.compute.family, plan.transfer.family};
  if (families[0] != families[1] && !is_exclusive) {
    // Costs buffers nothing and saves transfers of ownership.
    info.sharingMode = VK_SHARING_MODE_CONCURRENT;
    info.queueFamilyIndexCount = 2;
    info.pQueueFamilyIndices = families;
  }
  return device_->check(
      device_->call().CreateBuffer(device_->handle(), &info, nullptr, &block.buffer),
      "vkCreateBuffer");
}

Status DeviceMemory::bind(MemoryBlock& block) const {
  const DeviceFunctions& call = device_->call();
  HEKLA_RETURN_IF_ERROR(
      device_->check(call.BindBufferMemory(device_->handle(), block.buffer, block.memory, 0),
                     "vkBindBufferMemory"));
  VkBufferDeviceAddressInfo address = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
  address.buffer = block.buffer;
  block.address = call.GetBufferDeviceAddress(device_->handle(), &address);
  return ok_status();
}

Result<std::unique_ptr<MemoryBlock>> DeviceMemory::make_block(int64_t bytes, MemoryRole role) {
  const DevicePlan& plan = device_->plan();
  const DeviceFunctions& call = device_->call();
  const bool is_tensor = role == MemoryRole::kTensor;
  if (bytes > plan.max_buffer_bytes) {
    return resource_exhausted("{} bytes are more than the driver's largest buffer, {} bytes", bytes,
                              plan.max_buffer_bytes);
  }
  if (const int64_t left = is_tensor ? device_->heap_bytes_left() : -1; left >= 0 && bytes > left) {
    return resource_exhausted("the driver's budget has {} bytes left", left);
  }
  auto block = std::make_unique<MemoryBlock>(role, bytes, plan.allocation_alignment);
  const auto fail = [&](Status status) {
    destroy_block(*block);
    return status;
  };
  HEKLA_RETURN_IF_ERROR(make_buffer(*block, bytes, nullptr, false));
  VkMemoryRequirements requirements = {};
  call.GetBufferMemoryRequirements(device_->handle(), block->buffer, &requirements);

  block->memory_bytes = requirements.size;
  Status status = internal_error("no memory type of {} takes buffers for {}",
                                 device_->snapshot().name, role_name(role));
  bool is_visible = false;
  for (uint32_t type : types_of(plan, role)) {
    if ((requirements.memoryTypeBits & (1U << type)) == 0) continue;
    // Tensors stay on their heap: spilling elsewhere would work, at a twentieth of the speed.
    const MemoryType& properties = device_->snapshot().memory_types[type];
    if (is_tensor && properties.heap_index != plan.device_heap) continue;
    const uint64_t heap_bytes = device_->snapshot().heaps[properties.heap_index].size_bytes;
    if (requirements.size > heap_bytes) {
      status = resource_exhausted("{} bytes are more than the driver's heap of {}",
                                  requirements.size, heap_bytes);
      continue;
    }
    block->memory_type = type;
    status = back(*block, nullptr);
    is_visible = properties.is_host_visible && properties.is_host_coherent &&
                 (!is_tensor || plan.host_access == HostAccess::kFull);
    if (status.ok() || device_->is_lost()) break;
  }
  if (!status.ok() && bytes > plan.max_allocation_bytes && !device_->is_lost()) {
    status =
        resource_exhausted("the driver promises {} bytes in one piece and did not allocate {}: {}",
                           plan.max_allocation_bytes, bytes, status.message());
  }
  if (!status.ok()) return fail(status);
  if (is_visible) {
    void* host = nullptr;
    status =
        device_->check(call.MapMemory(device_->handle(), block->memory, 0, VK_WHOLE_SIZE, 0, &host),
                       "vkMapMemory");
    if (!status.ok()) return fail(status);
    block->host = static_cast<std::byte*>(host);
  }
  ++statistics_.block_count;
  statistics_.block_bytes += bytes;
  return block;
}

void DeviceMemory::destroy_block(MemoryBlock& block) {
  const DeviceFunctions& call = device_->call();
  if (block.buffer != VK_NULL_HANDLE) call.DestroyBuffer(device_->handle(), block.buffer, nullptr);
  // Freeing unmaps.
  if (block.memory != VK_NULL_HANDLE) call.FreeMemory(device_->handle(), block.memory, nullptr);
}

void DeviceMemory::free_empty_blocks(int64_t kept_bytes) {
  std::lock_guard lock(mutex_);
  for (Pool& pool : pools_) {
    // Blocks of their size were needed a moment ago and will be again: the newest ones stay.
    int64_t kept = 0;
    for (size_t i = pool.blocks.size(); i-- > 0;) {
      MemoryBlock& block = *pool.blocks[i];
      if (!block.ranges.is_empty()) continue;
      const int64_t bytes = block.ranges.capacity_bytes();
      if (kept + bytes <= kept_bytes) {
        kept += bytes;
        continue;
      }
      --statistics_.block_count;
      statistics_.block_bytes -= bytes;
      destroy_block(block);
      pool.blocks.erase(pool.blocks.begin() + static_cast<int64_t>(i));
    }
  }
}

void DeviceMemory::release(Allocation& allocation) {
  if (allocation.imported_ != nullptr) {
    destroy_block(*allocation.imported_);
    return;
  }
  bool is_empty = false;
  {
    std::lock_guard lock(mutex_);
    MemoryBlock& block = *allocation.block_;
    block.ranges.release(allocation.offset_);
    if (block.role == MemoryRole::kTensor) statistics_.bytes_in_use -= allocation.bytes_;
    if (block.role == MemoryRole::kHostTensor) statistics_.host_bytes_in_use -= allocation.bytes_;
    is_empty = block.ranges.is_empty();
  }
  // Some empty blocks stay for the next request, so that a loop does not allocate.
  if (is_empty) free_empty_blocks(kept_bytes_);
}

void DeviceMemory::set_pressure_handler(std::function<bool()> handler) {
  std::lock_guard lock(mutex_);
  pressure_ = std::move(handler);
}

MemoryStatistics DeviceMemory::statistics() const {
  std::lock_guard lock(mutex_);
  MemoryStatistics result = statistics_;
  for (const auto& block : pools_[static_cast<int>(MemoryRole::kTensor)].blocks) {
    result.largest_free_bytes =
        std::max(result.largest_free_bytes, block->ranges.largest_free_bytes());
  }
  return result;
}

void DeviceMemory::reset_peak() {
  std::lock_guard lock(mutex_);
  statistics_.peak_bytes_in_use = statistics_.bytes_in_use;
  statistics_.peak_host_bytes_in_use = statistics_.host_bytes_in_use;
}

Status DeviceMemory::out_of_memory(int64_t bytes, MemoryRole role, const Status& cause) const {
  const MemoryStatistics now = statistics();
  const int64_t left = device_->heap_bytes_left();
  return resource_exhausted(
      "out of memory on {}, logical device {}: {} bytes are wanted for {} ({}); in use {} of {} "
      "bytes, peak {}, in {} "
      "blocks of {} bytes, largest free range {}, left by the driver's budget {}. Free buffers, "
      "use smaller batches, donate inputs, or raise memory_limit_bytes",
      device_->snapshot().name, index_, bytes, role_name(role), cause.message(), now.bytes_in_use,
      now.bytes_limit, now.peak_bytes_in_use, now.block_count, now.block_bytes,
      now.largest_free_bytes, left < 0 ? "unknown" : std::to_string(left));
}

}  // namespace hekla::vulkan
