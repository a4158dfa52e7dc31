// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/step_details.h"

#include <gtest/gtest.h>

#include "backends/compiler/plan/pack.h"
#include "backends/compiler/plan/planner.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::plan {
namespace {

constexpr const char* kProgram = R"(
func.func @main(%x: tensor<64x32xf32>, %y: tensor<32x128xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.exponential %x : tensor<64x32xf32> loc("jit(f)/exp"("model.py":3:7))
  %1 = stablehlo.dot_general %0, %y, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32x128xf32>) -> tensor<64x128xf32> loc("jit(f)/dot_general"("model.py":5:9))
  return %1 : tensor<64x128xf32>
})";

const TraceStat* find(const TraceDetail& detail, std::string_view name) {
  for (const TraceStat& stat : detail.stats) {
    if (stat.name == name) return &stat;
  }
  return nullptr;
}

std::string text(const TraceDetail& detail, std::string_view name) {
  const TraceStat* stat = find(detail, name);
  return stat == nullptr ? "" : stat->text;
}

int64_t number(const TraceDetail& detail, std::string_view name) {
  const TraceStat* stat = find(detail, name);
  return stat == nullptr ? -1 : stat->number;
}

LaunchPlan planned() {
  auto module = stablehlo::read_program(kProgram);
  if (!module.ok()) die_of_bad_result(module.status());
  DeviceTraits traits;
  traits.has_contractions = true;
  PlanOptions options;
  options.row_groups = RowGroups::kNone;
  auto plan = make_plan(**module, options, traits);
  if (!plan.ok()) die_of_bad_result(plan.status());
  return *std::move(plan);
}

void expect_details(const LaunchPlan& plan) {
  StepDetails details;
  ASSERT_EQ(plan.steps.size(), 2U) << to_string(plan);
  const TraceDetailRef exp = details.of(plan.steps[0], plan);
  EXPECT_EQ(text(*exp, "tf_op"), "jit(f)/exp");
  EXPECT_EQ(text(*exp, "source"), "model.py:3:7");
  EXPECT_EQ(number(*exp, "bytes_accessed"), 2 * 64 * 32 * 4);
  EXPECT_EQ(number(*exp, "flops"), -1);
  EXPECT_EQ(details.of(plan.steps[0], plan), exp);
  const TraceDetailRef dot = details.of(plan.steps[1], plan);
  EXPECT_EQ(text(*dot, "tf_op"), "jit(f)/dot_general");
  EXPECT_EQ(number(*dot, "flops"), 2 * 64 * 32 * 128);
}

TEST(StepDetails, SayWhatTheProgramSays) { expect_details(planned()); }

TEST(StepDetails, SurviveAPlanOnDisk) {
  const auto bytes = pack(planned());
  ASSERT_TRUE(bytes.has_value());
  const Result<LaunchPlan> plan = unpack(*bytes);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  expect_details(*plan);
}

}  // namespace
}  // namespace hekla::plan
