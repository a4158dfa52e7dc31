// SPDX-License-Identifier: Apache-2.0
// Progress lines on standard error for work that takes long: nothing in the first two seconds, then
// one line a second at most. Any number of threads may add.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace hekla::tools {

// "1.25 GB", "17.0 kB", "12 bytes".
std::string size_text(int64_t bytes);

class Progress {
 public:
  Progress(std::string what, int64_t total_bytes);
  void add(int64_t bytes);
  double seconds() const;
  int64_t done() const { return done_.load(); }

 private:
  using Clock = std::chrono::steady_clock;
  const std::string what_;
  const int64_t total_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<int64_t> done_ = 0;
  std::atomic<int64_t> next_ms_ = 2000;  // when the next line is due
};

}  // namespace hekla::tools
