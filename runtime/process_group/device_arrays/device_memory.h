// SPDX-License-Identifier: Apache-2.0
// DeviceInput, DeviceOutput: the elements of a device buffer as a process group reads or writes
// them, in the device's memory or in a host array between. Internal to this folder.
//
// What they hand out keeps the memory alive (Elements::owner), so they may go before the group has.
// Not thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/client/upload.h"
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
  int64_t count() const;  // elements
  // Of contents that are there. Errors of whatever computes them.
  Result<ConstElements> read();
  // The same by copies of `part_elements` each, which go on while the caller does: those of part k
  // are there when arrivals[k] is ready. After UNIMPLEMENTED (the plugin or the layout has no
  // copies of parts) read() has another way.
  Result<ConstElements> begin_read(int64_t part_elements, std::vector<runtime::Event>& arrivals);
  bool is_in_place() const { return is_direct_; }
  // After read(): the host array that it went through; null: none.
  const std::shared_ptr<HostArray>& host() const { return host_; }

 private:
  struct Held;
  std::shared_ptr<Held> held_;  // shared with what was handed out
  bool is_direct_ = false;
  std::shared_ptr<HostArray> host_;
};

// A host array on its way to a device in parts. Thread-safe.
class DeviceUpload : public std::enable_shared_from_this<DeviceUpload> {
 public:
  // UNIMPLEMENTED: the plugin, or the layout that it gives such a buffer, has no copies of parts.
  static Result<std::shared_ptr<DeviceUpload>> begin(std::shared_ptr<HostArray> array,
                                                     const DevicePlace& place,
                                                     int64_t part_elements);
  const std::shared_ptr<HostArray>& array() const { return array_; }
  // Part k of the array has been written; at most once counts.
  void send(int64_t k);
  // All of it has: the buffer, and the first error of a part.
  Result<runtime::Buffer> finish();

 private:
  DeviceUpload(runtime::Upload upload, std::shared_ptr<HostArray> array, int64_t part_bytes);
  void send_locked(size_t k);

  const std::shared_ptr<HostArray> array_;
  const size_t part_bytes_;
  std::mutex mutex_;
  // Guarded by mutex_.
  runtime::Upload upload_;
  std::vector<bool> is_sent_;  // by part
  size_t left_;                // parts that have not been sent
  Status status_;
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
  // The same in parts.
  static DeviceOutput through(std::shared_ptr<DeviceUpload> upload);

  bool is_in_place() const { return buffer_ != nullptr; }
  const std::shared_ptr<HostArray>& host() const { return host_; }  // null: in place
  Result<Elements> elements();
  // The buffer, once it has been written.
  Result<runtime::Buffer> take();

 private:
  std::shared_ptr<runtime::Buffer> buffer_;  // shared with what was handed out
  std::shared_ptr<HostArray> host_;          // the same
  std::optional<DevicePlace> place_;
  std::shared_ptr<DeviceUpload> upload_;
};

}  // namespace hekla::process_group
