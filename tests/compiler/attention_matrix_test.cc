// SPDX-License-Identifier: Apache-2.0
// Attention whose products matrix units compute: that it gives what the evaluator gives within the
// rounding of its weights, whatever the layout, mask, type and size, and why it is not taken.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/plan_interpreter.h"

namespace hekla::testing {
namespace {

constexpr const char* kBias = R"(
  %b1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<$Tx$Sxf32>) -> tensor<$Hx$Tx$Sxf32>
  %xb = stablehlo.add %b1, %x : tensor<$Hx$Tx$Sxf32>
  %s = stablehlo.tanh %xb : tensor<$Hx$Tx$Sxf32>
)";

// Queries (heads, rows, depth) times keys, weights times values, of `type` each; the result of
// `out`. `k` and `v` name what stands for the keys and values of each head.
std::string attention(const Sizes& n, const std::string& mask, const std::string& type,
                      const std::string& out) {
  std::string text =
      R"(func.func @main(%q: tensor<$Hx$Tx$Dx$t>, %k: tensor<$Hx$Sx$Dx$t>, %v: tensor<$Hx$Sx$Wx$t>$m) -> tensor<$Hx$Tx$Wx$o> {
  %x = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<$Hx$Tx$Dx$t>, tensor<$Hx$Sx$Dx$t>) -> tensor<$Hx$Tx$Sxf32>
)" + mask +
      kSoftmax + R"(
  %n = stablehlo.convert %w : (tensor<$Hx$Tx$Sxf32>) -> tensor<$Hx$Tx$Sx$t>
  %r = stablehlo.dot_general %n, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<$Hx$Tx$Sx$t>, tensor<$Hx$Sx$Wx$t>) -> tensor<$Hx$Tx$Wx$o>
  return %r : tensor<$Hx$Tx$Wx$o>
}
)";
  return replaced(text, {{"$m", mask == kBias ? ", %b: tensor<$Tx$Sxf32>" : ""},
                         {"$H", std::to_string(n.heads)},
                         {"$T", std::to_string(n.queries)},
                         {"$S", std::to_string(n.keys)},
                         {"$D", std::to_string(n.depth)},
                         {"$W", std::to_string(n.width)},
                         {"$t", type},
                         {"$o", out}});
}

constexpr kernel::MatrixUnit kSmall{DType::kF16, 8, 8, 8, 8, 32};  // llvmpipe's
constexpr kernel::MatrixUnit kLarge{DType::kF16, 16, 16, 16, 32, 1 << 20};
constexpr kernel::MatrixUnit kWide{DType::kF16, 8, 16, 16, 16, 1 << 20};  // Intel's
constexpr kernel::MatrixUnit kTall{DType::kF16, 16, 8,
                                   16,          8,  1 << 20};  // rows for two points' ones

plan::DeviceTraits traits_of(const kernel::MatrixUnit& unit) {
  plan::DeviceTraits traits;
  traits.has_row_groups = false;
  traits.team_points = 256;
  traits.team_words = 12 * 1024;
  traits.reduces_by_trees = traits.fuses_attention = true;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    traits.matrix_types.push_back(dtype);
    traits.matrix_units.push_back(unit);
    traits.matrix_units.back().operands = dtype;
  }
  return traits;
}

CompilerOptions by_matrices(bool small_limits = false) {
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.attention = plan::FusedAttention::kMatrix;
  options.plan.small_limits = small_limits;
  return options;
}

plan::LaunchPlan plan_of(const std::string& text, const plan::DeviceTraits& traits,
                         const CompilerOptions& options) {
  auto module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  const auto plan =
      compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), options, traits);
  if (!plan.ok()) die_of_bad_result(plan.status());
  return **plan;
}

// Values lie between -2 and 2: weights are rounded once here and once by the evaluator, at other
// places, and results of narrow types too.
double tolerance_of(const std::string& text) {
  return text.find("bf16") != std::string::npos ? 0.03 : 0.004;
}

