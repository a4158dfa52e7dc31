// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/step_details.h"

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

// Multiplications and additions.
double flops_of(const kernel::Contraction& c) {
  double count = 2;
  for (const auto* axes : {&c.batch, &c.rows, &c.columns, &c.depth}) {
    for (const kernel::Contraction::Axis& axis : *axes) count *= static_cast<double>(axis.size);
  }
  return count;
}

std::string short_name(const Step& step, const LaunchPlan& plan) {
  if (const auto* run = std::get_if<KernelStep>(&step.what)) {
    return plan.kernels[static_cast<size_t>(run->kernel)].name;
  }
  if (std::holds_alternative<ContractionStep>(step.what)) return "contraction";
  if (const auto* rows = std::get_if<RowsStep>(&step.what)) {
    std::string name;
    for (const Step& inner : rows->steps) {
      name += (name.empty() ? "" : " + ") + short_name(inner, plan);
    }
    return name;
  }
  return to_string(step, plan);
}

TraceDetailRef make(const Step& step, const LaunchPlan& plan) {
  auto made = std::make_shared<TraceDetail>();
  made->name = short_name(step, plan);
  made->stats.push_back({"long_name", to_string(step, plan)});
  if (step.origin != nullptr) {
    if (!step.origin->name.empty()) made->stats.push_back({"tf_op", step.origin->name});
    if (!step.origin->place.empty()) made->stats.push_back({"source", step.origin->place});
  }
  const auto* rows = std::get_if<RowsStep>(&step.what);
  bool is_loop = false;
  for_each_list(step, [&](const Steps&) { is_loop = rows == nullptr; });
  int64_t bytes = 0;
  if (!is_loop) {
    for_each_slice(step, plan, [&](const Slice& slice, const Use&) { bytes += slice.bytes; });
  }
  double flops = 0;
  const auto add_flops = [&](const Step& one) {
    const auto* run = std::get_if<ContractionStep>(&one.what);
    if (run != nullptr) flops += flops_of(plan.contractions[static_cast<size_t>(run->contraction)]);
  };
  add_flops(step);
  if (rows != nullptr) for_each_step(rows->steps, add_flops);
  if (bytes > 0) made->stats.push_back({"bytes_accessed", bytes});
  if (flops > 0) made->stats.push_back({"flops", static_cast<int64_t>(flops)});
  return made;
}

}  // namespace

TraceDetailRef StepDetails::of(const Step& step, const LaunchPlan& plan) {
  const std::lock_guard lock(mutex_);
  TraceDetailRef& known = known_[&step];
  if (known == nullptr) known = make(step, plan);
  return known;
}

}  // namespace hekla::plan
