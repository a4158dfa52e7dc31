// SPDX-License-Identifier: Apache-2.0
#include "tools/run/compare_by_op.h"

#include <gtest/gtest.h>

#include "runtime/client/open.h"

namespace hekla::tools {
namespace {

constexpr const char* kProgram = R"(
func.func @main(%x: tensor<64xf32>) -> tensor<f32> {
  %two = stablehlo.constant dense<2.0> : tensor<64xf32>
  %y = stablehlo.multiply %x, %two : tensor<64xf32>
  %e = stablehlo.exponential %y : tensor<64xf32>
  %f = stablehlo.floor %e : tensor<64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%f init: %zero) applies stablehlo.add across dimensions = [0]
       : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}
)";

std::vector<HostArray> inputs() {
  HostArray x(DType::kF32, {64});
  for (int i = 0; i < 64; ++i) x.mutable_as<float>()[i] = 0.013F * static_cast<float>(i);
  return {x};
}

TEST(CompareByOp, EveryOperationOfTheCpuDeviceIsRight) {
  const auto cpu = runtime::open_client("cpu");
  const auto reference = runtime::open_client("reference");
  ASSERT_TRUE(cpu.ok() && reference.ok());
  const auto found =
      compare_by_op(kProgram, inputs(), *cpu, *reference, std::nullopt, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->operations, 6);
  EXPECT_EQ(found->difference, "");
}

// The exponential is the only operation that rounds otherwise than the evaluator.
TEST(CompareByOp, NamesTheFirstOperationThatDiffers) {
  const auto cpu = runtime::open_client("cpu");
  const auto reference = runtime::open_client("reference");
  ASSERT_TRUE(cpu.ok() && reference.ok());
  const auto found = compare_by_op(kProgram, inputs(), *cpu, *reference, 0, 0);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->difference.find("stablehlo.exponential (operation 2 of 6"), 0U)
      << found->difference;
  EXPECT_NE(found->difference.find("element ["), std::string::npos) << found->difference;
  EXPECT_NE(found->difference.find("tolerance 0 + 0"), std::string::npos) << found->difference;
}

TEST(CompareByOp, SaysWhatIsMissing) {
  const auto reference = runtime::open_client("reference");
  ASSERT_TRUE(reference.ok());
  const auto found =
      compare_by_op(kProgram, {}, *reference, *reference, std::nullopt, std::nullopt);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find("takes 1 arguments, 0 are given"), std::string::npos);
}

}  // namespace
}  // namespace hekla::tools