void expect_right(const std::string& text, const kernel::MatrixUnit& unit, bool small_limits) {
  SCOPED_TRACE(text);
  auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok()) << module.status().message();
  const std::vector<HostArray> inputs = drawn(**module);
  const DType dtype = (*module)->entry()->type.results()[0].dtype();
  const auto want = reference::evaluate(**module, inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  const plan::LaunchPlan plan = plan_of(text, traits_of(unit), by_matrices(small_limits));
  EXPECT_TRUE(std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const auto& kernel) {
    return kernel.name == "attention_matrix";
  })) << plan::to_string(plan);
  const auto got = run_plan(plan, inputs);
  ASSERT_TRUE(got.ok()) << got.status().message() << "\n" << plan::to_string(plan);
  const std::vector<float> a = floats(got->at(0), dtype), b = floats(want->at(0).bytes(), dtype);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i])) {
      EXPECT_TRUE(std::isnan(a[i])) << i;
    } else {
      ASSERT_NEAR(a[i], b[i], tolerance_of(text)) << i;
    }
  }
}

// Rows, keys, depth and width below, at and above what a block and a matrix have.
TEST(AttentionOnMatrixUnits, IsRightAtEverySize) {
  for (const Sizes& sizes :
       {Sizes{1, 16, 16, 16, 16}, Sizes{2, 15, 15, 7, 9}, Sizes{1, 17, 17, 8, 17},
        Sizes{2, 33, 31, 24, 8}, Sizes{1, 1, 2, 1, 1}, Sizes{3, 5, 40, 9, 33}}) {
    expect_right(attention(sizes, kScaled, "f16", "f32"), kSmall, true);
    expect_right(attention(sizes, kScaled, "bf16", "bf16"), kSmall, false);
  }
  for (const kernel::MatrixUnit& unit : {kLarge, kWide, kTall}) {
    expect_right(attention({1, 70, 67, 20, 33}, kScaled, "bf16", "f32"), unit, false);
    expect_right(attention({1, 65, 63, 32, 32}, kScaled, "f16", "f16"), unit, true);
  }
  // Values of several teams.
  expect_right(attention({1, 20, 70, 16, 136}, kScaled, "f16", "f32"), kLarge, false);
}

TEST(AttentionOnMatrixUnits, IsRightUnderMasks) {
  for (const char* type : {"bf16", "f16"}) {
    expect_right(attention({2, 35, 41, 16, 8}, kCausal, type, "f32"), kSmall, true);
    expect_right(attention({1, 70, 80, 16, 16}, kCausal, type, type), kLarge, false);
    expect_right(attention({2, 19, 30, 3, 4}, kBias, type, "f32"), kSmall, true);
  }
  // With a number in place of -infinity, rows without columns have the mean of all values; with
  // -infinity they are NaN.
  for (const char* direction : {"GT,", "LT,", "NE,"}) {
    const std::string mask = replaced(kCausal, {{"GE,", direction}});
    expect_right(attention({1, 30, 40, 3, 4}, mask, "f16", "f32"), kSmall, true);
    expect_right(attention({1, 30, 40, 3, 4}, replaced(mask, {{"0xFF800000", "-2.38197633E+38"}}),
                           "f16", "f32"),
                 kSmall, true);
  }
}

