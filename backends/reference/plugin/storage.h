// SPDX-License-Identifier: Apache-2.0
// Memory of the reference device.
#pragma once

#include <functional>
#include <mutex>

#include "backends/pjrt/backend.h"
#include "backends/pjrt/memory_account.h"

namespace hekla::reference {

using pjrt::MemoryAccount;

// A host array, there from the start or set by the launch that makes it. Readers wait for the
// launch's completion before they look.
class ReferenceStorage : public pjrt::Storage {
 public:
  ReferenceStorage(std::shared_ptr<MemoryAccount> account, int64_t bytes)
      : account_(std::move(account)), size_bytes_(bytes) {}
  ~ReferenceStorage() override;

  int64_t size_bytes() const override { return size_bytes_; }
  void* host_pointer() override;
  // The array as bytes (dtype ui8) or as the launch left it.
  HostArray array() const;
  void set_array(HostArray array);
  // Moves the array out; for a donated input whose only owner is the launch.
  HostArray take_array();
  // The array is memory of somebody else, who has it back when the storage goes. Before others have
  // the storage.
  void set_foreign(std::function<void()> release) {
    is_foreign_ = true;
    release_ = std::move(release);
  }
  // Nothing that outlives the storage may share the array then.
  bool is_foreign() const { return is_foreign_; }

 private:
  const std::shared_ptr<MemoryAccount> account_;  // shared with the device's other storages
  const int64_t size_bytes_;
  mutable std::mutex mutex_;
  HostArray array_;  // guarded by mutex_
  bool is_foreign_ = false;
  std::function<void()> release_;  // of foreign memory; may be empty
};

}  // namespace hekla::reference
