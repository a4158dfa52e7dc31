// SPDX-License-Identifier: Apache-2.0
// ClockOffset: from a device's clock to the host's, by what the host sees: work that ended at
// `device_ns` cannot be seen before it ended. The smallest difference so far is the best guess; it
// is late by as much as the host was when it was quickest. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace hekla::vulkan {

class ClockOffset {
 public:
  // What is to be added to the device's nanoseconds.
  int64_t seen(int64_t host_ns, double device_ns) {
    const std::lock_guard lock(mutex_);
    return fit(host_ns, device_ns);
  }

  // The same for work that begins and ends after all that was asked for here before, and is shown
  // so, however late that was placed.
  int64_t seen_in_order(int64_t host_ns, double device_begin_ns, double device_end_ns) {
    const std::lock_guard lock(mutex_);
    int64_t offset = fit(host_ns, device_end_ns);
    offset = std::max(offset, last_end_ns_ - static_cast<int64_t>(device_begin_ns));
    last_end_ns_ = static_cast<int64_t>(device_end_ns) + offset;
    return offset;
  }

 private:
  int64_t fit(int64_t host_ns, double device_ns) {
    const int64_t difference = host_ns - static_cast<int64_t>(device_ns);
    // A device's clock may wrap or begin anew.
    constexpr int64_t kNoDelay = 1'000'000'000;
    if (!is_known_ || difference < offset_ || difference - offset_ > kNoDelay) offset_ = difference;
    is_known_ = true;
    return offset_;
  }

  std::mutex mutex_;
  bool is_known_ = false;    // guarded by mutex_
  int64_t offset_ = 0;       // the same
  int64_t last_end_ns_ = 0;  // the same, of the host's clock
};

}  // namespace hekla::vulkan
