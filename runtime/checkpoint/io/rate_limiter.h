// SPDX-License-Identifier: Apache-2.0
// RateLimiter: how fast threads write behind a program while nobody waits for them.
//
// Writing as fast as the disk takes it slows a program that keeps all cores and the memory busy,
// whatever the priority of the threads; written slower, the same bytes are not noticed. While
// the priority is raised there is no limit, and who waits then goes on at once.
//
// Thread-safe. Nothing fails; waits end with priority and with a request to stop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>

#include "runtime/checkpoint/io/priority.h"

namespace hekla::checkpoint {

class RateLimiter {
 public:
  // 0 bytes per second: as fast as it goes.
  RateLimiter(int64_t bytes_per_second, std::shared_ptr<Priority> priority);

  // For a transfer of so many bytes, once there is room for it.
  class Permit {
   public:
    Permit(RateLimiter& limiter, int64_t bytes, const std::stop_token& stop);  // waits for it
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;
    ~Permit();

   private:
    RateLimiter& rate_limiter_;
  };

  // From now on not slower than this.
  void at_least(double bytes_per_second);
  // Somebody came for whom it is too slow: from now on twice as fast.
  void double_rate();
  double bytes_per_second() const;
  // So far: time in which nobody wrote because of the limit.
  std::chrono::duration<double> throttled_time() const;

 private:
  using Clock = std::chrono::steady_clock;
  void set_rate(double rate);            // mutex_ held
  void count(int waiting, int working);  // changes; mutex_ held
  double due_bytes(Clock::time_point now) const;
  void rebase(Clock::time_point now);  // all bytes so far are due; mutex_ held

  const std::shared_ptr<Priority> priority_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // At base_time_ the first base_bytes_ were due, and every second rate_ more are. Guarded by
  // mutex_, as all below.
  double rate_ = 0;  // 0: all of them
  double base_bytes_ = 0;
  Clock::time_point base_time_;
  double reserved_ = 0;  // bytes of all permits so far
  int waiting_ = 0, working_ = 0;
  Clock::time_point counted_;
  Clock::duration throttled_{0};
  Priority::Watch watch_;
};

// 64 MiB/s for each core of this machine, shared by LOCAL_WORLD_SIZE processes when that is set:
// hashing, copying and writing then take 1 % of the processor time (docs/measurements.md).
int64_t background_bandwidth();

}  // namespace hekla::checkpoint
