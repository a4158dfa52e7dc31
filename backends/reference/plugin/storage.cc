// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/plugin/storage.h"

#include <utility>

namespace hekla::reference {

ReferenceStorage::~ReferenceStorage() {
  array_ = HostArray();
  account_->remove(size_bytes_);
  if (release_) release_();
}

void* ReferenceStorage::host_pointer() {
  std::lock_guard lock(mutex_);
  return const_cast<std::byte*>(array_.data());
}

HostArray ReferenceStorage::array() const {
  std::lock_guard lock(mutex_);
  return array_;
}

void ReferenceStorage::set_array(HostArray array) {
  std::lock_guard lock(mutex_);
  array_ = std::move(array);
}

HostArray ReferenceStorage::take_array() {
  std::lock_guard lock(mutex_);
  return std::exchange(array_, HostArray());
}

}  // namespace hekla::reference
