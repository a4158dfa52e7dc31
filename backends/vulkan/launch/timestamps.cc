// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/timestamps.h"

namespace hekla::vulkan {

Result<std::unique_ptr<Timestamps>> Timestamps::create(std::shared_ptr<Device> device,
                                                       uint32_t queue_family,
                                                       const std::vector<size_t>& dispatches) {
  const uint32_t bits = device->snapshot().queue_families[queue_family].timestamp_bits;
  if (bits == 0) {
    return unimplemented("{} has no clock on queue family {}: vulkan_profile needs one",
                         device->snapshot().name, queue_family);
  }
  std::unique_ptr<Timestamps> made(new Timestamps(std::move(device)));
  made->mask_ = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  made->first_.push_back(0);
  for (const size_t count : dispatches) made->first_.push_back(made->first_.back() + count + 1);
  VkQueryPoolCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = static_cast<uint32_t>(made->first_.back());
  if (info.queryCount == 0) return made;
  Device& d = *made->device_;
  HEKLA_RETURN_IF_ERROR(d.check(d.call().CreateQueryPool(d.handle(), &info, nullptr, &made->pool_),
                                "vkCreateQueryPool"));
  return made;
}

Timestamps::~Timestamps() { device_->call().DestroyQueryPool(device_->handle(), pool_, nullptr); }

void Timestamps::begin(VkCommandBuffer commands, size_t group) const {
  device_->call().CmdResetQueryPool(commands, pool_, static_cast<uint32_t>(first_[group]),
                                    static_cast<uint32_t>(marks(group)));
  write(commands, first_[group]);
}

void Timestamps::mark(VkCommandBuffer commands, size_t group, size_t dispatch) const {
  write(commands, first_[group] + 1 + dispatch);
}

void Timestamps::write(VkCommandBuffer commands, size_t query) const {
  device_->call().CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_,
                                    static_cast<uint32_t>(query));
}

Result<std::vector<double>> Timestamps::read(size_t group) const {
  std::vector<uint64_t> at(marks(group));
  const VkResult result = device_->call().GetQueryPoolResults(
      device_->handle(), pool_, static_cast<uint32_t>(first_[group]),
      static_cast<uint32_t>(at.size()), at.size() * sizeof(uint64_t), at.data(), sizeof(uint64_t),
      VK_QUERY_RESULT_64_BIT);
  std::vector<double> times;
  if (result == VK_NOT_READY) return times;
  HEKLA_RETURN_IF_ERROR(device_->check(result, "vkGetQueryPoolResults"));
  const double period = device_->snapshot().limits.timestamp_period_ns;
  double now = static_cast<double>(at.front() & mask_) * period;
  times.push_back(now);
  for (size_t i = 1; i < at.size(); ++i) {
    now += static_cast<double>((at[i] - at[i - 1]) & mask_) * period;
    times.push_back(now);
  }
  return times;
}

}  // namespace hekla::vulkan
