// SPDX-License-Identifier: Apache-2.0
// Timestamps: when the dispatches of a launch ended, by the device's clock.
//
// A group is what one command buffer records: a mark at its start and one behind each dispatch. A
// command buffer that runs again overwrites the marks of the time before; one that does not keeps
// them. The owner's one thread records; `read` is called after the work has ended. Errors: those of
// the driver; UNIMPLEMENTED where the queue family has no clock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/vulkan/device/device.h"

namespace hekla::vulkan {

class Timestamps {
 public:
  // For groups of so many dispatches.
  static Result<std::unique_ptr<Timestamps>> create(std::shared_ptr<Device> device,
                                                    uint32_t queue_family,
                                                    const std::vector<size_t>& dispatches);
  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;
  ~Timestamps();

  void begin(VkCommandBuffer commands, size_t group) const;
  void mark(VkCommandBuffer commands, size_t group, size_t dispatch) const;
  // The marks of a group in nanoseconds of the device's clock, which begins anywhere and may
  // wrap between groups; between two of them a dispatch waited at its barrier and ran.
  // Empty for a group that did not run.
  Result<std::vector<double>> read(size_t group) const;

 private:
  explicit Timestamps(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  size_t marks(size_t group) const { return first_[group + 1] - first_[group]; }
  void write(VkCommandBuffer commands, size_t query) const;

  const std::shared_ptr<Device> device_;
  std::vector<size_t> first_;  // query of each group, and one more
  uint64_t mask_ = 0;          // bits of a mark that count
  VkQueryPool pool_ = VK_NULL_HANDLE;
};

}  // namespace hekla::vulkan
