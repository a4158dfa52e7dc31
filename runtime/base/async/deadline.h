// SPDX-License-Identifier: Apache-2.0
// Deadline: the moment up to which something may wait. A plain value.
#pragma once

#include <algorithm>
#include <chrono>

namespace hekla {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline at(Clock::time_point time) { return Deadline(time); }
  static Deadline in(std::chrono::nanoseconds duration) {
    const Clock::time_point now = Clock::now();
    // Sums beyond the clock's end are "never".
    return duration >= Clock::time_point::max() - now ? never() : Deadline(now + duration);
  }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  Clock::time_point time() const { return time_; }
  bool is_never() const { return time_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= time_; }
  // Until then, at least 0.
  std::chrono::nanoseconds left() const {
    if (is_never()) return std::chrono::nanoseconds::max();
    return std::max<std::chrono::nanoseconds>(time_ - Clock::now(), std::chrono::nanoseconds(0));
  }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace hekla
