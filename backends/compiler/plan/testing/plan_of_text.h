// SPDX-License-Identifier: Apache-2.0
// Plans of programs as text, for tests: as make_plan gives them, after no passes but those that
// bring every program into one function.
#pragma once

#include <string>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/plan/planner.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::plan {

inline LaunchPlan plan_of_text(const std::string& text, const PlanOptions& options = {},
                               const DeviceTraits& traits = {}) {
  Result<std::unique_ptr<ir::Module>> module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  const Status inlined = passes::inline_calls(**module);
  if (!inlined.ok()) die_of_bad_result(inlined);
  passes::clean_up(**module);
  Result<LaunchPlan> plan = make_plan(**module, options, traits);
  if (!plan.ok()) die_of_bad_result(plan.status());
  return *std::move(plan);
}

// A loop over much arithmetic is steps there, though each point could go round by itself.
inline DeviceTraits with_loops_as_steps() {
  DeviceTraits traits;
  traits.starts_kernels_quickly = true;
  return traits;
}

}  // namespace hekla::plan
