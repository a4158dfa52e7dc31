// SPDX-License-Identifier: Apache-2.0
// Row groups: which steps become one, and that no bit depends on it.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backends/compiler/compile.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/plan_interpreter.h"
#include "tests/compiler/row_programs.h"

namespace hekla::testing {
namespace {

using plan::RowGroups;

std::shared_ptr<const plan::LaunchPlan> plan_of(const std::string& text, RowGroups which) {
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().message() << text;
  if (!module.ok()) return nullptr;
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.row_groups = which;
  auto plan = compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : nullptr;
}

std::vector<const plan::RowsStep*> groups_of(const plan::LaunchPlan& plan) {
  std::vector<const plan::RowsStep*> groups;
  for (const plan::Step& step : plan.steps) {
    if (const auto* rows = std::get_if<plan::RowsStep>(&step.what)) groups.push_back(rows);
  }
  return groups;
}

TEST(RowGroups, ASoftmaxIsOneStepWithItsTemporariesInScratch) {
  for (const int64_t columns : {int64_t{40}, int64_t{1000}}) {
    const auto plan = plan_of(softmax("f32", {6, 30}, columns), RowGroups::kAll);
    ASSERT_NE(plan, nullptr);
    ASSERT_EQ(plan->steps.size(), 1u) << plan::to_string(*plan);
    const auto groups = groups_of(*plan);
    ASSERT_EQ(groups.size(), 1u) << plan::to_string(*plan);
    EXPECT_EQ(groups[0]->rows, 180);
    // All that it keeps between its steps: only the input and the output are outside.
    for (const plan::Step& step : groups[0]->steps) {
      for (const plan::Slice& slice : std::get<plan::KernelStep>(step.what).operands) {
        if (slice.space != plan::Slice::Space::kArena) continue;
        EXPECT_NE(std::find(groups[0]->scratch.begin(), groups[0]->scratch.end(), slice),
                  groups[0]->scratch.end())
            << plan::to_string(*plan);
      }
    }
  }
}

TEST(RowGroups, SmallRowsStayAsTheyAreUnlessAskedFor) {
  const std::string small = softmax("f32", {30}, 40);
  EXPECT_TRUE(groups_of(*plan_of(small, RowGroups::kWherePays)).empty());
  EXPECT_TRUE(groups_of(*plan_of(small, RowGroups::kNone)).empty());
  // What two megabytes of caches hold anyway.
  EXPECT_TRUE(groups_of(*plan_of(softmax("f32", {3000}, 40), RowGroups::kWherePays)).empty());
  EXPECT_EQ(groups_of(*plan_of(softmax("f32", {30000}, 40), RowGroups::kWherePays)).size(), 1u);
}

// What reads other rows than it makes must not run row by row.
TEST(RowGroups, ReadersOfOtherRowsStayOutside) {
  const auto plan = plan_of(other_rows(64, 48), RowGroups::kAll);
  ASSERT_NE(plan, nullptr);
  const auto groups = groups_of(*plan);
  ASSERT_EQ(groups.size(), 1u) << plan::to_string(*plan);
  // The reversed rows are read by a step of its own, after the group.
  EXPECT_TRUE(std::holds_alternative<plan::KernelStep>(plan->steps.back().what))
      << plan::to_string(*plan);
}

TEST(RowGroups, NoBitDependsOnThem) {
  for (const RowProgram& program : row_programs()) {
    SCOPED_TRACE(program.name);
    const auto plain = plan_of(program.text, RowGroups::kNone);
    const auto grouped = plan_of(program.text, RowGroups::kAll);
    ASSERT_TRUE(plain != nullptr && grouped != nullptr);
    if (program.has_groups.has_value()) {
      EXPECT_EQ(!groups_of(*grouped).empty(), *program.has_groups) << plan::to_string(*grouped);
    }
    if (plan_work(*plain) > 2e6) continue;
    const std::vector<HostArray> inputs = row_inputs(program.text);
    const auto want = run_plan(*plain, inputs);
    const auto got = run_plan(*grouped, inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_TRUE(*want == *got);
  }
}

}  // namespace
}  // namespace hekla::testing