// (length, heads, width), grouped heads and values on the left, as jax.nn.dot_product_attention has
// them: two heads of keys for four of queries.
TEST(AttentionOnMatrixUnits, TakesLayoutsOfDotProductAttention) {
  const std::string text =
      R"(func.func @main(%q: tensor<9x2x2x$Dx$t>, %k: tensor<17x2x$Dx$t>, %v: tensor<17x2x$Wx$t>) -> tensor<9x2x2x$Wx$t> {
  %x = stablehlo.dot_general %q, %k, batching_dims = [1] x [1], contracting_dims = [3] x [2] : (tensor<9x2x2x$Dx$t>, tensor<17x2x$Dx$t>) -> tensor<2x9x2x17xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %max = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [3] : (tensor<2x9x2x17xf32>, tensor<f32>) -> tensor<2x9x2xf32>
  %max1 = stablehlo.transpose %max, dims = [2, 0, 1] : (tensor<2x9x2xf32>) -> tensor<2x2x9xf32>
  %maxes = stablehlo.broadcast_in_dim %max1, dims = [0, 1, 2] : (tensor<2x2x9xf32>) -> tensor<2x2x9x17xf32>
  %s = stablehlo.transpose %x, dims = [2, 0, 1, 3] : (tensor<2x9x2x17xf32>) -> tensor<2x2x9x17xf32>
  %shifted = stablehlo.subtract %s, %maxes : tensor<2x2x9x17xf32>
  %e = stablehlo.exponential %shifted : tensor<2x2x9x17xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<2x2x9x17xf32>, tensor<f32>) -> tensor<2x2x9xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x2x9xf32>) -> tensor<2x2x9x17xf32>
  %w = stablehlo.divide %e, %sums : tensor<2x2x9x17xf32>
  %n = stablehlo.convert %w : (tensor<2x2x9x17xf32>) -> tensor<2x2x9x17x$t>
  %r = stablehlo.dot_general %v, %n, batching_dims = [1] x [1], contracting_dims = [0] x [3] : (tensor<17x2x$Wx$t>, tensor<2x2x9x17x$t>) -> tensor<2x$Wx2x9x$t>
  %o = stablehlo.transpose %r, dims = [3, 0, 2, 1] : (tensor<2x$Wx2x9x$t>) -> tensor<9x2x2x$Wx$t>
  return %o : tensor<9x2x2x$Wx$t>
}
)";
  for (const char* type : {"bf16", "f16"}) {
    // Words of memory, and element by element.
    for (const char* depth : {"16", "5"}) {
      for (const char* width : {"24", "3"}) {
        expect_right(replaced(text, {{"$D", depth}, {"$W", width}, {"$t", type}}), kSmall, true);
        expect_right(replaced(text, {{"$D", depth}, {"$W", width}, {"$t", type}}), kLarge, false);
      }
    }
  }
}

// Operands that are made where they are used.
TEST(AttentionOnMatrixUnits, ComputesAndMovesItsOperands) {
  const std::string text = attention({2, 17, 19, 16, 8}, kScaled, "f16", "f32");
  const auto with = [&](const std::string& argument, const std::string& type,
                        const std::string& made) {
    std::string changed = replaced(text, {{"%k: tensor<2x19x16xf16>", argument + ": " + type}});
    const size_t at = changed.find("  %x =");
    return changed.insert(at, made);
  };
  expect_right(with("%kt", "tensor<19x2x16xf16>",
                    "  %k = stablehlo.transpose %kt, dims = [1, 0, 2] : (tensor<19x2x16xf16>) -> "
                    "tensor<2x19x16xf16>\n"),
               kSmall, true);
  expect_right(with("%kt", "tensor<2x16x19xf16>",
                    "  %k = stablehlo.transpose %kt, dims = [0, 2, 1] : (tensor<2x16x19xf16>) -> "
                    "tensor<2x19x16xf16>\n"),
               kSmall, true);
  expect_right(with("%k1", "tensor<19x16xf16>",
                    "  %k = stablehlo.broadcast_in_dim %k1, dims = [1, 2] : (tensor<19x16xf16>) "
                    "-> tensor<2x19x16xf16>\n"),
               kSmall, true);
  expect_right(
      with("%kn", "tensor<2x19x16xf16>", "  %k = stablehlo.negate %kn : tensor<2x19x16xf16>\n"),
      kSmall, true);
}

// Blocks that a mask leaves nothing of are not looked at: what is not finite there stays there, and
// so does what fills blocks up.
TEST(AttentionOnMatrixUnits, PassesOverMaskedBlocks) {
  const std::string text = attention({1, 48, 48, 3, 4}, kCausal, "f16", "f32");
  const auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok());
  std::vector<HostArray> inputs = drawn(**module);
  for (int64_t i = 47 * 4; i < 48 * 4; ++i) {
    set_float(inputs[2], i, std::numeric_limits<double>::quiet_NaN());
  }
  const auto got = run_plan(plan_of(text, traits_of(kSmall), by_matrices(true)), inputs);
  ASSERT_TRUE(got.ok()) << got.status().message();
  const std::vector<float> values = floats(got->at(0), DType::kF32);
  // 16 rows and 8 keys a block.
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i >= 32 * 4) << i;
}

TEST(AttentionOnMatrixUnits, KeepsNoScoresInMemory) {
  const plan::LaunchPlan plan = plan_of(attention({2, 256, 256, 64, 64}, kCausal, "bf16", "bf16"),
                                        traits_of(kLarge), by_matrices());
  EXPECT_EQ(plan.kernels.size(), 1u) << plan::to_string(plan);
  EXPECT_EQ(plan.contractions.size(), 0u);
  EXPECT_EQ(plan.arena_bytes(), 0);
}

