// SPDX-License-Identifier: Apache-2.0
// StepTimes: where the time of one launch goes, kernel by kernel, for the verbose log.
//
// Steps that run the same kernel are added up. Without verbose logging nothing is measured. One
// thread, that of the launch.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::cpu {

class StepTimes {
 public:
  StepTimes();
  bool is_on() const { return is_on_; }
  void add(const plan::LaunchPlan& plan, const plan::Step& step, double ns);
  // One line a kernel, the longest first.
  void log() const;

 private:
  struct Time {
    double ns = 0;
    int64_t count = 0;
  };
  const bool is_on_;
  // By name. Loops and branches are those of the steps inside.
  std::map<std::string, Time> times_;
};

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;
  StepTimer(StepTimes& times, const plan::LaunchPlan& plan, const plan::Step& step)
      : times_(times), plan_(plan), step_(step) {
    if (times.is_on()) start_ = Clock::now();
  }
  StepTimer(const StepTimer&) = delete;
  ~StepTimer() {
    if (!times_.is_on()) return;
    times_.add(plan_, step_,
               std::chrono::duration<double, std::nano>(Clock::now() - start_).count());
  }

 private:
  StepTimes& times_;
  const plan::LaunchPlan& plan_;
  const plan::Step& step_;
  Clock::time_point start_;
};

}  // namespace hekla::cpu
