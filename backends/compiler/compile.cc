// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/compile.h"

#include <algorithm>
#include <random>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/plan/planner.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/verify.h"

namespace hekla {
namespace {

Result<plan::LaunchPlan> plan_kernels(const ir::Module& module, const CompileOptions& options) {
  const std::unique_ptr<ir::Module> copy = ir::clone_module(module);
  const auto check = [&](std::string_view pass) {
    if (!options.verify_passes) return ok_status();
    return ir::verify(*copy).with_context(pass);
  };
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(*copy));
  HEKLA_RETURN_IF_ERROR(check("after inline_calls"));
  HEKLA_RETURN_IF_ERROR(passes::expand(*copy, options.lapack));
  HEKLA_RETURN_IF_ERROR(passes::expand_rng(*copy));
  HEKLA_RETURN_IF_ERROR(check("after expand"));
  passes::simplify(*copy);
  HEKLA_RETURN_IF_ERROR(check("after simplify"));
  passes::clean_up(*copy);
  HEKLA_RETURN_IF_ERROR(check("after clean_up"));
  passes::rewrite_static_windows(*copy);
  HEKLA_RETURN_IF_ERROR(check("after rewrite_static_windows"));
  passes::clean_up(*copy);
  HEKLA_RETURN_IF_ERROR(check("after clean_up"));
  if (options.plan.contractions) {
    passes::pad_convolutions(*copy);
    HEKLA_RETURN_IF_ERROR(check("after pad_convolutions"));
    passes::widen_contractions(*copy);
    HEKLA_RETURN_IF_ERROR(check("after widen_contractions"));
  }
  return plan::make_plan(*copy, options.plan);
}

}  // namespace

plan::PlanOptions drawn_plan_options(const CompileOptions& options) {
  plan::PlanOptions drawn = options.plan;
  if (options.schedule_seed == 0 || !drawn.fuse) return drawn;
  // Neighbouring seeds, which a loop over them gives, in all their combinations.
  std::mt19937_64 random(options.schedule_seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  drawn.contractions = drawn.contractions && below(3) > 0;
  drawn.scatters_in_order = below(2) == 0;
  drawn.merge_reductions = below(2) == 0;
  // Some kernels become several.
  const size_t most_instructions[] = {200, 1000, drawn.max_instructions};
  drawn.max_instructions = most_instructions[below(3)];
  // A kernel for each so many updates.
  const int64_t few = drawn.small_limits ? 7 : 10'000;
  if (below(2) == 0) {
    drawn.most_updates_at_once =
        drawn.most_updates_at_once == 0 ? few : std::min(few, drawn.most_updates_at_once);
  }
  if (drawn.stored_transposes == plan::StoredTransposes::kWherePays && below(2) == 0) {
    drawn.stored_transposes =
        below(2) == 0 ? plan::StoredTransposes::kAll : plan::StoredTransposes::kNone;
  }
  if (drawn.row_groups == plan::RowGroups::kWherePays && below(2) == 0) {
    drawn.row_groups = below(2) == 0 ? plan::RowGroups::kAll : plan::RowGroups::kNone;
  }
  return drawn;
}

Result<std::shared_ptr<const plan::LaunchPlan>> compile_program(
    std::shared_ptr<const ir::Module> module, const CompileOptions& options) {
  Result<plan::LaunchPlan> plan = plan_kernels(*module, options);
  if (!plan.ok() && plan.status().code() == StatusCode::kUnimplemented) {
    plan = plan::make_host_plan(module, plan.status().message());
  }
  if (!plan.ok()) return plan.status();
  return std::make_shared<const plan::LaunchPlan>(std::move(*plan));
}

}  // namespace hekla
