// SPDX-License-Identifier: Apache-2.0
// Attention as one kernel: that it gives what the evaluator gives, whatever the layout, mask, type
// and size, that no scores lie in memory then, and what is no attention and why.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/plan_interpreter.h"

namespace hekla::testing {
namespace {

// (heads, length, width), with `mask` from %x to %s.
std::string heads_first(const Sizes& n, const std::string& mask) {
  return replaced(
      std::string(
          R"(func.func @main(%q: tensor<$Hx$Tx$Dxf32>, %k: tensor<$Hx$Sx$Dxf32>, %v: tensor<$Hx$Sx$Wxf32>) -> tensor<$Hx$Tx$Wxf32> {
  %x = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<$Hx$Tx$Dxf32>, tensor<$Hx$Sx$Dxf32>) -> tensor<$Hx$Tx$Sxf32>
)") + mask +
          kSoftmax + R"(
  %r = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<$Hx$Tx$Sxf32>, tensor<$Hx$Sx$Wxf32>) -> tensor<$Hx$Tx$Wxf32>
  return %r : tensor<$Hx$Tx$Wxf32>
}
)",
      {{"$H", std::to_string(n.heads)},
       {"$T", std::to_string(n.queries)},
       {"$S", std::to_string(n.keys)},
       {"$D", std::to_string(n.depth)},
       {"$W", std::to_string(n.width)}});
}

plan::DeviceTraits traits_of(int64_t points) {
  plan::DeviceTraits traits;
  traits.has_row_groups = false;
  traits.team_points = points;
  traits.team_words = 12 * 1024;
  traits.reduces_by_trees = true;
  traits.fuses_attention = true;
  return traits;
}

plan::LaunchPlan plan_of(const std::string& text, const plan::DeviceTraits& traits,
                         CompilerOptions options = {}) {
  auto module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  options.verify_passes = true;
  const auto plan =
      compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), options, traits);
  if (!plan.ok()) die_of_bad_result(plan.status());
  return **plan;
}

void expect_right(const std::string& text, int64_t points, bool small_limits,
                  double tolerance = 1e-5, int attention_kernels = 1) {
  SCOPED_TRACE(text);
  auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok()) << module.status().message();
  const std::vector<HostArray> inputs = drawn(**module);
  const DType dtype = (*module)->entry()->type.results()[0].dtype();
  const auto want = reference::evaluate(**module, inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  for (const plan::FusedAttention form :
       {plan::FusedAttention::kWherePossible, plan::FusedAttention::kTiles,
        plan::FusedAttention::kKeys}) {
    SCOPED_TRACE(static_cast<int>(form));
    CompilerOptions options;
    options.plan.attention = form;
    options.plan.small_limits = small_limits;
    const plan::LaunchPlan plan = plan_of(text, traits_of(points), options);
    const auto count = [&](const char* name) {
      return std::count_if(plan.kernels.begin(), plan.kernels.end(),
                           [&](const auto& kernel) { return kernel.name == name; });
    };
    const auto tiles = count("attention"), keys = count("attention_part");
    EXPECT_EQ(tiles + keys, attention_kernels) << plan::to_string(plan);
    EXPECT_EQ(keys, count("attention_combine"));
    if (form == plan::FusedAttention::kTiles) {
      EXPECT_EQ(keys, 0);
    }
    if (form == plan::FusedAttention::kKeys) {
      EXPECT_EQ(tiles, 0);
    }
    const auto got = run_plan(plan, inputs);
    ASSERT_TRUE(got.ok()) << got.status().message() << "\n" << plan::to_string(plan);
    const std::vector<float> a = floats(got->at(0), dtype), b = floats(want->at(0).bytes(), dtype);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(b[i])) {
        EXPECT_TRUE(std::isnan(a[i])) << i;
      } else {
        EXPECT_NEAR(a[i], b[i], tolerance) << i;
      }
    }
  }
}

std::string why_not(const plan::LaunchPlan& plan) {
  for (const plan::Decision& decision : plan.decisions) {
    for (const kernel::Implementation& way : decision.implementations) {
      if (way.name == "attention by teams of points") {
        return way.refusal.empty() ? "taken" : way.refusal;
      }
    }
  }
  return "no attention";
}

