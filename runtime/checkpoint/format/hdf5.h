// SPDX-License-Identifier: Apache-2.0
// libhdf5 as the checkpoint uses it: on one thread, on memory alone, with its errors as Status.
// Internal to this folder.
//
// All calls happen on the HDF5 thread, which on_hdf5_thread starts at first use; the library's
// sequences of calls are not atomic even where each call is. fork() waits until the thread rests;
// the child starts one of its own.
#pragma once

#include <hdf5.h>

#include <functional>
#include <string_view>
#include <utility>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

// Runs `work` on the HDF5 thread and waits. One caller at a time; others wait.
Status on_hdf5_thread(const std::function<Status()>& work);

// INTERNAL with `what` and HDF5's error stack; clears the stack.
Status hdf5_error(std::string_view what);

// Owns one HDF5 identifier.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  hid_t get() const { return id_; }
  // Closes now and says whether that worked.
  Status close(std::string_view what);

 private:
  hid_t id_ = H5I_INVALID_HID;
  herr_t (*close_)(hid_t) = nullptr;
};

// The handle, or hdf5_error(what) when `id` is negative.
Result<Handle> own(hid_t id, herr_t (*close)(hid_t), std::string_view what);
Status check_hdf5(herr_t status, std::string_view what);

}  // namespace hekla::checkpoint
