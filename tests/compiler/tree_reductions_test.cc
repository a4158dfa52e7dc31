// SPDX-License-Identifier: Apache-2.0
// Reductions by trees and contractions in parts, on devices with many units: that they give what
// the evaluator gives, at sizes on both sides of what decides on their shape, and which are done
// so.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/plan_interpreter.h"

namespace hekla::testing {
namespace {

// A reduction of one operand.
std::string tree_reduction(const std::string& from, const std::string& to, const std::string& dims,
                           const std::string& type, const std::string& op) {
  const std::string x = "tensor<" + from + type + ">", r = "tensor<" + to + type + ">";
  const std::string e = "tensor<" + type + ">";
  return "module { func.func public @main(%x: " + x + ", %i: " + e + ") -> " + r +
         " {\n %r = stablehlo.reduce(%x init: %i) applies stablehlo." + op +
         " across dimensions = [" + dims + "] : (" + x + ", " + e + ") -> " + r +
         "\n return %r : " + r + "\n } }";
}

// The greatest element and its place, as JAX writes argmax; sums and products at once; and a
// reducer that nobody knows.
std::string pair_reduction(const std::string& from, const std::string& to, const std::string& dims,
                           const std::string& body) {
  const auto t = [](const std::string& shape, const char* type) {
    return "tensor<" + shape + type + ">";
  };
  const std::string x = t(from, "f32"), n = t(from, "i32"), rx = t(to, "f32"), rn = t(to, "i32");
  return "module { func.func public @main(%x: " + x + ", %n: " + n +
         ", %i: tensor<f32>, %j: tensor<i32>) -> (" + rx + ", " + rn +
         ") {\n %r:2 = stablehlo.reduce(%x init: %i), (%n init: %j) across dimensions = [" + dims +
         "] : (" + x + ", " + n + ", tensor<f32>, tensor<i32>) -> (" + rx + ", " + rn +
         ")\n reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>) {\n" +
         body + " }\n return %r#0, %r#1 : " + rx + ", " + rn + "\n } }";
}

constexpr const char* kArgmax = R"(
   %0 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
   %1 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
   %2 = stablehlo.or %0, %1 : tensor<i1>
   %3 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
   %4 = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
   %5 = stablehlo.and %3, %4 : tensor<i1>
   %6 = stablehlo.or %2, %5 : tensor<i1>
   %7 = stablehlo.select %2, %a, %b : tensor<i1>, tensor<f32>
   %8 = stablehlo.select %6, %c, %d : tensor<i1>, tensor<i32>
   stablehlo.return %7, %8 : tensor<f32>, tensor<i32>
)";
constexpr const char* kApart = R"(
   %0 = stablehlo.maximum %a, %b : tensor<f32>
   %1 = stablehlo.add %c, %d : tensor<i32>
   stablehlo.return %0, %1 : tensor<f32>, tensor<i32>
)";
constexpr const char* kUnknown = R"(
   %0 = stablehlo.maximum %a, %b : tensor<f32>
   %1 = stablehlo.subtract %c, %d : tensor<i32>
   stablehlo.return %0, %1 : tensor<f32>, tensor<i32>
)";

HostArray drawn_array(const ir::Type& type, bool has_nan) {
  std::mt19937_64 random(static_cast<uint64_t>(element_count(type.dims())) + 3);
  HostArray array(type.dtype(), type.dims());
  const int64_t width = dtype_bytes(type.dtype());
  for (int64_t i = 0; i < array.size(); ++i) {
    uint64_t bits = random() % 100;
    if (is_float(type.dtype())) {
      double value = static_cast<double>(random() % 64) / 16 - 2;
      if (has_nan && random() % 50 == 0) value = std::nan("");
      bits = float_to_bits(type.dtype(), value);
    }
    if (type.dtype() == DType::kI1) bits %= 2;
    std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
  }
  return array;
}

struct Outcome {
  std::vector<std::vector<std::byte>> got;
  std::vector<HostArray> want, inputs;
  std::shared_ptr<const plan::LaunchPlan> plan;
};