TEST(Attention, IsRightAtEverySize) {
  // Rows, columns, depth and width below, at and above what a tile has.
  for (const Sizes& sizes : {Sizes{1, 2, 2, 1, 1}, Sizes{2, 4, 4, 2, 2}, Sizes{2, 5, 7, 3, 5},
                             Sizes{1, 9, 13, 6, 7}, Sizes{3, 3, 2, 5, 9}}) {
    expect_right(heads_first(sizes, kScaled), 4, true);
  }
  for (const int64_t points : {4, 8, 32, 256}) {
    expect_right(heads_first({2, 70, 67, 20, 33}, kScaled), points, false);
  }
}

// One row of queries, several parts of the keys with a rest, rows in several teams, depth and width
// in one and several steps.
TEST(Attention, OfFewRowsIsRightAtEverySize) {
  for (const Sizes& sizes : {Sizes{2, 1, 2, 1, 1}, Sizes{2, 1, 37, 3, 5}, Sizes{1, 2, 50, 9, 7},
                             Sizes{3, 1, 13, 17, 33}, Sizes{1, 1, 8, 2, 8}}) {
    expect_right(heads_first(sizes, kScaled), 4, true);
  }
  for (const int64_t points : {4, 8, 32, 256}) {
    expect_right(heads_first({2, 1, 700, 20, 33}, kScaled), points, false);
    expect_right(heads_first({1, 9, 300, 64, 16}, kScaled), points, false);
  }
}

TEST(Attention, OfFewRowsFillsADevice) {
  const plan::LaunchPlan plan =
      plan_of(heads_first({16, 1, 4096, 128, 128}, kScaled), traits_of(256));
  ASSERT_EQ(plan.kernels.size(), 2u) << plan::to_string(plan);
  EXPECT_EQ(plan.kernels[0].name, "attention_part");
  EXPECT_EQ(plan.kernels[0].points(), 16 * 16 * 256);
  // Two numbers and a row of the result for each part.
  EXPECT_EQ(plan.arena_bytes(), 16 * 16 * 4 * (128 + 2));
}

TEST(Attention, KeepsNoScoresInMemory) {
  CompilerOptions options;
  options.plan.attention = plan::FusedAttention::kWherePossible;
  const plan::LaunchPlan plan =
      plan_of(heads_first({2, 128, 128, 16, 16}, kCausal), traits_of(256), options);
  EXPECT_EQ(plan.kernels.size(), 1u) << plan::to_string(plan);
  EXPECT_EQ(plan.arena_bytes(), 0);
  EXPECT_EQ(why_not(plan), "taken");
}

TEST(Attention, MasksBlocksOfColumns) {
  expect_right(heads_first({2, 9, 11, 3, 4}, kCausal), 4, true);
  expect_right(heads_first({1, 70, 80, 4, 4}, kCausal), 256, false);
  // With a number in place of -infinity, rows without columns have the mean of all values.
  for (const char* direction : {"GE,", "GT,", "LT,", "NE,", "EQ,"}) {
    const std::string finite =
        replaced(kCausal, {{"0xFF800000", "-2.38197633E+38"}, {"GE,", direction}});
    expect_right(heads_first({1, 13, 22, 3, 4}, finite), 4, true);
  }
}

// Blocks that a mask leaves nothing of are not looked at: what is not finite there stays there.
TEST(Attention, PassesOverMaskedBlocks) {
  const std::string finite = replaced(kCausal, {{"0xFF800000", "-2.38197633E+38"}});
  for (const std::string& mask : {std::string(kCausal), finite}) {
    const std::string text = heads_first({1, 12, 12, 3, 4}, mask);
    const auto module = stablehlo::read_program(text);
    ASSERT_TRUE(module.ok());
    std::vector<HostArray> inputs = drawn(**module);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    // The last value, which the last row alone may see.
    for (size_t i = 44; i < 48; ++i) {
      std::memcpy(inputs[2].mutable_data() + i * sizeof(nan), &nan, sizeof(nan));
    }
    CompilerOptions options;
    options.plan.attention = plan::FusedAttention::kTiles;
    options.plan.small_limits = true;
    const auto got = run_plan(plan_of(text, traits_of(4), options), inputs);
    ASSERT_TRUE(got.ok()) << got.status().message();
    const std::vector<float> values = floats(got->at(0), DType::kF32);
    // Four rows and columns a block.
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i >= 32) << i;
  }
}

// Rows whose logits are all -infinity are NaN, as a quotient of zeros; those of the others are not.
TEST(Attention, KeepsRowsWithoutColumns) {
  const std::string shifted = replaced(kCausal, {{"GE,", "GT,"}});
  expect_right(heads_first({1, 6, 9, 3, 4}, shifted), 4, true);
  // The columns of the first block are masked, those of the second are not.
  const std::string late = replaced(kCausal, {{"GE,", "LT,"}});
  expect_right(heads_first({1, 8, 12, 3, 4}, late), 4, true);
}

