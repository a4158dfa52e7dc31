// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/storage.h"

#include <utility>

namespace hekla::cpu {

CpuStorage::~CpuStorage() {
  if (has_block()) {
    block_ = Block();
    account_->remove(size_bytes_);
  }
  if (release_) release_();
}

Status CpuStorage::allocate() {
  HEKLA_RETURN_IF_ERROR(account_->add(size_bytes_));
  Result<Block> block = BlockPool::process_pool().allocate(size_bytes_);
  if (!block.ok()) {
    account_->remove(size_bytes_);
    return block.status();
  }
  block_ = *std::move(block);
  data_ = block_.data();
  return ok_status();
}

void CpuStorage::wrap(void* data, std::function<void()> release) {
  data_ = static_cast<std::byte*>(data);
  release_ = std::move(release);
}

void CpuStorage::take_block(CpuStorage& donor) {
  block_ = std::move(donor.block_);
  data_ = block_.data();
  donor.data_ = nullptr;
}

}  // namespace hekla::cpu
