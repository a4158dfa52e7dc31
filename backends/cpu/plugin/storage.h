// SPDX-License-Identifier: Apache-2.0
// Memory of buffers on the CPU device: a block of the pool, or memory of the host used in place.
#pragma once

#include <functional>
#include <memory>

#include "backends/cpu/execute/block_pool.h"
#include "backends/pjrt/backend.h"
#include "backends/pjrt/memory_account.h"

namespace hekla::cpu {

// Whoever makes it binds its memory before anybody else looks: at once, or, for an output that may
// take the memory of a donated input, when its launch runs. Readers wait for the launch first.
class CpuStorage : public pjrt::Storage {
 public:
  // `account` is that of the device; bytes count while this object holds a block.
  CpuStorage(std::shared_ptr<pjrt::MemoryAccount> account, int64_t bytes)
      : account_(std::move(account)), size_bytes_(bytes) {}
  ~CpuStorage() override;

  int64_t size_bytes() const override { return size_bytes_; }
  void* host_pointer() override { return data_; }
  std::byte* data() const { return data_; }

  // RESOURCE_EXHAUSTED: the device's limit, or the system's.
  Status allocate();
  // Uses foreign memory; `release` runs at the end.
  void wrap(void* data, std::function<void()> release);
  // Whether its block may become another storage's: it is not foreign.
  bool has_block() const { return block_.data() != nullptr; }
  // Takes the block of `donor`, of the same size on the same device, which is then empty.
  void take_block(CpuStorage& donor);

 private:
  const std::shared_ptr<pjrt::MemoryAccount> account_;  // shared with the device's other storages
  const int64_t size_bytes_;
  std::byte* data_ = nullptr;
  Block block_;
  std::function<void()> release_;
};

inline CpuStorage& storage_of(const pjrt::StorageRef& storage) {
  return static_cast<CpuStorage&>(*storage);
}

}  // namespace hekla::cpu
