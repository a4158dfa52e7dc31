// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/step_times.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "runtime/base/log.h"

namespace hekla::cpu {

StepTimes::StepTimes() : is_on_(log_enabled(LogLevel::kVerbose)) {}

void StepTimes::add(const plan::LaunchPlan& plan, const plan::Step& step, double ns) {
  int64_t number = 0;
  std::string name;
  if (const auto* run = std::get_if<plan::KernelStep>(&step.what)) {
    number = run->kernel;
    const kernel::Kernel& kernel = plan.kernels[static_cast<size_t>(number)];
    name = fmt::format("kernel {} {} grid [{}]", number, kernel.name, fmt::join(kernel.grid, ", "));
  } else if (const auto* contract = std::get_if<plan::ContractionStep>(&step.what)) {
    number = contract->contraction;
    name = fmt::format("contraction {} {}", number,
                       kernel::to_string(plan.contractions[static_cast<size_t>(number)]));
  } else if (std::holds_alternative<plan::CopyStep>(step.what)) {
    name = "copies";
  } else if (const auto* host = std::get_if<plan::HostStep>(&step.what)) {
    number = reinterpret_cast<intptr_t>(host);
    name = "host " + host->name;
  } else if (const auto* rows = std::get_if<std::shared_ptr<const plan::RowsStep>>(&step.what)) {
    number = reinterpret_cast<intptr_t>(rows->get());
    name = fmt::format("{} rows through kernels", (*rows)->rows);
    for (const plan::Step& inner : (*rows)->steps) {
      if (const auto* run = std::get_if<plan::KernelStep>(&inner.what)) {
        name += fmt::format(" {}", run->kernel);
      }
    }
  } else {
    return;
  }
  Time& time = times_[{step.what.index(), number}];
  if (time.count == 0) time.name = std::move(name);
  time.ns += ns;
  ++time.count;
}

void StepTimes::log() const {
  if (!is_on_) return;
  std::vector<const Time*> order;
  double total = 0;
  for (const auto& [key, time] : times_) {
    order.push_back(&time);
    total += time.ns;
  }
  std::sort(order.begin(), order.end(), [](const Time* a, const Time* b) { return a->ns > b->ns; });
  log_message(LogLevel::kVerbose, "cpu: a launch: {:.1f} us in steps", total / 1000);
  for (const Time* time : order) {
    log_message(LogLevel::kVerbose, "cpu: {:8.1f} us in {:4} steps of {}", time->ns / 1000,
                time->count, time->name);
  }
}

}  // namespace hekla::cpu