TEST(AttentionOnMatrixUnits, DoesNotDependOnFusionAndSeeds) {
  const std::string text = attention({2, 35, 41, 16, 8}, kCausal, "bf16", "f32");
  const auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok());
  const std::vector<HostArray> inputs = drawn(**module);
  const auto bits = [&](const CompilerOptions& chosen) {
    const auto got = run_plan(plan_of(text, traits_of(kSmall), chosen), inputs);
    if (!got.ok()) die_of_bad_result(got.status());
    return *got;
  };
  const auto want = bits(by_matrices());
  CompilerOptions other = by_matrices();
  other.plan.fuse = false;
  EXPECT_EQ(bits(other), want);
  other = by_matrices();
  other.schedule_seed = 3;
  EXPECT_EQ(bits(other), want);
}

std::string why_not(const plan::LaunchPlan& plan) {
  for (const plan::Decision& decision : plan.decisions) {
    for (const kernel::Implementation& way : decision.implementations) {
      if (way.name == "attention on matrix units") {
        return way.refusal.empty() ? "taken" : way.refusal;
      }
    }
  }
  return "no attention";
}

TEST(AttentionOnMatrixUnits, SayWhyNot) {
  const auto of = [](const Sizes& sizes, const std::string& type, const CompilerOptions& options,
                     const plan::DeviceTraits& traits) {
    return why_not(plan_of(attention(sizes, kScaled, type, "f32"), traits, options));
  };
  // Refused ones of 256 keys would be cut into parts, of which no softmax is multiplied.
  const Sizes sizes{2, 256, 192, 64, 64};
  CompilerOptions plain, tiles;
  tiles.plan.attention = plan::FusedAttention::kTiles;
  const plan::DeviceTraits traits = traits_of(kLarge);
  EXPECT_EQ(of(sizes, "bf16", by_matrices(), traits), "taken");
  EXPECT_EQ(of(sizes, "bf16", tiles, traits), "another form is asked for");
  EXPECT_EQ(of(sizes, "bf16", plain, traits), "only where hekla_attention=matrix asks for it");
  EXPECT_EQ(of({2, 256, 192, 300, 64}, "bf16", by_matrices(), traits),
            "queries of 300 elements, more than 256");
  EXPECT_EQ(of(sizes, "f32", by_matrices(), traits),
            "no matrix units for products of f32 and f32, f32 and f32");
  plan::DeviceTraits small = traits;
  small.team_words = 600;
  EXPECT_EQ(of(sizes, "bf16", by_matrices(), small),
            "teams have 256 points and 600 words of shared memory");
  CompilerOptions forced = by_matrices();
  forced.plan.attention_tile = {2, 32, 32};
  EXPECT_EQ(of(sizes, "bf16", forced, traits), "taken");
  forced.plan.attention_tile = {3, 24, 32};
  EXPECT_EQ(of(sizes, "bf16", forced, traits),
            "a team of 3 subgroups with 24 keys and 32 values is none of this device");
}

// Every block that can be forced gives the same within rounding.
TEST(AttentionOnMatrixUnits, IsRightWithEveryBlock) {
  const std::string text = attention({1, 70, 67, 20, 40}, kScaled, "f16", "f32");
  const auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok());
  const std::vector<HostArray> inputs = drawn(**module);
  const auto want = reference::evaluate(**module, inputs);
  ASSERT_TRUE(want.ok());
  const std::vector<float> b = floats(want->at(0).bytes(), DType::kF32);
  for (const auto& [subgroups, keys, width] : {std::tuple{1, 16, 16}, std::tuple{4, 64, 48},
                                               std::tuple{2, 32, 32}, std::tuple{8, 16, 64}}) {
    CompilerOptions options = by_matrices();
    options.plan.attention_tile = {subgroups, keys, width};
    const plan::LaunchPlan plan = plan_of(text, traits_of(kLarge), options);
    EXPECT_EQ(why_not(plan), "taken");
    const auto got = run_plan(plan, inputs);
    ASSERT_TRUE(got.ok()) << got.status().message();
    const std::vector<float> a = floats(got->at(0), DType::kF32);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.004) << i;
  }
}

}  // namespace
}  // namespace hekla::testing
