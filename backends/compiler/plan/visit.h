// SPDX-License-Identifier: Apache-2.0
// Visits of steps, of the lists of steps inside them and of the slices that they name; all that
// passes over a plan and back ends know of types of steps that they do not look for.
//
// A type of step says here once what it names and what it holds: `slices_of` and `lists_of`. Steps
// are visited as const or not, as they are given. Pure.
#pragma once

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

// What a step does with a slice.
struct Use {
  bool is_read = false;
  bool is_written = false;
  int64_t bytes = 0;  // that the slice must have
};

template <typename T, typename What>
concept Is = std::same_as<std::remove_const_t<T>, What>;

// ---- of each type of step: the slices that it names itself

void slices_of(Is<KernelStep> auto& step, const LaunchPlan& plan, const auto& visit) {
  const auto& operands = plan.kernels[static_cast<size_t>(step.kernel)].operands;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    visit(step.operands[i], Use{operands[i].is_read, operands[i].is_written, operands[i].bytes});
  }
}

void slices_of(Is<ContractionStep> auto& step, const LaunchPlan& plan, const auto& visit) {
  const kernel::Contraction& c = plan.contractions[static_cast<size_t>(step.contraction)];
  visit(step.lhs, Use{true, false, c.lhs_elements * dtype_bytes(c.lhs_dtype)});
  visit(step.rhs, Use{true, false, c.rhs_elements * dtype_bytes(c.rhs_dtype)});
  visit(step.out, Use{false, true, c.out_elements * dtype_bytes(c.out_dtype)});
}

void slices_of(Is<TransformStep> auto& step, const LaunchPlan&, const auto& visit) {
  visit(step.from, Use{true, false, kernel::from_bytes(step.transform)});
  visit(step.roots, Use{true, false, kernel::root_bytes(step.transform)});
  visit(step.to, Use{false, true, kernel::to_bytes(step.transform)});
}

void slices_of(Is<CopyStep> auto& step, const LaunchPlan&, const auto& visit) {
  visit(step.from, Use{true, false, step.to.bytes});
  visit(step.to, Use{false, true, step.from.bytes});
}

void slices_of(Is<HostStep> auto& step, const LaunchPlan&, const auto& visit) {
  for (auto& slice : step.inputs) visit(slice, Use{true, false, slice.bytes});
  for (auto& slice : step.outputs) visit(slice, Use{false, true, slice.bytes});
}

void slices_of(Is<StartStep> auto& step, const LaunchPlan&, const auto& visit) {
  for (auto& slice : step.inputs) visit(slice, Use{true, false, slice.bytes});
  for (auto& slice : step.outputs) visit(slice, Use{false, true, slice.bytes});
}

void slices_of(Is<DoneStep> auto& step, const LaunchPlan&, const auto& visit) {
  for (auto& slice : step.inputs) visit(slice, Use{true, false, slice.bytes});
  for (auto& slice : step.outputs) visit(slice, Use{false, true, slice.bytes});
}

void slices_of(Is<RepeatStep> auto&, const LaunchPlan&, const auto&) {}

void slices_of(Is<WhileStep> auto& step, const LaunchPlan&, const auto& visit) {
  visit(step.predicate, Use{true, false, 1});
}

void slices_of(Is<BranchStep> auto& step, const LaunchPlan&, const auto& visit) {
  visit(step.selector, Use{true, false, step.selector.bytes});
}

void slices_of(Is<RowsStep> auto& step, const LaunchPlan&, const auto& visit) {
  for (auto& slice : step.scratch) visit(slice, Use{false, true, slice.bytes});
}

// ---- and the lists of steps that it holds, in the order in which they run; most hold none

void lists_of(auto&, const auto&) {}

void lists_of(Is<RepeatStep> auto& step, const auto& visit) { visit(step.body); }

void lists_of(Is<WhileStep> auto& step, const auto& visit) {
  visit(step.condition);
  visit(step.body);
}

void lists_of(Is<BranchStep> auto& step, const auto& visit) {
  for (auto& branch : step.branches) visit(branch);
}

void lists_of(Is<RowsStep> auto& step, const auto& visit) { visit(step.steps); }

// ---- for those who visit

// Calls visit(Steps&) for each list inside of the step.
void for_each_list(Is<Step> auto& step, const auto& visit) {
  std::visit([&](auto& what) { lists_of(what, visit); }, step.what);
}

// Calls visit(Step&) for every step, outer ones before those inside. A visitor that returns false
// is not shown what the step holds.
void for_each_step(Is<Steps> auto& steps, const auto& visit) {
  for (auto& step : steps) {
    bool enters = true;
    if constexpr (std::is_same_v<decltype(visit(step)), bool>) {
      enters = visit(step);
    } else {
      visit(step);
    }
    if (enters) for_each_list(step, [&](auto& inner) { for_each_step(inner, visit); });
  }
}

// Calls visit(Slice&, Use) for each slice that the step itself names; a RowsStep also names what
// its steps do: it is one step to all that asks what happens before what.
void for_each_slice(Is<Step> auto& step, const LaunchPlan& plan, const auto& visit) {
  std::visit([&](auto& what) { slices_of(what, plan, visit); }, step.what);
  if (auto* rows = std::get_if<RowsStep>(&step.what)) {
    for (auto& inner : rows->steps) for_each_slice(inner, plan, visit);
  }
}

// The same for the step and all steps inside of it, or for all of `steps`.
void for_each_slice_within(Is<Steps> auto& steps, const LaunchPlan& plan, const auto& visit);

void for_each_slice_within(Is<Step> auto& step, const LaunchPlan& plan, const auto& visit) {
  for_each_slice(step, plan, visit);
  if (std::holds_alternative<RowsStep>(step.what)) return;
  for_each_list(step, [&](auto& inner) { for_each_slice_within(inner, plan, visit); });
}

void for_each_slice_within(Is<Steps> auto& steps, const LaunchPlan& plan, const auto& visit) {
  for (auto& step : steps) for_each_slice_within(step, plan, visit);
}

// Steps, those inside of others included.
inline int64_t count_steps(const Steps& steps) {
  int64_t count = 0;
  for_each_step(steps, [&](const Step&) { ++count; });
  return count;
}

// Whether the step, or one inside of it, is a What.
template <typename What>
bool holds(const Step& step) {
  bool found = std::holds_alternative<What>(step.what);
  for_each_list(step, [&](const Steps& steps) {
    found = found || std::any_of(steps.begin(), steps.end(), holds<What>);
  });
  return found;
}

// Whether the host does the step itself, whatever the device: what the evaluator runs, and the ends
// of collectives.
inline bool is_on_host(const Step& step) {
  return std::holds_alternative<HostStep>(step.what) ||
         std::holds_alternative<StartStep>(step.what) ||
         std::holds_alternative<DoneStep>(step.what);
}

// Before memory is assigned a buffer is a space and an index.
using Buffer = std::pair<Slice::Space, int32_t>;
inline Buffer buffer_of(const Slice& slice) { return {slice.space, slice.index}; }
struct BufferHash {
  size_t operator()(const Buffer& b) const {
    return static_cast<size_t>(b.second) * 8 + static_cast<size_t>(b.first);
  }
};

}  // namespace hekla::plan