Outcome run(const std::string& text, int64_t team_points, bool small_limits, bool has_nan = false) {
  Outcome outcome;
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().message() << text;
  if (!module.ok()) return outcome;
  for (const ir::Type& input : (*module)->entry()->type.elements()) {
    outcome.inputs.push_back(drawn_array(input, has_nan && outcome.inputs.empty()));
  }
  auto want = reference::evaluate(**module, outcome.inputs);
  EXPECT_TRUE(want.ok()) << want.status().message();
  if (want.ok()) outcome.want = *want;
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.small_limits = small_limits;
  plan::DeviceTraits traits;
  traits.team_points = team_points;
  traits.reduces_by_trees = true;
  auto plan =
      compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), options, traits);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return outcome;
  outcome.plan = *plan;
  auto got = run_plan(**plan, outcome.inputs);
  EXPECT_TRUE(got.ok()) << got.status().message() << "\n" << plan::to_string(**plan);
  if (got.ok()) outcome.got = *got;
  return outcome;
}

void expect_same(const Outcome& outcome) {
  ASSERT_EQ(outcome.got.size(), outcome.want.size());
  for (size_t r = 0; r < outcome.got.size(); ++r) {
    const auto bytes = outcome.want[r].bytes();
    EXPECT_EQ(outcome.got[r], std::vector<std::byte>(bytes.begin(), bytes.end())) << "result " << r;
  }
}

std::string taken(const plan::LaunchPlan& plan) {
  for (const kernel::Implementation& way : plan.decisions.at(0).implementations) {
    if (way.refusal.empty()) return way.name;
  }
  return "";
}

struct Form {
  std::string from, to, dims;
};
std::vector<Form> forms() {
  std::vector<Form> all;
  for (const int n : {0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 255, 256, 257, 1000, 1025}) {
    const std::string size = std::to_string(n) + "x";
    all.push_back({size, "", "0"});
    all.push_back({"3x" + size, "3x", "1"});
    all.push_back({size + "5x", "5x", "0"});
    all.push_back({"2x" + size + "33x", "2x33x", "1"});
    all.push_back({"2x" + size + "34x", "2x34x", "1"});
    all.push_back({"3x2x" + size, "2x", "0, 2"});
  }
  all.push_back({"100003x", "", "0"});
  all.push_back({"20011x3x", "3x", "0"});
  return all;
}

TEST(TreeReductions, GiveWhatTheEvaluatorGives) {
  size_t number = 0;
  for (const Form& form : forms()) {
    for (const char* op : {"add", "multiply", "minimum", "or"}) {
      const bool is_small = ++number % 2 == 0;
      SCOPED_TRACE(form.from + " " + op);
      expect_same(
          run(tree_reduction(form.from, form.to, form.dims, number % 3 == 0 ? "i64" : "i32", op),
              number % 5 == 0 ? 16 : 256, is_small));
    }
  }
}

TEST(TreeReductions, SumsOfFloatsKeepTheirBound) {
  size_t number = 0;
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.from);
    const Outcome outcome =
        run(tree_reduction(form.from, form.to, form.dims, "f32", "add"), 256, number++ % 2 == 0);
    ASSERT_EQ(outcome.got.size(), 1u);
    // Sixteenths, whose sums f32 holds: whatever the order.
    const float* want = outcome.want[0].as<float>();
    for (size_t i = 0; i < outcome.got[0].size() / sizeof(float); ++i) {
      float got = 0;
      std::memcpy(&got, outcome.got[0].data() + i * sizeof(float), sizeof(float));
      EXPECT_NEAR(got, want[i], 1e-6 * std::abs(want[i])) << i;
    }
  }
}

TEST(TreeReductions, PairsKeepTheFirstOfEqualElementsAndOfNaNs) {
  size_t number = 0;
  for (const Form& form : forms()) {
    const bool is_small = ++number % 2 == 0;
    SCOPED_TRACE(form.from);
    const Outcome outcome =
        run(pair_reduction(form.from, form.to, form.dims, kArgmax), 256, is_small, number % 3 == 0);
    ASSERT_EQ(outcome.got.size(), 2u);
    const auto bytes = outcome.want[1].bytes();
    EXPECT_EQ(outcome.got[1], std::vector<std::byte>(bytes.begin(), bytes.end()));
    expect_same(run(pair_reduction(form.from, form.to, form.dims, kApart), 256, is_small));
  }
}