// A bias, tanh and a mask from memory; the least number in place of -infinity.
TEST(Attention, ComputesWhatStandsBetweenTheProducts) {
  std::string text = heads_first({2, 6, 10, 3, 4}, R"(
  %b1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<$Tx$Sxf32>) -> tensor<$Hx$Tx$Sxf32>
  %xb = stablehlo.add %b1, %x : tensor<$Hx$Tx$Sxf32>
  %t = stablehlo.tanh %xb : tensor<$Hx$Tx$Sxf32>
  %m1 = stablehlo.broadcast_in_dim %m, dims = [0, 2] : (tensor<$Hx$Sxi1>) -> tensor<$Hx$Tx$Sxi1>
  %least = stablehlo.constant dense<-2.38197633E+38> : tensor<$Hx$Tx$Sxf32>
  %s = stablehlo.select %m1, %t, %least : tensor<$Hx$Tx$Sxi1>, tensor<$Hx$Tx$Sxf32>
)");
  const std::string end = "tensor<2x10x4xf32>) -> tensor<2x6x4xf32> {";
  const size_t at = text.find(end);
  ASSERT_NE(at, std::string::npos);
  text.insert(at + std::strlen("tensor<2x10x4xf32>"),
              ", %b: tensor<6x10xf32>, %m: tensor<2x10xi1>");
  expect_right(text, 4, true);
}

// (length, heads, width) of narrow floats, grouped heads, and values on the left, as
// jax.nn.dot_product_attention has them: two heads of keys for four of queries.
std::string lengths_first(const std::string& type) {
  return replaced(
      R"(func.func @main(%q: tensor<9x2x2x5x$t>, %k: tensor<7x2x5x$t>, %v: tensor<7x2x3x$t>) -> tensor<9x2x2x3x$t> {
  %x = stablehlo.dot_general %q, %k, batching_dims = [1] x [1], contracting_dims = [3] x [2] : (tensor<9x2x2x5x$t>, tensor<7x2x5x$t>) -> tensor<2x9x2x7xf32>
  %c = stablehlo.constant dense<0.25> : tensor<2x9x2x7xf32>
  %y = stablehlo.multiply %x, %c : tensor<2x9x2x7xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %max = stablehlo.reduce(%y init: %low) applies stablehlo.maximum across dimensions = [3] : (tensor<2x9x2x7xf32>, tensor<f32>) -> tensor<2x9x2xf32>
  %max1 = stablehlo.transpose %max, dims = [2, 0, 1] : (tensor<2x9x2xf32>) -> tensor<2x2x9xf32>
  %maxes = stablehlo.broadcast_in_dim %max1, dims = [0, 1, 2] : (tensor<2x2x9xf32>) -> tensor<2x2x9x7xf32>
  %s = stablehlo.transpose %y, dims = [2, 0, 1, 3] : (tensor<2x9x2x7xf32>) -> tensor<2x2x9x7xf32>
  %shifted = stablehlo.subtract %s, %maxes : tensor<2x2x9x7xf32>
  %e = stablehlo.exponential %shifted : tensor<2x2x9x7xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<2x2x9x7xf32>, tensor<f32>) -> tensor<2x2x9xf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<2x2x9xf32>) -> tensor<2x2x9x7xf32>
  %w = stablehlo.divide %e, %sums : tensor<2x2x9x7xf32>
  %n = stablehlo.convert %w : (tensor<2x2x9x7xf32>) -> tensor<2x2x9x7x$t>
  %r = stablehlo.dot_general %v, %n, batching_dims = [1] x [1], contracting_dims = [0] x [3] : (tensor<7x2x3x$t>, tensor<2x2x9x7x$t>) -> tensor<2x3x2x9x$t>
  %o = stablehlo.transpose %r, dims = [3, 0, 2, 1] : (tensor<2x3x2x9x$t>) -> tensor<9x2x2x3x$t>
  return %o : tensor<9x2x2x3x$t>
}
)",
      {{"$t", type}});
}

TEST(Attention, TakesLayoutsOfDotProductAttention) {
  expect_right(lengths_first("f32"), 4, true);
  expect_right(lengths_first("f32"), 256, false);
  // The evaluator rounds the weights, and the result.
  expect_right(lengths_first("bf16"), 4, true, 0.03);
  expect_right(lengths_first("f16"), 4, true, 0.004);
}

