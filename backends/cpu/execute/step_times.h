// SPDX-License-Identifier: Apache-2.0
// StepTimes: where the time of one launch goes, for the verbose log and for profilers.
//
// In the log steps that run the same kernel are added up; a profiler (runtime/base/trace.h) gets
// each. Without either nothing is measured. One thread, that of the launch.
#pragma once

#include <map>
#include <string>

#include "backends/compiler/plan/step_details.h"

namespace hekla::cpu {

class StepTimes {
 public:
  // `device`: whose line the steps are shown on; -1: on none. `details` outlives this object.
  StepTimes(plan::StepDetails& details, int device);
  bool is_on() const { return is_logged_ || is_traced_; }
  void add(const plan::LaunchPlan& plan, const plan::Step& step, int64_t begin_ns, int64_t end_ns);
  // One line a kernel, the longest first.
  void log() const;

 private:
  struct Time {
    double ns = 0;
    int64_t count = 0;
  };
  plan::StepDetails& details_;
  const int device_;
  const bool is_logged_;
  const bool is_traced_;
  // By name. Loops and branches are those of the steps inside.
  std::map<std::string, Time> times_;
};

class StepTimer {
 public:
  StepTimer(StepTimes& times, const plan::LaunchPlan& plan, const plan::Step& step)
      : times_(times), plan_(plan), step_(step) {
    if (times.is_on()) begin_ = Trace::now();
  }
  StepTimer(const StepTimer&) = delete;
  ~StepTimer() {
    if (times_.is_on()) times_.add(plan_, step_, begin_, Trace::now());
  }

 private:
  StepTimes& times_;
  const plan::LaunchPlan& plan_;
  const plan::Step& step_;
  int64_t begin_ = 0;
};

}  // namespace hekla::cpu
