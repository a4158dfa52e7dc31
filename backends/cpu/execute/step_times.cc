// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/step_times.h"

#include <algorithm>
#include <vector>

#include "backends/compiler/plan/visit.h"
#include "runtime/base/log.h"

namespace hekla::cpu {

StepTimes::StepTimes(plan::StepDetails& details, int device)
    : details_(details),
      device_(device),
      is_logged_(log_enabled(LogLevel::kVerbose)),
      is_traced_(device >= 0 && Trace::is_on()) {}

void StepTimes::add(const plan::LaunchPlan& plan, const plan::Step& step, int64_t begin_ns,
                    int64_t end_ns) {
  if (is_traced_) {
    Trace::add({TraceLine::kSteps, device_, details_.of(step, plan), begin_ns, end_ns});
  }
  if (!is_logged_) return;
  const auto* rows = std::get_if<plan::RowsStep>(&step.what);
  bool has_steps = false;
  plan::for_each_list(step, [&](const plan::Steps&) { has_steps = true; });
  if (has_steps && rows == nullptr) return;
  std::string name = plan::to_string(step, plan);
  if (rows != nullptr) {
    name += ": kernels";
    for (const plan::Step& inner : rows->steps) {
      const auto* kernel = std::get_if<plan::KernelStep>(&inner.what);
      name += kernel != nullptr ? fmt::format(" {}", kernel->kernel) : " contraction";
    }
  }
  Time& time = times_[name];
  time.ns += static_cast<double>(end_ns - begin_ns);
  ++time.count;
}

void StepTimes::log() const {
  if (!is_logged_) return;
  std::vector<std::pair<std::string, Time>> order(times_.begin(), times_.end());
  double total = 0;
  for (const auto& [name, time] : order) total += time.ns;
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  log_message(LogLevel::kVerbose, "cpu: a launch: {:.1f} us in steps", total / 1000);
  for (const auto& [name, time] : order) {
    log_message(LogLevel::kVerbose, "cpu: {:8.1f} us in {:4} steps of {}", time.ns / 1000,
                time.count, name);
  }
}

}  // namespace hekla::cpu
