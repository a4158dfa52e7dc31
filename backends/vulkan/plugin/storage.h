// SPDX-License-Identifier: Apache-2.0
// VulkanStorage: device memory behind a PJRT buffer.
#pragma once

#include "backends/pjrt/backend.h"
#include "backends/vulkan/memory/device_memory.h"

namespace hekla::vulkan {

// Shares an allocation with launches in flight. What a launch writes also carries the events of the
// launch, so that the next one can be submitted before the bytes are there. Immutable.
class VulkanStorage : public pjrt::Storage {
 public:
  VulkanStorage(int device, AllocationRef memory) : device_(device), memory_(std::move(memory)) {}
  // An output: `submitted` when its launch is in the lane's order, `done` when it is written.
  VulkanStorage(int device, AllocationRef memory, CompletionRef submitted, CompletionRef done)
      : device_(device),
        memory_(std::move(memory)),
        submitted_(std::move(submitted)),
        done_(std::move(done)) {}

  int64_t size_bytes() const override { return memory_->bytes(); }
  void* host_pointer() override { return memory_->host(); }

  int device() const { return device_; }  // index of the logical device
  const AllocationRef& memory() const { return memory_; }
  // From when on a launch of the same device may be submitted that reads this storage; `ready` is
  // the event that the caller has for it.
  CompletionRef submitted(const CompletionRef& ready) const {
    return done_ != nullptr && ready == done_ ? submitted_ : ready;
  }

 private:
  const int device_;
  const AllocationRef memory_;  // shared with launches in flight, and with an output that took it
  const CompletionRef submitted_;
  const CompletionRef done_;
};

}  // namespace hekla::vulkan
