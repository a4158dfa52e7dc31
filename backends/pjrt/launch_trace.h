// SPDX-License-Identifier: Apache-2.0
// LaunchTrace: shows a profiler when a launch ran on its device: from its beginning to its end, on
// one thread or told later. Costs nothing where none watches (Launch::trace).
#pragma once

#include "backends/pjrt/backend.h"

namespace hekla::pjrt {

class LaunchTrace {
 public:
  LaunchTrace() = default;
  explicit LaunchTrace(const Launch& launch)
      : what_(launch.trace), device_(launch.device), run_id_(launch.info.run_id) {
    if (what_ != nullptr) begin_ = Trace::now();
  }
  LaunchTrace(const LaunchTrace&) = delete;
  LaunchTrace& operator=(const LaunchTrace&) = delete;
  ~LaunchTrace() {
    if (what_ == nullptr) return;
    Trace::add({TraceLine::kLaunches, device_, what_, begin_, Trace::now(), {{"run_id", run_id_}}});
  }

 private:
  const TraceDetailRef what_;  // of its own: the launch is let go of before it is told of
  const int device_ = -1;
  const int64_t run_id_ = 0;
  int64_t begin_ = 0;
};

}  // namespace hekla::pjrt
