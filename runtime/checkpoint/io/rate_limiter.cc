// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/rate_limiter.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

namespace hekla::checkpoint {
namespace {

constexpr int64_t kBytesPerSecondAndCore = int64_t{64} << 20;
// More than any disk writes.
constexpr double kFastest = 1e15;

}  // namespace

int64_t background_bandwidth() {
  const auto cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const char* const text = std::getenv("LOCAL_WORLD_SIZE");
  const int64_t processes = text == nullptr ? 1 : std::max(1L, std::strtol(text, nullptr, 10));
  return std::max<int64_t>(1, cores * kBytesPerSecondAndCore / processes);
}

RateLimiter::RateLimiter(int64_t bytes_per_second, std::shared_ptr<Priority> priority)
    : priority_(std::move(priority)),
      rate_(static_cast<double>(bytes_per_second)),
      base_time_(Clock::now()),
      counted_(base_time_),
      watch_(priority_, [this] {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

double RateLimiter::due_bytes(Clock::time_point now) const {
  if (rate_ == 0) return std::numeric_limits<double>::infinity();
  return base_bytes_ + std::chrono::duration<double>(now - base_time_).count() * rate_;
}

void RateLimiter::rebase(Clock::time_point now) {
  base_bytes_ = reserved_;
  base_time_ = now;
}

void RateLimiter::count(int waiting, int working) {
  const Clock::time_point now = Clock::now();
  if (waiting_ > 0 && working_ == 0) throttled_ += now - counted_;
  counted_ = now;
  waiting_ += waiting;
  working_ += working;
}

RateLimiter::Permit::Permit(RateLimiter& limiter, int64_t bytes, const std::stop_token& stop)
    : rate_limiter_(limiter) {
  std::unique_lock lock(limiter.mutex_);
  // What was not written while there was nothing to write is not caught up with.
  const Clock::time_point start = Clock::now();
  if (limiter.due_bytes(start) > limiter.reserved_) limiter.rebase(start);
  const double place = limiter.reserved_;
  limiter.reserved_ += static_cast<double>(bytes);
  int waiting = 0;
  while (!stop.stop_requested()) {
    const Clock::time_point now = Clock::now();
    if (limiter.priority_->is_raised()) {
      limiter.rebase(
          now);  // no debt is left for what comes when the priority is not raised any more
      break;
    }
    const double missing = place - limiter.due_bytes(now);
    if (missing <= 0) break;
    if (waiting == 0) limiter.count(waiting = 1, 0);
    // An hour is as good as for ever, and does not overflow.
    const auto step = std::min<std::chrono::duration<double>>(
        std::chrono::duration<double>(missing / limiter.rate_), std::chrono::hours(1));
    limiter.changed_.wait_for(lock, stop, step, [&, rate = limiter.rate_] {
      return limiter.priority_->is_raised() || limiter.rate_ != rate;
    });
  }
  limiter.count(-waiting, 1);
}

RateLimiter::Permit::~Permit() {
  const std::lock_guard lock(rate_limiter_.mutex_);
  rate_limiter_.count(0, -1);
}

void RateLimiter::set_rate(double rate) {
  const Clock::time_point now = Clock::now();
  base_bytes_ = std::min(due_bytes(now), reserved_);
  base_time_ = now;
  rate_ = std::min(rate, kFastest);
  changed_.notify_all();
}

void RateLimiter::at_least(double bytes_per_second) {
  const std::lock_guard lock(mutex_);
  if (rate_ != 0 && rate_ < bytes_per_second) set_rate(bytes_per_second);
}

void RateLimiter::double_rate() {
  const std::lock_guard lock(mutex_);
  if (rate_ != 0) set_rate(2 * rate_);
}

double RateLimiter::bytes_per_second() const {
  const std::lock_guard lock(mutex_);
  return rate_;
}

std::chrono::duration<double> RateLimiter::throttled_time() const {
  const std::lock_guard lock(mutex_);
  Clock::duration all = throttled_;
  if (waiting_ > 0 && working_ == 0) all += Clock::now() - counted_;
  return all;
}

}  // namespace hekla::checkpoint
