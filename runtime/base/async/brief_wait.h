// SPDX-License-Identifier: Apache-2.0
// BriefWait: waits a little, awake, for what usually comes sooner than a thread could be woken.
//
// Waking a thread that sleeps takes tens of microseconds where its core sleeps too, more than many
// callbacks run. Whoever has such a wait keeps one BriefWait for it: a wait that was in vain halves
// how often the next ones are tried, down to one in kMaxSkipped, and one that was not makes the
// next ones be tried at once. So where nothing comes soon next to nothing is lost. While it waits
// the thread yields its core to whoever can run. Thread-safe; nothing is promised of the order in
// which threads share the attempts.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace hekla {

class BriefWait {
 public:
  static constexpr uint32_t kMaxSkipped = 256;

  // Whether `is_there()` became true within `limit`; it is asked often, and once in any case.
  template <typename IsThere>
  bool wait(std::chrono::nanoseconds limit, const IsThere& is_there) {
    if (is_there()) return true;
    const uint32_t left = left_to_skip_.load(std::memory_order_relaxed);
    if (left > 0) {
      left_to_skip_.store(left - 1, std::memory_order_relaxed);
      return false;
    }
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + limit;
    do {
      std::this_thread::yield();
      if (is_there()) {
        skipped_.store(0, std::memory_order_relaxed);
        return true;
      }
    } while (Clock::now() < end);
    const uint32_t skipped = skipped_.load(std::memory_order_relaxed);
    const uint32_t next = std::min(kMaxSkipped, 2 * skipped + 1);
    skipped_.store(next, std::memory_order_relaxed);
    left_to_skip_.store(next, std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<uint32_t> left_to_skip_ = 0;  // waits that are not tried
  std::atomic<uint32_t> skipped_ = 0;       // after the last one that was tried
};

}  // namespace hekla
