// SPDX-License-Identifier: Apache-2.0
// Which contractions a plan gives to matrix units, and what else the decision depends on: nothing.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::testing {
namespace {

using kernel::Contraction;

// A product of [rows, depth] and [depth, columns], with what follows it.
std::string program(const std::string& type, const std::string& sums, int rows, int columns,
                    int depth, const std::string& rest = "", const std::string& result = "%r",
                    const std::string& result_type = "", const std::string& words = "") {
  const auto tensor = [](int a, int b, const std::string& of) {
    return "tensor<" + std::to_string(a) + "x" + std::to_string(b) + "x" + of + ">";
  };
  const std::string x = tensor(rows, depth, type), y = tensor(depth, columns, type);
  const std::string out = tensor(rows, columns, sums);
  const std::string last = result_type.empty() ? out : result_type;
  return "func.func @main(%x: " + x + ", %y: " + y + ") -> " + last +
         " {\n  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]" + words + " : (" +
         x + ", " + y + ") -> " + out + "\n" + rest + "  return " + result + " : " + last + "\n}\n";
}

plan::LaunchPlan plan_of(const std::string& text, const CompilerOptions& options = {}) {
  auto module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  CompilerOptions checked = options;
  checked.verify_passes = true;
  plan::DeviceTraits traits;
  traits.has_row_groups = false;
  traits.matrix_types = {DType::kBF16, DType::kI8};
  traits.piece_types = {DType::kBF16};
  const auto plan =
      compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), checked, traits);
  if (!plan.ok()) die_of_bad_result(plan.status());
  return **plan;
}

TEST(MatrixUnits, TakeLargeProductsOfTheirTypes) {
  EXPECT_EQ(plan_of(program("bf16", "f32", 128, 64, 256)).contractions.size(), 1u);
  EXPECT_EQ(plan_of(program("i8", "i32", 128, 64, 256)).contractions.size(), 1u);
  // No units for the type, or for the sums; too small in one direction or in all.
  EXPECT_EQ(plan_of(program("f16", "f32", 128, 64, 256)).contractions.size(), 0u);
  EXPECT_EQ(plan_of(program("f32", "f32", 128, 64, 256)).contractions.size(), 0u);
  EXPECT_EQ(plan_of(program("i8", "i8", 128, 64, 256)).contractions.size(), 0u);
  EXPECT_EQ(plan_of(program("bf16", "f32", 8, 1024, 1024)).contractions.size(), 0u);
  EXPECT_EQ(plan_of(program("bf16", "f32", 16, 16, 64)).contractions.size(), 0u);
}

TEST(MatrixUnits, GiveResultsOfTheOperandsTypeByThemselves) {
  const plan::LaunchPlan plan = plan_of(program("bf16", "bf16", 128, 64, 256));
  ASSERT_EQ(plan.contractions.size(), 1u);
  EXPECT_EQ(plan.contractions[0].out_dtype, DType::kBF16);
  EXPECT_EQ(plan.kernels.size(), 0u);
  // What others read too stays in f32.
  const plan::LaunchPlan both =
      plan_of(program("bf16", "f32", 64, 64, 256,
                      "  %n = stablehlo.convert %r : (tensor<64x64xf32>) -> tensor<64x64xbf16>\n"
                      "  %w = stablehlo.convert %n : (tensor<64x64xbf16>) -> tensor<64x64xf32>\n"
                      "  %s = stablehlo.subtract %r, %w : tensor<64x64xf32>\n",
                      "%s"));
  ASSERT_EQ(both.contractions.size(), 1u);
  EXPECT_EQ(both.contractions[0].out_dtype, DType::kF32);
}

TEST(MatrixUnits, RoundAndMoveTheResultAtOnce) {
  const plan::LaunchPlan plan =
      plan_of(program("bf16", "bf16", 128, 64, 256,
                      "  %t = stablehlo.transpose %r, dims = [1, 0] : (tensor<128x64xbf16>) -> "
                      "tensor<64x128xbf16>\n",
                      "%t", "tensor<64x128xbf16>"));
  ASSERT_EQ(plan.contractions.size(), 1u);
  EXPECT_EQ(plan.kernels.size(), 0u);
  const Contraction& c = plan.contractions[0];
  EXPECT_EQ(c.rows[0].out, 1);
  EXPECT_EQ(c.columns[0].out, 128);
}

// The units' sums have other bits than a kernel's: so nothing but operation and device decides.
TEST(MatrixUnits, TakeTheSameProductsHoweverElseThePlanIsMade) {
  const std::string text = program("bf16", "bf16", 128, 64, 256);
  CompilerOptions unfused;
  unfused.plan.fuse = false;
  EXPECT_EQ(plan_of(text, unfused).contractions.size(), 1u);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    CompilerOptions drawn;
    drawn.schedule_seed = seed;
    EXPECT_EQ(plan_of(text, drawn).contractions.size(), 1u) << seed;
  }
}

// Products of f32 go by pieces where the program allows it and it pays, or an option says so.
TEST(MatrixUnits, TakeProductsOfF32InPiecesWhereTheProgramAllowsIt) {
  const auto products = [](const std::string& words, plan::MatrixPieces pieces,
                           const std::string& algorithm = "", bool fuse = true) {
    CompilerOptions options;
    options.plan.matrix_pieces = pieces;
    options.plan.fuse = fuse;
    options.f32_algorithm = algorithm;
    const plan::LaunchPlan plan =
        plan_of(program("f32", "f32", 128, 64, 256, "", "%r", "", words), options);
    return plan.contractions.empty() ? 1 : plan.contractions[0].pieces.products;
  };
  using plan::MatrixPieces;
  const std::string high = ", precision = [HIGH, HIGH]";
  EXPECT_EQ(products("", MatrixPieces::kAlways), 1);
  EXPECT_EQ(products(", precision = [HIGHEST, HIGHEST]", MatrixPieces::kAlways), 1);
  EXPECT_EQ(products(high, MatrixPieces::kWherePays), 3);
  EXPECT_EQ(products(high, MatrixPieces::kWherePays, "", false), 3);
  EXPECT_EQ(products(high, MatrixPieces::kNone), 1);
  EXPECT_EQ(products(high, MatrixPieces::kF16), 1) << "the device has no pieces of f16";
  EXPECT_EQ(products("", MatrixPieces::kWherePays, "bf16_bf16_f32_x3"), 3);
  EXPECT_EQ(products("", MatrixPieces::kWherePays, "tf32_tf32_f32"), 4);
  EXPECT_EQ(products("", MatrixPieces::kWherePays, "bf16_bf16_f32_x6"), 1);
  EXPECT_EQ(products("", MatrixPieces::kAlways, "bf16_bf16_f32_x6"), 6);
  EXPECT_EQ(products("", MatrixPieces::kAlways, "tf32_tf32_f32_x3"), 6);
  EXPECT_EQ(products("", MatrixPieces::kAlways, "bf16_bf16_f32_x9"), 9);
}

TEST(MatrixUnits, AreDrawnForSmallProductsByAnOption) {
  CompilerOptions small;
  small.plan.small_limits = true;
  EXPECT_EQ(plan_of(program("bf16", "bf16", 3, 2, 5), small).contractions.size(), 1u);
}

}  // namespace
}  // namespace hekla::testing