// Values that are the weights themselves, or what those are made of, are wanted at other places
// too.
TEST(Attention, LeavesProductsOfTheWeightsWithThemselves) {
  const std::string square = heads_first({2, 6, 6, 3, 6}, kScaled);
  for (const char* values : {"%w", "%e", "%shifted", "%s", "%x"}) {
    for (const char* contracting : {"[2] x [1]", "[2] x [2]"}) {
      expect_right(replaced(square, {{"%w, %v,", std::string("%w, ") + values + ","},
                                     {"contracting_dims = [2] x [1]",
                                      std::string("contracting_dims = ") + contracting}}),
                   4, true, 1e-4, 0);
    }
  }
}

// The logits of the second one are the first one's result.
TEST(Attention, OfAnAttentionStoresTheFirst) {
  const std::string one = heads_first({1, 6, 6, 6, 6}, kScaled);
  const size_t softmax = one.find("  %low ="), end = one.find("  return");
  std::string second =
      std::regex_replace(one.substr(softmax, end - softmax), std::regex("%([a-z0-9]+)"), "%$1_");
  second = replaced(second, {{"%s_", "%r"}, {"%v_", "%v"}});
  const std::string both = one.substr(0, end) + second + one.substr(end);
  expect_right(replaced(both, {{"return %r", "return %r_"}}), 4, true, 1e-4, 1);
}

TEST(Attention, DoesNotDependOnFusionOrCuts) {
  const std::string text = heads_first({2, 9, 11, 3, 4}, kCausal);
  const auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok());
  const std::vector<HostArray> inputs = drawn(**module);
  CompilerOptions options;
  options.plan.attention = plan::FusedAttention::kWherePossible;
  options.plan.small_limits = true;
  const auto bits = [&](const CompilerOptions& chosen) {
    const auto got = run_plan(plan_of(text, traits_of(4), chosen), inputs);
    if (!got.ok()) die_of_bad_result(got.status());
    return *got;
  };
  const auto want = bits(options);
  CompilerOptions apart = options;
  apart.plan.fuse = false;
  EXPECT_EQ(bits(apart), want);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    CompilerOptions other = options;
    other.schedule_seed = seed;
    EXPECT_EQ(bits(other), want);
  }
}

