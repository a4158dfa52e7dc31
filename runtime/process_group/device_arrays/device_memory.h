// SPDX-License-Identifier: Apache-2.0
// DeviceInput, DeviceOutput: the elements of a device buffer as a process group reads or writes
// them, in the device's memory or in a host array between. Internal to this folder.
//
// What they hand out keeps the memory alive (Elements::owner), so they may go before the group has.
// Not thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "runtime/process_group/device_arrays/device_group.h"

namespace hekla::process_group {

// Whether the group may use the buffer's memory itself: it is the host's, and dense as host arrays.
bool is_direct(const runtime::Buffer& buffer);

// UNIMPLEMENTED: buffers of this type have no elements.
Status check_has_elements(DType dtype);

// What a call reads.
class DeviceInput {
 public:
  // Holds the values that x has now. `is_freed`: x is freed, now or once it has been read.
  // `deadline`: of plugins whose buffers are copied at once. INVALID_ARGUMENT, UNIMPLEMENTED: as
  // DeviceGroup says.
  static Result<DeviceInput> take(const DeviceArray& x, bool may_be_direct, bool is_freed,
                                  Deadline deadline);
  // Of a buffer that nobody else knows.
  static DeviceInput own(std::shared_ptr<runtime::Buffer> buffer);

  // Of the contents.
  Result<runtime::Event> ready() const;
  // Whether to read is to copy.
  bool is_copied() const { return !is_direct_ && host_ == nullptr; }
  // Of contents that are there. Errors of whatever computes them.
  Result<ConstElements> read();
  bool is_in_place() const { return is_direct_; }
  // After read(): the host array that it went through; null: none.
  const std::shared_ptr<HostArray>& host() const { return host_; }

 private:
  struct Held;
  std::shared_ptr<Held> held_;  // shared with what was handed out
  bool is_direct_ = false;
  std::shared_ptr<HostArray> host_;
};

// What a call writes.
class DeviceOutput {
 public:
  // New memory.
  static Result<DeviceOutput> make(const DevicePlace& place, bool may_be_direct);
  // A buffer whose address the host has, to be written when its contents are there.
  static DeviceOutput over(std::shared_ptr<runtime::Buffer> buffer);
  // A buffer that is the result as it is.
  static DeviceOutput given(runtime::Buffer buffer);
  // A host array that becomes a buffer there.
  static DeviceOutput through(std::shared_ptr<HostArray> array, const DevicePlace& place);

  bool is_in_place() const { return buffer_ != nullptr; }
  Result<Elements> elements();
  // The buffer, once it has been written.
  Result<runtime::Buffer> take();

 private:
  std::shared_ptr<runtime::Buffer> buffer_;  // shared with what was handed out
  std::shared_ptr<HostArray> host_;          // the same
  std::optional<DevicePlace> place_;
};

}  // namespace hekla::process_group
