// SPDX-License-Identifier: Apache-2.0
// Algorithms of contractions from the program and from the client's option to the plan.
#include <gtest/gtest.h>

#include <string>

#include "backends/compiler/compile.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::testing {
namespace {

// Two axes of 64 and one of 48: `words` follow the operands.
std::string product(const std::string& type, const std::string& words) {
  const std::string x = "tensor<64x48x" + type + ">", out = "tensor<64x64x" + type + ">";
  return "func.func @main(%x: " + x + ", %y: " + x + ") -> " + out +
         " {\n  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1]" + words + " : (" +
         x + ", " + x + ") -> " + out + "\n  return %r : " + out + "\n}\n";
}

std::string named(const std::string& type, int products) {
  return ", algorithm = <lhs_precision_type = " + type + ", rhs_precision_type = " + type +
         ", accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
         "num_primitive_operations = " +
         std::to_string(products) + ", allow_imprecise_accumulation = false>";
}

const char* const kConvolutionText =
    "func.func @main(%x: tensor<2x16x16x8xf32>, %k: tensor<3x3x8x16xf32>) -> "
    "tensor<2x14x14x16xf32> {\n  %r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, "
    "1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : "
    "i64} : (tensor<2x16x16x8xf32>, tensor<3x3x8x16xf32>) -> tensor<2x14x14x16xf32>\n  return %r : "
    "tensor<2x14x14x16xf32>\n}\n";

const char* const kCholeskyText =
    "func.func @main(%x: tensor<96x96xf32>) -> tensor<96x96xf32> {\n  %r = stablehlo.cholesky %x, "
    "lower = true : tensor<96x96xf32>\n  return %r : tensor<96x96xf32>\n}\n";

std::string plan_text(const std::string& text, bool has_contractions,
                      const std::string& f32_algorithm = "") {
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().message() << text;
  if (!module.ok()) return "";
  CompilerOptions options;
  options.verify_passes = true;
  options.f32_algorithm = f32_algorithm;
  plan::DeviceTraits traits;
  traits.has_contractions = has_contractions;
  const auto plan =
      compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), options, traits);
  if (!plan.ok()) return plan.status().message();
  return plan::to_string(**plan) + plan::kernels_string(**plan);
}

TEST(Algorithms, TheClientsOptionIsAsIfTheProgramNamedIt) {
  for (const bool has_contractions : {false, true}) {
    const std::string exact = plan_text(product("f32", ""), has_contractions);
    EXPECT_EQ(plan_text(product("f32", ""), has_contractions, "f32_f32_f32"), exact);
    const std::string tf32 = plan_text(product("f32", named("tf32", 1)), has_contractions);
    EXPECT_EQ(plan_text(product("f32", ""), has_contractions, "tf32_tf32_f32"), tf32);
    EXPECT_NE(tf32, exact);
    const std::string three = plan_text(product("f32", named("bf16", 3)), has_contractions);
    EXPECT_EQ(plan_text(product("f32", ""), has_contractions, "bf16_bf16_f32_x3"), three);
    // Who says how precise it is to be is not overruled.
    const std::string highest = product("f32", ", precision = [HIGHEST, HIGHEST]");
    EXPECT_EQ(plan_text(highest, has_contractions, "bf16_bf16_f32"),
              plan_text(highest, has_contractions));
  }
}

TEST(Algorithms, ReachConvolutionsAndNoFactorisation) {
  EXPECT_NE(plan_text(kConvolutionText, true, "bf16_bf16_f32").find("bf16"), std::string::npos);
  EXPECT_EQ(plan_text(kCholeskyText, true, "bf16_bf16_f32"), plan_text(kCholeskyText, true));
}

TEST(Algorithms, NoneOfThemNeedsTheHost) {
  for (const std::string type : {"f8E4M3FN", "f16", "bf16", "tf32", "f32"}) {
    for (const std::string operands : {"f64", "f32", "bf16", "f8E5M2"}) {
      for (const bool has_contractions : {false, true}) {
        const std::string plan = plan_text(product(operands, named(type, 1)), has_contractions);
        EXPECT_EQ(plan.find("host"), std::string::npos) << plan;
      }
    }
  }
}

TEST(Algorithms, WhatCannotBeDoneIsSaid) {
  EXPECT_NE(plan_text(product("i32", named("bf16", 1)), true)
                .find("the algorithm bf16_bf16_f32 is for floats"),
            std::string::npos)
      << plan_text(product("i32", named("bf16", 1)), true);
  EXPECT_EQ(plan_text(product("f32", ""), true, "bf16"), "there is no algorithm bf16");
}

}  // namespace
}  // namespace hekla::testing