TEST(TreeReductions, AreForTeamsLongLinesAndKnownReducers) {
  const auto way = [](const std::string& text, int64_t team_points) {
    return taken(*run(text, team_points, false).plan);
  };
  EXPECT_EQ(way(tree_reduction("9x32x", "9x", "1", "f32", "add"), 256), "trees of points");
  EXPECT_EQ(way(tree_reduction("9x31x", "9x", "1", "f32", "add"), 256), "a point for each line");
  EXPECT_EQ(way(tree_reduction("9x32x", "9x", "1", "f32", "add"), 1), "a point for each line");
  EXPECT_EQ(way(tree_reduction("32x65535x", "65535x", "0", "i32", "add"), 256), "trees of points");
  EXPECT_EQ(way(tree_reduction("32x65536x", "65536x", "0", "i32", "add"), 256),
            "a point for each line");
  EXPECT_EQ(way(pair_reduction("99x", "", "0", kArgmax), 256), "trees of points");
  EXPECT_EQ(way(pair_reduction("99x", "", "0", kUnknown), 256), "a point for each line");
}

// Four each where their number is a multiple and enough points are left.
TEST(TreeReductions, PointsTakeAdjacentColumns) {
  const auto columns_of = [](const std::string& rows, const std::string& columns) {
    const Outcome outcome = run(
        tree_reduction(rows + "x" + columns + "x", columns + "x", "0", "i32", "add"), 256, false);
    expect_same(outcome);
    return std::stoll(columns) / outcome.plan->kernels.at(0).grid.back();
  };
  EXPECT_EQ(columns_of("128", "2048"), 4);
  EXPECT_EQ(columns_of("129", "2052"), 4);
  EXPECT_EQ(columns_of("128", "2046"), 1);
  EXPECT_EQ(columns_of("128", "1024"), 1);  // 8 points each, 8,192 in all
  EXPECT_EQ(columns_of("9999", "512"), 4);  // and 20 parts
}

struct Product {
  std::string lhs, rhs, result, numbers;
};

std::string product(const Product& p, const std::string& from, const std::string& to) {
  const std::string l = "tensor<" + p.lhs + from + ">", r = "tensor<" + p.rhs + from + ">";
  const std::string result = "tensor<" + p.result + to + ">";
  return "module { func.func public @main(%a: " + l + ", %b: " + r + ") -> " + result +
         " {\n %r = " + p.numbers + " : (" + l + ", " + r + ") -> " + result +
         "\n return %r : " + result + "\n } }";
}

std::string convolution(const std::string& numbers, const std::string& window) {
  return "stablehlo.convolution(%a, %b) dim_numbers = " + numbers + ", window = {" + window +
         "} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}";
}

std::vector<Product> products() {
  const std::string dot = "stablehlo.dot_general %a, %b, ";
  return {
      {"3x8x", "8x5x", "3x5x", dot + "contracting_dims = [1] x [0]"},
      {"8x3x", "5x8x", "3x5x", dot + "contracting_dims = [0] x [1]"},
      {"2x3x24x", "2x24x7x", "2x3x7x",
       dot + "batching_dims = [0] x [0], contracting_dims = [2] x [1]"},
      {"3x24x2x", "24x7x2x", "2x3x7x",
       dot + "batching_dims = [2] x [2], contracting_dims = [1] x [0]"},
      {"4x3x6x", "6x7x4x", "3x7x", dot + "contracting_dims = [0, 2] x [2, 0]"},
      {"3x13x", "13x5x", "3x5x", dot + "contracting_dims = [1] x [0]"},
      {"12x", "12x", "", dot + "contracting_dims = [0] x [0]"},
      {"9x11x", "11x9x", "9x9x", dot + "contracting_dims = [1] x [0]"},
      {"0x8x", "8x5x", "0x5x", dot + "contracting_dims = [1] x [0]"},
      {"3x0x", "0x5x", "3x5x", dot + "contracting_dims = [1] x [0]"},
      // A gradient of weights, with padding, strides and dilations.
      {"8x6x5x3x", "8x4x4x9x", "3x2x3x9x",
       convolution("[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", "")},
      {"8x6x5x3x", "8x4x4x9x", "5x2x3x9x",
       convolution("[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]",
                   "stride = [1, 2], pad = [[1, 1], [0, 2]]")},
      {"2x6x12x", "3x12x8x", "2x9x8x",
       convolution("[b, 0, f]x[0, i, o]->[b, 0, f]",
                   "pad = [[2, 2]], lhs_dilate = [2], rhs_dilate = [3], reverse = [true]")},
      {"2x12x6x", "8x3x12x", "8x2x4x", convolution("[b, f, 0]x[o, 0, i]->[f, b, 0]", "")},
  };
}

