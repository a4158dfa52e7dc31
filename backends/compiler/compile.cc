// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/compile.h"

#include <algorithm>
#include <random>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/lower/scores.h"
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/plan/plan_options.h"
#include "backends/compiler/plan/planner.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/verify.h"

namespace hekla {
namespace {

Result<plan::LaunchPlan> plan_kernels(const ir::Module& module, const CompilerOptions& options,
                                      const plan::DeviceTraits& traits) {
  const std::unique_ptr<ir::Module> copy = ir::clone_module(module);
  const auto check = [&](std::string_view pass) {
    if (!options.verify_passes) return ok_status();
    return ir::verify(*copy).with_context(pass);
  };
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(*copy));
  if (!options.f32_algorithm.empty()) {
    const std::optional<ir::DotAlgorithm> named = lower::f32_algorithm(options.f32_algorithm);
    if (!named) return invalid_argument("there is no algorithm {}", options.f32_algorithm);
    lower::name_algorithms(*copy, *named);
  }
  HEKLA_RETURN_IF_ERROR(check("after inline_calls"));
  passes::rewrite_asynchronous(*copy);
  HEKLA_RETURN_IF_ERROR(check("after rewrite_asynchronous"));
  HEKLA_RETURN_IF_ERROR(passes::expand(*copy, traits.has_lapack));
  HEKLA_RETURN_IF_ERROR(passes::expand_batch_norms(*copy));
  HEKLA_RETURN_IF_ERROR(passes::expand_rng(*copy));
  HEKLA_RETURN_IF_ERROR(check("after expand"));
  passes::simplify(*copy);
  HEKLA_RETURN_IF_ERROR(check("after simplify"));
  passes::clean_up(*copy);
  HEKLA_RETURN_IF_ERROR(check("after clean_up"));
  const passes::WindowLimits windows = plan::window_limits(options.plan, traits);
  HEKLA_RETURN_IF_ERROR(passes::mask_updates(*copy, windows));
  HEKLA_RETURN_IF_ERROR(check("after mask_updates"));
  HEKLA_RETURN_IF_ERROR(passes::add_in_place(*copy, windows));
  HEKLA_RETURN_IF_ERROR(check("after add_in_place"));
  passes::rewrite_static_windows(*copy, windows);
  HEKLA_RETURN_IF_ERROR(check("after rewrite_static_windows"));
  HEKLA_RETURN_IF_ERROR(passes::mask_updates(*copy, windows));  // of the windows that there are now
  HEKLA_RETURN_IF_ERROR(check("after mask_updates"));
  passes::clean_up(*copy);
  HEKLA_RETURN_IF_ERROR(check("after clean_up"));
  passes::read_before_updates(*copy, windows);
  HEKLA_RETURN_IF_ERROR(check("after read_before_updates"));
  if (options.plan.fuse && traits.has_contractions) {
    passes::pad_convolutions(*copy);
    HEKLA_RETURN_IF_ERROR(check("after pad_convolutions"));
  }
  lower::apply_algorithms(*copy);
  HEKLA_RETURN_IF_ERROR(check("after apply_algorithms"));
  const lower::LowerOptions lowering = plan::lower_options(options.plan, traits);
  const bool has_teams = lowering.team_points > 1;
  if (has_teams) {
    passes::ThinProductLimits limits;
    if (lowering.small_limits) {
      limits = {.most_columns = 3,
                .least_line = 3,
                .least_elements = 8,
                .least_elements_of_several = 16,
                .most_parts = 3,
                .least_part = 2,
                .most_sums = 64};
    }
    const auto whole = lower::attention_products(*copy, lowering);
    HEKLA_RETURN_IF_ERROR(passes::sum_thin_products(
        *copy, limits, [&](const ir::Operation& op) { return whole.contains(&op); }));
    HEKLA_RETURN_IF_ERROR(check("after sum_thin_products"));
    passes::clean_up(*copy);
  }
  if ((options.plan.fuse && traits.has_contractions) || !traits.matrix_types.empty()) {
    passes::widen_contractions(
        *copy,
        [&](const ir::Operation& op) {
          return traits.has_contractions || lower::why_no_contraction(op, lowering).empty();
        },
        // It rounds what it stores itself: sums in f32 would be in memory beside the result.
        [&](const ir::Operation& op) {
          kernel::Refusal why;
          const auto found = lower::find_attention(op, lowering, why);
          return found && found->matrix_tile;
        });
    HEKLA_RETURN_IF_ERROR(check("after widen_contractions"));
  }
  if (has_teams) {
    passes::SplitLimits limits;
    if (lowering.small_limits) {
      limits = {.most_points = 256,
                .long_depth = 4,
                .least_depth = 2,
                .few_points = 4,
                .most_few_points = 16,
                .least_depth_of_few = 3,
                .long_depth_of_few = 20};
    }
    const auto whole = lower::attention_products(*copy, lowering);
    HEKLA_RETURN_IF_ERROR(passes::split_contractions(
        *copy, limits, [&](const ir::Operation& op) { return whole.contains(&op); }));
    HEKLA_RETURN_IF_ERROR(check("after split_contractions"));
    passes::SmallScatterLimits scatters;
    if (lowering.small_limits) scatters = {.least_updates = 3, .most_looked = 400};
    HEKLA_RETURN_IF_ERROR(passes::reduce_small_scatters(*copy, scatters));
    HEKLA_RETURN_IF_ERROR(check("after reduce_small_scatters"));
    passes::clean_up(*copy);
  }
  if (traits.most_of_chunk > 0) {
    constexpr int64_t kSmall = 24;
    lower::bound_chunks(*copy, lowering.small_limits ? kSmall : traits.most_of_chunk);
  }
  passes::WideConcatenateLimits concatenates;
  if (lowering.small_limits) {
    concatenates = {
        .least_operands = 3, .least_run = 2, .least_operands_of_short_runs = 4, .least_work = 0};
  }
  HEKLA_RETURN_IF_ERROR(passes::write_wide_concatenates(*copy, concatenates));
  HEKLA_RETURN_IF_ERROR(check("after write_wide_concatenates"));
  passes::clean_up(*copy);
  return plan::make_plan(*copy, options.plan, traits);
}

// Draws what is right on a device of these traits; contractions stay off where they are.
void draw(CompilerOptions& options, plan::DeviceTraits& traits) {
  if (options.schedule_seed == 0 || !options.plan.fuse) return;
  plan::PlanOptions& drawn = options.plan;
  // Adjacent seeds, which a loop over them gives, in all their combinations.
  std::mt19937_64 random(options.schedule_seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  traits.has_contractions = traits.has_contractions && below(3) > 0;
  traits.scatters_in_order = below(2) == 0;
  traits.merges_reductions = below(2) == 0;
  // Some kernels become several.
  const size_t most_instructions[] = {200, 1000, drawn.max_instructions};
  drawn.max_instructions = most_instructions[below(3)];
  // A kernel for each so many updates of a scatter, and four times as many iterations.
  const int64_t few = drawn.small_limits ? 28 : 40'000;
  if (below(2) == 0) {
    traits.max_loop_iterations =
        traits.max_loop_iterations == 0 ? few : std::min(few, traits.max_loop_iterations);
  }
  if (drawn.stored_transposes == plan::StoredTransposes::kWherePays && below(2) == 0) {
    drawn.stored_transposes =
        below(2) == 0 ? plan::StoredTransposes::kAll : plan::StoredTransposes::kNone;
  }
  if (drawn.row_groups == plan::RowGroups::kWherePays && below(2) == 0) {
    constexpr plan::RowGroups kForms[] = {plan::RowGroups::kAll, plan::RowGroups::kAllLed,
                                          plan::RowGroups::kNone};
    drawn.row_groups = kForms[below(3)];
  }
  if (below(3) == 0) drawn.overlap_collectives = false;
  traits.has_transforms = traits.has_transforms && below(2) == 0;
  if (drawn.arena_limit_bytes == 0 && below(2) == 0) {
    constexpr int64_t kLimits[] = {1, 256, 4096, int64_t{1} << 16};
    drawn.arena_limit_bytes = kLimits[below(4)];
  }
}

}  // namespace

Result<std::shared_ptr<const plan::LaunchPlan>> compile_program(
    std::shared_ptr<const ir::Module> module, const CompilerOptions& options,
    const plan::DeviceTraits& traits) {
  CompilerOptions chosen = options;
  plan::DeviceTraits device = traits;
  draw(chosen, device);
  Result<plan::LaunchPlan> plan = plan_kernels(*module, chosen, device);
  if (!plan.ok() && plan.status().code() == StatusCode::kUnimplemented) {
    plan = plan::make_host_plan(module, plan.status().message());
  }
  if (!plan.ok()) return plan.status();
  return std::make_shared<const plan::LaunchPlan>(std::move(*plan));
}

}  // namespace hekla
