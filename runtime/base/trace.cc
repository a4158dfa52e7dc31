// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <mutex>

namespace hekla {
namespace {

struct Kept {
  std::mutex mutex;
  std::vector<TraceSpan> spans;  // guarded by mutex
  int64_t dropped = 0;           // the same
};

// Threads may add spans while the process ends.
Kept& kept() {
  static auto* made = new Kept;
  return *made;
}

int64_t thread_number() {
  static thread_local const auto number = static_cast<int64_t>(::syscall(SYS_gettid));
  return number;
}

}  // namespace

std::atomic<int> Trace::recordings_ = 0;

int64_t Trace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Trace::add(TraceSpan span) {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  if (!is_on()) return;
  if (all.spans.size() >= kMostSpans) {
    ++all.dropped;
  } else {
    all.spans.push_back(std::move(span));
  }
}

void HostSpan::end(TraceDetailRef what, std::vector<TraceStat> stats) const {
  if (!is_on()) return;
  Trace::add({TraceLine::kHost, thread_number(), std::move(what), begin_ns_, Trace::now(),
              std::move(stats)});
}

void TraceRecording::start() {
  if (is_running_) return;
  is_running_ = true;
  const auto wall = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  epoch_offset_ns_ = wall - Trace::now();
  spans_.clear();
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  first_ = all.spans.size();
  dropped_ = all.dropped;
  ++Trace::recordings_;
}

void TraceRecording::stop() {
  if (!is_running_) return;
  is_running_ = false;
  std::vector<TraceSpan> freed;  // outside of the lock
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  dropped_ = all.dropped - dropped_;
  const auto first = all.spans.begin() + static_cast<std::ptrdiff_t>(first_);
  if (--Trace::recordings_ > 0) {
    spans_.assign(first, all.spans.end());
    return;
  }
  if (first_ == 0) {
    spans_.swap(all.spans);
  } else {
    spans_.assign(first, all.spans.end());
    freed.swap(all.spans);
  }
  all.spans.clear();
  all.dropped = 0;
}

}  // namespace hekla