TEST(SplitContractions, GiveWhatTheEvaluatorGives) {
  for (const Product& p : products()) {
    for (const char* type : {"f32", "i32", "f64"}) {
      SCOPED_TRACE(p.numbers + " " + p.lhs + type);
      // Sixteenths and their products, whose sums both types hold.
      expect_same(run(product(p, type, type), 256, true));
      expect_same(run(product(p, type, type), 256, false));
    }
    SCOPED_TRACE(p.numbers + " " + p.lhs + "bf16");
    expect_same(run(product(p, "bf16", "f32"), 256, true));
    expect_same(run(product(p, "bf16", "bf16"), 256, true));
    expect_same(run(product(p, "i8", "i32"), 256, true));
  }
}

// A convolution in groups, whose kernel has the dimensions of what follows it.
TEST(SplitContractions, GroupsAreThoseOfTheConvolution) {
  for (const int64_t team_points : {1, 256}) {
    for (const char* behind : {"4x1x35x35x64x", "140x35x64x", "4x35x35x64x"}) {
      SCOPED_TRACE(behind);
      const std::string to = std::string("tensor<") + behind + "f32>";
      const Outcome outcome =
          run("module { func.func public @main(%a: tensor<4x37x37x8xf32>, %b: "
              "tensor<3x3x2x64xf32>) -> " +
                  to + " {\n %r = " +
                  "stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, "
                  "1, f], "
                  "window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64} : "
                  "(tensor<4x37x37x8xf32>, tensor<3x3x2x64xf32>) -> tensor<4x35x35x64xf32>\n"
                  " %s = stablehlo.reshape %r : (tensor<4x35x35x64xf32>) -> " +
                  to + "\n return %s : " + to + "\n } }",
              team_points, false);
      expect_same(outcome);
    }
  }
}

// Roundings of operands are seen behind the slices and reshapes that make parts.
TEST(SplitContractions, KeepTheirAlgorithm) {
  for (const std::string depth : {"1024", "1031"}) {
    const std::string left = "tensor<4x" + depth + "xf32>",
                      right = "tensor<" + depth + "x2048xf32>";
    const Outcome outcome =
        run("module { func.func public @main(%a: " + left + ", %b: " + right + ") -> " +
                "tensor<4x2048xf32> {\n %r = stablehlo.dot_general %a, %b, " +
                "contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], " +
                "algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, " +
                "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, " +
                "num_primitive_operations = 1, allow_imprecise_accumulation = false> : (" + left +
                ", " + right + ") -> tensor<4x2048xf32>\n return %r : tensor<4x2048xf32>\n } }",
            256, true);
    expect_same(outcome);
    ASSERT_TRUE(outcome.plan != nullptr);
    EXPECT_EQ(plan::to_string(*outcome.plan).find("host"), std::string::npos) << depth;
    EXPECT_GT(outcome.plan->kernels.size(), 1u);
  }
}

TEST(SplitContractions, AreForLongSumsOfFewElements) {
  const auto parts = [](const std::string& rows, const std::string& depth,
                        const std::string& columns, int64_t team_points) {
    const Product p{rows + "x" + depth + "x", depth + "x" + columns + "x",
                    rows + "x" + columns + "x",
                    "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]"};
    auto module = stablehlo::read_program(product(p, "f32", "f32"));
    EXPECT_TRUE(module.ok());
    plan::DeviceTraits traits;
    traits.team_points = team_points;
    traits.reduces_by_trees = team_points > 1;
    auto plan = compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), {}, traits);
    EXPECT_TRUE(plan.ok());
    return (*plan)->kernels.size() > 1 ? (*plan)->kernels[0].grid.at(0) : 1;
  };
  EXPECT_EQ(parts("256", "1024", "256", 256), 16);
  EXPECT_EQ(parts("256", "1024", "256", 1), 1);
  EXPECT_EQ(parts("256", "1008", "256", 256), 14);  // the most that divide it, up to 15
  EXPECT_EQ(parts("256", "251", "256", 256), 1);
  EXPECT_EQ(parts("1024", "1024", "1024", 256), 1);
  EXPECT_EQ(parts("20", "8191", "20", 256), 7);  // a prime: and a rest
  EXPECT_EQ(parts("20", "8184", "20", 256), 6);
  EXPECT_EQ(parts("20", "8192", "20", 256), 128);
  EXPECT_EQ(parts("20", "1024", "20", 256), 1);
}

