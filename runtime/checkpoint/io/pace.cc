// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/pace.h"

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

Pace::Pace(int64_t bytes_per_second, std::shared_ptr<Urgency> urgency)
    : urgency_(std::move(urgency)),
      rate_(static_cast<double>(bytes_per_second)),
      base_time_(Clock::now()),
      counted_(base_time_),
      watch_(urgency_, [this] {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

double Pace::due_bytes(Clock::time_point now) const {
  if (rate_ == 0) return std::numeric_limits<double>::infinity();
  return base_bytes_ + std::chrono::duration<double>(now - base_time_).count() * rate_;
}

void Pace::rebase(Clock::time_point now) {
  base_bytes_ = reserved_;
  base_time_ = now;
}

void Pace::count(int waiting, int working) {
  const Clock::time_point now = Clock::now();
  if (waiting_ > 0 && working_ == 0) stood_back_ += now - counted_;
  counted_ = now;
  waiting_ += waiting;
  working_ += working;
}

Pace::Turn::Turn(Pace& pace, int64_t bytes, const std::stop_token& stop) : pace_(pace) {
  std::unique_lock lock(pace.mutex_);
  // What was not written while there was nothing to write is not caught up with.
  const Clock::time_point start = Clock::now();
  if (pace.due_bytes(start) > pace.reserved_) pace.rebase(start);
  const double place = pace.reserved_;
  pace.reserved_ += static_cast<double>(bytes);
  int waiting = 0;
  while (!stop.stop_requested()) {
    const Clock::time_point now = Clock::now();
    if (pace.urgency_->is_urgent()) {
      pace.rebase(now);  // no debt is left for what comes when nothing is urgent any more
      break;
    }
    const double missing = place - pace.due_bytes(now);
    if (missing <= 0) break;
    if (waiting == 0) pace.count(waiting = 1, 0);
    // An hour is as good as for ever, and does not overflow.
    const auto step = std::min<std::chrono::duration<double>>(
        std::chrono::duration<double>(missing / pace.rate_), std::chrono::hours(1));
    pace.changed_.wait_for(lock, stop, step, [&, rate = pace.rate_] {
      return pace.urgency_->is_urgent() || pace.rate_ != rate;
    });
  }
  pace.count(-waiting, 1);
}

Pace::Turn::~Turn() {
  const std::lock_guard lock(pace_.mutex_);
  pace_.count(0, -1);
}

void Pace::set_rate(double rate) {
  const Clock::time_point now = Clock::now();
  base_bytes_ = std::min(due_bytes(now), reserved_);
  base_time_ = now;
  rate_ = std::min(rate, kFastest);
  changed_.notify_all();
}

void Pace::at_least(double bytes_per_second) {
  const std::lock_guard lock(mutex_);
  if (rate_ != 0 && rate_ < bytes_per_second) set_rate(bytes_per_second);
}

void Pace::quicken() {
  const std::lock_guard lock(mutex_);
  if (rate_ != 0) set_rate(2 * rate_);
}

double Pace::bytes_per_second() const {
  const std::lock_guard lock(mutex_);
  return rate_;
}

std::chrono::duration<double> Pace::stood_back() const {
  const std::lock_guard lock(mutex_);
  Clock::duration all = stood_back_;
  if (waiting_ > 0 && working_ == 0) all += Clock::now() - counted_;
  return all;
}

}  // namespace hekla::checkpoint