// The gradient of the above with respect to all operands, as JAX writes it: `masked` is what the
// gradient %dx of the logits %s is to the scores %x.
std::string gradients(const Sizes& n, const std::string& mask, const std::string& masked,
                      bool has_result) {
  const std::string results = std::string("tensor<$Hx$Tx$Dxf32>, tensor<$Hx$Sx$Dxf32>, ") +
                              "tensor<$Hx$Sx$Wxf32>" + (has_result ? ", tensor<$Hx$Tx$Wxf32>" : "");
  std::string text =
      R"(func.func @main(%q: tensor<$Hx$Tx$Dxf32>, %k: tensor<$Hx$Sx$Dxf32>, %v: tensor<$Hx$Sx$Wxf32>, %g: tensor<$Hx$Tx$Wxf32>) -> ($R) {
  %x = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<$Hx$Tx$Dxf32>, tensor<$Hx$Sx$Dxf32>) -> tensor<$Hx$Tx$Sxf32>
)";
  text += mask + kSoftmax + R"(
  %sum1 = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : (tensor<$Hx$Txf32>) -> tensor<$Hx$Tx1xf32>
  %sum2 = stablehlo.multiply %sum1, %sum1 : tensor<$Hx$Tx1xf32>
  %one = stablehlo.constant dense<1.0> : tensor<$Hx$Tx1xf32>
  %inv = stablehlo.divide %one, %sum2 : tensor<$Hx$Tx1xf32>
  %r = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<$Hx$Tx$Sxf32>, tensor<$Hx$Sx$Wxf32>) -> tensor<$Hx$Tx$Wxf32>
  %dvt = stablehlo.dot_general %g, %w, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<$Hx$Tx$Wxf32>, tensor<$Hx$Tx$Sxf32>) -> tensor<$Hx$Wx$Sxf32>
  %dv = stablehlo.transpose %dvt, dims = [0, 2, 1] : (tensor<$Hx$Wx$Sxf32>) -> tensor<$Hx$Sx$Wxf32>
  %dw = stablehlo.dot_general %g, %v, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<$Hx$Tx$Wxf32>, tensor<$Hx$Sx$Wxf32>) -> tensor<$Hx$Tx$Sxf32>
  %invs = stablehlo.broadcast_in_dim %inv, dims = [0, 1, 2] : (tensor<$Hx$Tx1xf32>) -> tensor<$Hx$Tx$Sxf32>
  %m1 = stablehlo.multiply %dw, %invs : tensor<$Hx$Tx$Sxf32>
  %m2 = stablehlo.multiply %m1, %e : tensor<$Hx$Tx$Sxf32>
  %dot = stablehlo.reduce(%m2 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<$Hx$Tx$Sxf32>, tensor<f32>) -> tensor<$Hx$Txf32>
  %neg = stablehlo.negate %dot : tensor<$Hx$Txf32>
  %negs = stablehlo.broadcast_in_dim %neg, dims = [0, 1] : (tensor<$Hx$Txf32>) -> tensor<$Hx$Tx$Sxf32>
  %quotient = stablehlo.divide %dw, %sums : tensor<$Hx$Tx$Sxf32>
  %difference = stablehlo.add %quotient, %negs : tensor<$Hx$Tx$Sxf32>
  %ds = stablehlo.multiply %difference, %e : tensor<$Hx$Tx$Sxf32>
)" + masked +
          R"(
  %dk = stablehlo.dot_general %dx, %q, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<$Hx$Tx$Sxf32>, tensor<$Hx$Tx$Dxf32>) -> tensor<$Hx$Sx$Dxf32>
  %dq = stablehlo.dot_general %dx, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<$Hx$Tx$Sxf32>, tensor<$Hx$Sx$Dxf32>) -> tensor<$Hx$Tx$Dxf32>
)" + (has_result ? "  return %dq, %dk, %dv, %r : $R\n}\n" : "  return %dq, %dk, %dv : $R\n}\n");
  return replaced(replaced(text, {{"$R", results}}), {{"$H", std::to_string(n.heads)},
                                                      {"$T", std::to_string(n.queries)},
                                                      {"$S", std::to_string(n.keys)},
                                                      {"$D", std::to_string(n.depth)},
                                                      {"$W", std::to_string(n.width)}});
}

constexpr const char* kScaledBack = R"(
  %dx = stablehlo.multiply %ds, %c : tensor<$Hx$Tx$Sxf32>
)";
constexpr const char* kCausalBack = R"(
  %zeros = stablehlo.constant dense<0.0> : tensor<$Hx$Tx$Sxf32>
  %dx = stablehlo.select %m, %ds, %zeros : tensor<$Hx$Tx$Sxi1>, tensor<$Hx$Tx$Sxf32>
)";

void expect_gradients(const std::string& text, int64_t points, bool small_limits,
                      double tolerance = 2e-5) {
  SCOPED_TRACE(text);
  auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok()) << module.status().message();
  const std::vector<HostArray> inputs = drawn(**module);
  const auto want = reference::evaluate(**module, inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  CompilerOptions options;
  options.plan.attention = plan::FusedAttention::kWherePossible;
  options.plan.small_limits = small_limits;
  const plan::LaunchPlan plan = plan_of(text, traits_of(points), options);
  const auto got = run_plan(plan, inputs);
  ASSERT_TRUE(got.ok()) << got.status().message() << "\n" << plan::to_string(plan);
  const auto kernels =
      std::count_if(plan.kernels.begin(), plan.kernels.end(), [](const auto& kernel) {
        return kernel.name == "scores_product" || kernel.name == "scores_reduce";
      });
  EXPECT_GE(kernels, 5) << plan::to_string(plan);
  for (size_t i = 0; i < want->size(); ++i) {
    const std::vector<float> a = floats(got->at(i), (*want)[i].dtype()),
                             b = floats((*want)[i].bytes(), (*want)[i].dtype());
    ASSERT_EQ(a.size(), b.size());
    double greatest = 1;
    for (const float each : b) greatest = std::max<double>(greatest, std::fabs(each));
    for (size_t j = 0; j < a.size(); ++j) {
      if (std::isnan(b[j])) {
        EXPECT_TRUE(std::isnan(a[j])) << i << ", " << j;
      } else {
        EXPECT_NEAR(a[j], b[j], tolerance * greatest) << i << ", " << j;
      }
    }
  }
}