std::vector<Product> thin_products() {
  const std::string dot = "stablehlo.dot_general %a, %b, ";
  return {
      {"1x48x", "48x10x", "1x10x", dot + "contracting_dims = [1] x [0]"},
      {"48x", "48x10x", "10x", dot + "contracting_dims = [0] x [0]"},
      {"3x46x", "46x10x", "3x10x", dot + "contracting_dims = [1] x [0]"},
      {"10x48x", "48x2x", "10x2x", dot + "contracting_dims = [1] x [0]"},
      {"47x9x", "47x2x", "9x2x", dot + "contracting_dims = [0] x [0]"},
      {"2x48x8x", "2x3x48x", "2x8x3x",
       dot + "batching_dims = [0] x [0], contracting_dims = [1] x [2]"},
      {"48x2x8x", "48x2x", "2x8x", dot + "batching_dims = [1] x [1], contracting_dims = [0] x [0]"},
      {"4x12x9x", "12x4x", "9x", dot + "contracting_dims = [0, 1] x [1, 0]"},
      {"5x12x9x2x", "12x2x5x", "5x9x",
       dot + "batching_dims = [0] x [2], contracting_dims = [1, 3] x [0, 1]"},
  };
}

TEST(ThinProducts, GiveWhatTheEvaluatorGives) {
  for (const Product& p : thin_products()) {
    for (const char* type : {"f32", "bf16", "f64"}) {
      SCOPED_TRACE(p.numbers + " " + p.lhs + type);
      for (const int64_t team_points : {1, 16, 256}) {
        // Sixteenths and their products, whose sums all types of sums hold.
        expect_same(run(product(p, type, type == std::string("bf16") ? "f32" : type), team_points,
                        /*small_limits=*/true));
      }
    }
  }
}

// Where the terms of a sum are not contiguous: what adds the parts is no kernel of its own, but
// part of that behind it. All columns read the matrix together.
TEST(ThinProducts, SumsAlongColumnsAreTakenInParts) {
  const auto grids = [](const std::string& rows, const std::string& depth,
                        const std::string& columns) {
    const std::string result = "tensor<" + rows + "x" + columns + "xf32>";
    const std::string a = "tensor<" + rows + "x" + depth + "xf32>";
    const std::string b = "tensor<" + depth + "x" + columns + "xf32>";
    const Outcome outcome =
        run("module { func.func public @main(%a: " + a + ", %b: " + b + ") -> " + result +
                " {\n %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (" + a +
                ", " + b + ") -> " + result + "\n %s = stablehlo.multiply %r, %r : " + result +
                "\n return %s : " + result + "\n } }",
            256, false);
    std::vector<std::vector<int64_t>> all;
    for (const kernel::Kernel& kernel : outcome.plan->kernels) all.push_back(kernel.grid);
    return all;
  };
  using Grids = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(grids("1", "2048", "512"), (Grids{{8, 16, 128}, {512}}));
  // 23 times 89, of which no number up to 15 is a divisor: the tree's own parts.
  EXPECT_EQ(grids("1", "2047", "64"), (Grids{{16, 8, 64}, {4, 64}, {64}}));
  const Grids two = grids("2", "2048", "512");
  EXPECT_EQ(std::count(two.begin(), two.end(), std::vector<int64_t>{8, 16, 128}), 1);
  EXPECT_EQ(grids("1", "256", "512").front().at(1), 2);
}

// `indices`: a constant, so that places outside are among them.
std::string scatter(const std::string& x, const std::string& indices, const std::string& index_type,
                    const std::string& updates, const std::string& numbers, const std::string& type,
                    const std::string& body = "add") {
  const std::string a = "tensor<" + x + type + ">", u = "tensor<" + updates + type + ">";
  const std::string e = "tensor<" + type + ">";
  return "module { func.func public @main(%x: " + a + ", %u: " + u + ") -> " + a +
         " {\n %i = stablehlo.constant dense<" + indices + "> : " + index_type +
         "\n %r = \"stablehlo.scatter\"(%x, %i, %u) ({\n ^bb0(%a: " + e + ", %b: " + e +
         "):\n %s = stablehlo." + body + " %a, %b : " + e + "\n stablehlo.return %s : " + e +
         "\n }) {scatter_dimension_numbers = #stablehlo.scatter<" + numbers +
         ">, indices_are_sorted = false, unique_indices = false} : (" + a + ", " + index_type +
         ", " + u + ") -> " + a + "\n return %r : " + a + "\n } }";
}

