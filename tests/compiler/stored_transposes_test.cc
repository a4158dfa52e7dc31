// SPDX-License-Identifier: Apache-2.0
// Transpositions that several kernels read: which are stored, and that no bit depends on it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/compiler/compile.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/plan_interpreter.h"
#include "tests/compiler/row_programs.h"

namespace hekla::testing {
namespace {

using plan::StoredTransposes;

// Sums over the last dimension of twice the transposed argument, and its differences to them.
std::string two_readers(const std::string& from, const std::string& to, const std::string& sums,
                        const std::string& permutation, int last) {
  std::string kept;
  for (int d = 0; d < last; ++d) kept += fmt::format("{}{}", d == 0 ? "" : ", ", d);
  return fmt::format(
      R"(module {{
   func.func public @main(%x: tensor<{0}xf32>) -> (tensor<{2}xf32>, tensor<{1}xf32>) {{
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %a = stablehlo.add %x, %x : tensor<{0}xf32>
    %t = stablehlo.transpose %a, dims = [{3}] : (tensor<{0}xf32>) -> tensor<{1}xf32>
    %s = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [{4}] : (tensor<{1}xf32>, tensor<f32>) -> tensor<{2}xf32>
    %b = stablehlo.broadcast_in_dim %s, dims = [{5}] : (tensor<{2}xf32>) -> tensor<{1}xf32>
    %d = stablehlo.subtract %t, %b : tensor<{1}xf32>
    return %s, %d : tensor<{2}xf32>, tensor<{1}xf32>
  }} }})",
      from, to, sums, permutation, last, kept);
}

std::shared_ptr<const plan::LaunchPlan> plan_of(const std::string& text, StoredTransposes which) {
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().message() << text;
  if (!module.ok()) return nullptr;
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.row_groups = plan::RowGroups::kNone;
  options.plan.stored_transposes = which;
  auto plan = compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : nullptr;
}

size_t steps(const std::string& text, StoredTransposes which) {
  const auto plan = plan_of(text, which);
  return plan == nullptr ? 0 : plan->steps.size();
}

TEST(StoredTransposes, LargeOnesThatTurnLinesAreStored) {
  const auto check = [](const std::string& text, bool transposes, bool is_large) {
    const size_t none = steps(text, StoredTransposes::kNone);
    EXPECT_EQ(steps(text, StoredTransposes::kAll), none + (transposes ? 1 : 0)) << text;
    EXPECT_EQ(steps(text, StoredTransposes::kWherePays), none + (transposes && is_large ? 1 : 0))
        << text;
  };
  check(two_readers("256x255", "255x256", "255", "1, 0", 1), true, false);
  check(two_readers("256x256", "256x256", "256", "1, 0", 1), true, true);
  check(two_readers("4x7x9", "7x4x9", "7x4", "1, 0, 2", 2), false, false);
  check(two_readers("300x400x9", "400x300x9", "400x300", "1, 0, 2", 2), false, true);
  check(two_readers("300x1x400", "1x300x400", "1x300", "1, 0, 2", 2), false, true);
  check(two_readers("3x400x300", "400x300x3", "400x300", "1, 2, 0", 2), true, true);
}

TEST(StoredTransposes, NoBitDependsOnThem) {
  for (const std::string& text : {two_readers("20x17", "17x20", "17", "1, 0", 1),
                                  two_readers("3x4x5", "4x5x3", "4x5", "1, 2, 0", 2),
                                  two_readers("1x65", "65x1", "65", "1, 0", 1)}) {
    const auto plain = plan_of(text, StoredTransposes::kNone);
    const auto stored = plan_of(text, StoredTransposes::kAll);
    ASSERT_TRUE(plain != nullptr && stored != nullptr);
    const std::vector<HostArray> inputs = row_inputs(text);
    const auto want = run_plan(*plain, inputs);
    const auto got = run_plan(*stored, inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_TRUE(*want == *got) << text;
  }
}

}  // namespace
}  // namespace hekla::testing