TEST(AttentionGradients, AreRightAtEverySize) {
  for (const bool has_result : {false, true}) {
    for (const Sizes& sizes : {Sizes{1, 2, 2, 1, 1}, Sizes{2, 5, 7, 3, 5}, Sizes{1, 9, 13, 6, 7},
                               Sizes{3, 3, 2, 5, 9}}) {
      expect_gradients(gradients(sizes, kScaled, kScaledBack, has_result), 4, true);
    }
    for (const int64_t points : {4, 32, 256}) {
      expect_gradients(gradients({2, 70, 67, 20, 33}, kScaled, kScaledBack, has_result), points,
                       false);
    }
  }
}

TEST(AttentionGradients, MaskBlocks) {
  expect_gradients(gradients({2, 9, 11, 3, 4}, kCausal, kCausalBack, true), 4, true);
  expect_gradients(gradients({1, 70, 80, 4, 4}, kCausal, kCausalBack, false), 256, false);
  // Rows without columns are NaN, and so is what they meet.
  const std::string shifted = replaced(kCausal, {{"GE,", "GT,"}});
  expect_gradients(gradients({1, 6, 9, 3, 4}, shifted, kCausalBack, true), 4, true);
  for (const char* direction : {"GE,", "GT,", "LT,", "NE,", "EQ,"}) {
    const std::string finite =
        replaced(kCausal, {{"0xFF800000", "-2.38197633E+38"}, {"GE,", direction}});
    expect_gradients(gradients({1, 13, 22, 3, 4}, finite, kCausalBack, true), 4, true);
  }
}

TEST(AttentionGradients, KeepNoScoresInMemory) {
  CompilerOptions options;
  options.plan.attention = plan::FusedAttention::kWherePossible;
  for (const bool has_result : {false, true}) {
    const std::string text = gradients({2, 512, 512, 16, 16}, kCausal, kCausalBack, has_result);
    const plan::LaunchPlan plan = plan_of(text, traits_of(256), options);
    EXPECT_LT(plan.arena_bytes(), 2 * 512 * 16 * 4 * 4) << plan::to_string(plan);
  }
}

TEST(Attention, SaysWhyNot) {
  const std::string text = heads_first({2, 128, 128, 32, 32}, kScaled);
  CompilerOptions forced, off;
  forced.plan.attention = plan::FusedAttention::kWherePossible;
  off.plan.attention = plan::FusedAttention::kNone;
  EXPECT_EQ(why_not(plan_of(text, traits_of(256), forced)), "taken");
  EXPECT_EQ(why_not(plan_of(text, traits_of(256), off)), "not by teams of points on this device");
  EXPECT_EQ(why_not(plan_of(text, traits_of(1), forced)), "not by teams of points on this device");
  EXPECT_EQ(why_not(plan_of(text, traits_of(256))),
            "4 teams, fewer than 64, and 131072 bytes of scores, fewer than 67108864");
  EXPECT_EQ(why_not(plan_of(heads_first({2, 8, 100, 32, 32}, kScaled), traits_of(256))),
            "100 keys for 8 rows of queries, fewer than 128");
  EXPECT_EQ(why_not(plan_of(heads_first({2, 8, 128, 32, 32}, kScaled), traits_of(256))), "taken");
  // A gradient wants the weights, too.
  const std::string kept = replaced(
      text, {{"-> tensor<2x128x32xf32> {", "-> (tensor<2x128x32xf32>, tensor<2x128x128xf32>) {"},
             {"return %r : tensor<2x128x32xf32>",
              "return %r, %w : tensor<2x128x32xf32>, tensor<2x128x128xf32>"}});
  EXPECT_EQ(why_not(plan_of(kept, traits_of(256), forced)),
            "the result of stablehlo.divide inside is used by func.return too");
  plan::DeviceTraits small = traits_of(256);
  small.team_words = 600;
  EXPECT_EQ(why_not(plan_of(text, small, forced)), "teams have 600 words of shared memory");
  // Matrix units are faster.
  plan::DeviceTraits matrix = traits_of(256);
  matrix.matrix_types = {DType::kBF16};
  const std::string narrow =
      replaced(lengths_first("bf16"),
               {{"9x", "256x"}, {"x9", "x256"}, {"7x", "64x"}, {"x5x", "x64x"}, {"x3x", "x64x"}});
  EXPECT_EQ(why_not(plan_of(narrow, matrix)), "matrix units compute its products");
  EXPECT_EQ(why_not(plan_of(narrow, matrix, forced)), "taken");
}

}  // namespace
}  // namespace hekla::testing