bool has_scatter(const plan::LaunchPlan& plan) {
  return std::any_of(plan.kernels.begin(), plan.kernels.end(),
                     [](const kernel::Kernel& k) { return k.name.starts_with("scatter"); });
}

TEST(SmallScatters, GiveWhatTheEvaluatorGives) {
  const std::string rows = "[[0], [3], [3], [-1], [4], [7], [1], [3]]";
  for (const char* type : {"f32", "i32", "f64", "i64"}) {
    SCOPED_TRACE(type);
    // Segment sums of numbers, of rows, and of columns.
    for (const bool small : {false, true}) {
      const Outcome numbers =
          run(scatter("5x", rows, "tensor<8x1xi32>", "8x",
                      "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
                      "index_vector_dim = 1",
                      type),
              256, small);
      expect_same(numbers);
      EXPECT_EQ(has_scatter(*numbers.plan), !small);
      expect_same(run(scatter("5x6x", rows, "tensor<8x1xi32>", "8x6x",
                              "update_window_dims = [1], inserted_window_dims = [0], "
                              "scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                              type),
                      256, small));
      const Outcome columns =
          run(scatter("6x5x", rows, "tensor<8x1xi32>", "6x8x",
                      "update_window_dims = [0], inserted_window_dims = [1], "
                      "scatter_dims_to_operand_dims = [1], index_vector_dim = 1",
                      type),
              256, small);
      expect_same(columns);
      EXPECT_EQ(has_scatter(*columns.plan), !small);
      // Two components in turned order; a window between them; two dimensions of updates.
      expect_same(run(
          scatter("3x4x2x", "[[[1, 2], [0, 0]], [[1, 2], [1, 2]]]", "tensor<2x2x2xi64>", "2x4x2x",
                  "update_window_dims = [1], inserted_window_dims = [0, 2], "
                  "scatter_dims_to_operand_dims = [2, 0], index_vector_dim = 2",
                  type),
          256, small));
    }
  }
}

TEST(SmallScatters, AreSumsOfWholeWindowsAndWideNumbers) {
  const std::string rows = "[[0], [3], [3], [-1], [4], [7], [1], [3]]";
  const auto stays = [&](const std::string& x, const std::string& updates,
                         const std::string& numbers, const std::string& type,
                         const std::string& body = "add",
                         const std::string& index_type = "tensor<8x1xi32>") {
    const Outcome outcome =
        run(scatter(x, rows, index_type, updates, numbers, type, body), 256, true);
    expect_same(outcome);
    return has_scatter(*outcome.plan);
  };
  const std::string plain =
      "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1";
  EXPECT_FALSE(stays("5x", "8x", plain, "f32"));
  EXPECT_TRUE(stays("5x", "8x", plain, "bf16"));
  EXPECT_TRUE(stays("5x", "8x", plain, "f32", "maximum"));
  // A region that sums in a wider type.
  const std::string wide =
      "module { func.func public @main(%x: tensor<5xf32>, %u: tensor<8xf32>) -> tensor<5xf64> {\n"
      " %i = stablehlo.constant dense<" +
      rows +
      "> : tensor<8x1xi32>\n %r = \"stablehlo.scatter\"(%x, %i, %u) ({\n"
      " ^bb0(%a: tensor<f64>, %b: tensor<f64>):\n %s = stablehlo.add %a, %b : tensor<f64>\n"
      " stablehlo.return %s : tensor<f64>\n }) {scatter_dimension_numbers = #stablehlo.scatter<" +
      plain +
      ">} : (tensor<5xf32>, tensor<8x1xi32>, tensor<8xf32>) -> tensor<5xf64>\n"
      " return %r : tensor<5xf64>\n } }";
  expect_same(run(wide, 256, true));
  EXPECT_TRUE(stays("5x", "8x", plain, "f32", "add", "tensor<8x1xi8>"));
  EXPECT_TRUE(stays("99x", "8x", plain, "f32"));
  EXPECT_TRUE(stays("5x", "8x2x",
                    "update_window_dims = [1], scatter_dims_to_operand_dims = [0], "
                    "index_vector_dim = 1",
                    "f32"));
}

}  // namespace
}  // namespace hekla::testing
