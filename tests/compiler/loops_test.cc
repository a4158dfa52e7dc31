// SPDX-License-Identifier: Apache-2.0
// Loops, donated inputs, static windows and staged reductions: what their plans look like, and that
// they compute what the evaluator computes.
#include <gtest/gtest.h>

#include <algorithm>
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

struct Counts {
  int64_t copies = 0, kernels = 0;
};
Counts count(const plan::Steps& steps) {
  Counts counts;
  for (const plan::Step& step : steps) {
    counts.copies += std::holds_alternative<plan::CopyStep>(step.what);
    counts.kernels += std::holds_alternative<plan::KernelStep>(step.what);
  }
  return counts;
}

// Counted loops.
std::vector<const plan::RepeatStep*> loops_of(const plan::Steps& steps) {
  std::vector<const plan::RepeatStep*> loops;
  for (const plan::Step& step : steps) {
    if (const auto* loop = std::get_if<plan::RepeatStep>(&step.what)) loops.push_back(loop);
  }
  return loops;
}

HostArray random_array(const ir::Type& type) {
  std::mt19937_64 random(11);
  HostArray array(type.dtype(), type.dims());
  const int64_t width = dtype_bytes(type.dtype());
  for (int64_t i = 0; i < array.size(); ++i) {
    uint64_t bits = random() % 100;
    if (is_float(type.dtype())) {
      bits = float_to_bits(type.dtype(), static_cast<double>(random() % 4096) / 1024 - 2);
    }
    std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
  }
  return array;
}

// The plan, once its results are those of the evaluator: equal bytes, or floats within `tolerance`.
std::shared_ptr<const plan::LaunchPlan> checked_plan(const std::string& text, double tolerance = 0,
                                                     bool runs = true, bool fuse = true) {
  Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
  EXPECT_TRUE(read.ok()) << read.status().message() << "\n" << text;
  if (!read.ok()) return nullptr;
  const std::shared_ptr<const ir::Module> module = std::move(*read);
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.fuse = fuse;
  const auto plan = compile_program(module, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return nullptr;
  if (!runs) return *plan;
  std::vector<HostArray> inputs;
  for (const ir::Type& type : module->entry()->type.elements()) {
    inputs.push_back(random_array(type));
  }
  const auto want = reference::evaluate(*module, inputs);
  const auto got = run_plan(**plan, inputs);
  EXPECT_TRUE(want.ok() && got.ok());
  for (size_t r = 0; want.ok() && got.ok() && r < want->size(); ++r) {
    const HostArray& array = (*want)[r];
    if (tolerance == 0 || array.dtype() != DType::kF32) {
      EXPECT_EQ(std::memcmp(array.data(), (*got)[r].data(), (*got)[r].size()), 0) << "result " << r;
      continue;
    }
    for (int64_t i = 0; i < array.size(); ++i) {
      float value = 0;
      std::memcpy(&value, (*got)[r].data() + i * 4, sizeof(value));
      EXPECT_NEAR(value, array.as<float>()[i], tolerance) << "result " << r << ", element " << i;
    }
  }
  return *plan;
}

// A loop whose first carried array gets the sums of adjacent elements.
std::string stencil_loop(const std::string& iterations, const std::string& more_carried,
                         const std::string& types, const std::string& yields) {
  return R"(module { func.func public @main(%a: tensor<8x9xf32>, %b: tensor<8x9xf32>) -> (tensor<8x9xf32>, tensor<8x9xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %end = stablehlo.constant dense<)" +
         iterations + R"(> : tensor<i32>
    %r:)" +
         more_carried + R"( : tensor<i32>, )" + types + R"(
     cond {
      %c = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %f = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.slice %u [0:8, 0:8] : (tensor<8x9xf32>) -> tensor<8x8xf32>
      %p = stablehlo.pad %s, %f, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x9xf32>
      %next = stablehlo.subtract %p, %v : tensor<8x9xf32>
      %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %n, )" +
         yields + R"(
    }
    return %r#1, %r#2 : tensor<8x9xf32>, tensor<8x9xf32>
  } })";
}

TEST(Loops, CarriedBuffersRotate) {
  // u' = f(u), v stays: two bodies, no copy. An odd number of iterations takes one out.
  for (const char* iterations : {"6", "7"}) {
    const auto plan =
        checked_plan(stencil_loop(iterations, "3 = stablehlo.while(%i = %zero, %u = %a, %v = %b)",
                                  "tensor<8x9xf32>, tensor<8x9xf32>",
                                  "%next, %v : tensor<i32>, tensor<8x9xf32>, tensor<8x9xf32>"));
    ASSERT_NE(plan, nullptr);
    const auto loops = loops_of(plan->steps);
    ASSERT_EQ(loops.size(), 1u) << plan::to_string(*plan);
    EXPECT_EQ(loops[0]->count, 3);
    EXPECT_EQ(count(loops[0]->body).copies, 0) << plan::to_string(*plan);
    EXPECT_EQ(count(loops[0]->body).kernels, 2) << plan::to_string(*plan);
  }
}

TEST(Loops, ThreeBuffersRotate) {
  // u' = f(u, v), v' = u.
  for (const char* iterations : {"9", "10", "11", "2", "1", "0"}) {
    const auto plan =
        checked_plan(stencil_loop(iterations, "3 = stablehlo.while(%i = %zero, %u = %a, %v = %b)",
                                  "tensor<8x9xf32>, tensor<8x9xf32>",
                                  "%next, %u : tensor<i32>, tensor<8x9xf32>, tensor<8x9xf32>"));
    ASSERT_NE(plan, nullptr);
    if (std::string_view(iterations) != "9") continue;
    const auto loops = loops_of(plan->steps);
    ASSERT_EQ(loops.size(), 1u);
    EXPECT_EQ(count(loops[0]->body).copies, 0) << plan::to_string(*plan);
  }
}

TEST(Loops, ValuesFromOutsideAreCopied) {
  // u' = b, which the loop does not write, and v' = u.
  for (const char* iterations : {"5", "6"}) {
    const auto plan =
        checked_plan(stencil_loop(iterations, "3 = stablehlo.while(%i = %zero, %u = %a, %v = %b)",
                                  "tensor<8x9xf32>, tensor<8x9xf32>",
                                  "%b, %u : tensor<i32>, tensor<8x9xf32>, tensor<8x9xf32>"));
    ASSERT_NE(plan, nullptr);
  }
}

TEST(Loops, TripCountsAreThoseOfTheProgram) {
  const auto trips = [](const std::string& type, const std::string& start, const std::string& limit,
                        const std::string& step, const std::string& direction, bool ends = true) {
    const std::string t = "tensor<" + type + ">";
    const auto plan = checked_plan(
        "module { func.func public @main(%x: tensor<f32>) -> (tensor<f32>, " + t + ") {\n" +
            "%s = stablehlo.constant dense<" + start + "> : " + t + "\n" +
            "%l = stablehlo.constant dense<" + limit + "> : " + t + "\n" +
            "%d = stablehlo.constant dense<" + step + "> : " + t + "\n" +
            "%r:2 = stablehlo.while(%i = %s, %y = %x) : " + t + ", tensor<f32>\n cond {\n" +
            "%c = stablehlo.compare " + direction + ", %i, %l, SIGNED : (" + t + ", " + t +
            ") -> tensor<i1>\n stablehlo.return %c : tensor<i1>\n } do {\n" +
            "%n = stablehlo.add %i, %d : " + t + "\n %z = stablehlo.add %y, %x : tensor<f32>\n" +
            "stablehlo.return %n, %z : " + t +
            ", tensor<f32>\n }\n return %r#1, %r#0 : tensor<f32>, " + t + "\n } }",
        0, ends, /*fuse=*/false);
    if (plan == nullptr) return int64_t{-2};
    const auto loops = loops_of(plan->steps);
    if (loops.size() == 1) return loops[0]->count;
    const bool is_while =
        std::any_of(plan->steps.begin(), plan->steps.end(), plan::holds<plan::WhileStep>);
    // One that does not run is no step.
    return int64_t{!loops.empty() ? -2 : is_while ? -1 : 0};
  };
  EXPECT_EQ(trips("i32", "0", "10", "1", "LT"), 10);
  EXPECT_EQ(trips("i64", "-3", "10", "4", "LT"), 4);
  EXPECT_EQ(trips("i32", "0", "10", "1", "LE"), 11);
  EXPECT_EQ(trips("i32", "10", "0", "-3", "GT"), 4);
  EXPECT_EQ(trips("i32", "10", "1", "-3", "GE"), 4);
  EXPECT_EQ(trips("i32", "5", "5", "1", "LT"), 0);
  EXPECT_EQ(trips("i32", "0", "12", "3", "NE"), 4);
  // The counter wraps on its way, or the loop has another form.
  EXPECT_EQ(trips("i32", "2147483640", "2147483647", "4", "LT", false), -1);
  EXPECT_EQ(trips("i32", "3", "0", "1", "EQ"), -1);
}

TEST(Windows, AScatterIntoOneWindowIsOneKernel) {
  for (const char* reducer : {"add", "multiply", "maximum"}) {
    const auto plan = checked_plan(
        std::string(
            R"(module { func.func public @main(%a: tensor<8x9xf32>, %u: tensor<6x7xf32>) -> tensor<8x9xf32> {
    %i = stablehlo.constant dense<1> : tensor<2xi32>
    %r = "stablehlo.scatter"(%a, %i, %u) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.)") +
        reducer + R"( %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1]>} : (tensor<8x9xf32>, tensor<2xi32>, tensor<6x7xf32>) -> tensor<8x9xf32>
    return %r : tensor<8x9xf32>
  } })");
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->steps.size(), 1u) << plan::to_string(*plan);
    EXPECT_TRUE(plan->constants.empty()) << plan::to_string(*plan);
  }
}

TEST(Donations, AnUpdateTakesTheMemoryOfItsInput) {
  const std::string head = "module { func.func public @main(%p: tensor<100xf32> ";
  const auto update = checked_plan(
      head +
      R"({tf.aliasing_output = 0 : i32}, %g: tensor<100xf32> {jax.buffer_donor = true}) -> (tensor<100xf32>, tensor<100xf32>) {
    %q = stablehlo.subtract %p, %g : tensor<100xf32>
    %h = stablehlo.add %g, %g : tensor<100xf32>
    return %q, %h : tensor<100xf32>, tensor<100xf32>
  } })");
  ASSERT_NE(update, nullptr);
  EXPECT_EQ(update->output_input, (std::vector<int32_t>{0, 1}));
  // A result that is made of other elements of the input does not.
  const auto reversed = checked_plan(head + R"({tf.aliasing_output = 0 : i32}) -> tensor<100xf32> {
    %q = stablehlo.reverse %p, dims = [0] : tensor<100xf32>
    return %q : tensor<100xf32>
  } })");
  ASSERT_NE(reversed, nullptr);
  EXPECT_EQ(reversed->output_input, (std::vector<int32_t>{-1}));
}

std::string reduction(const std::string& from, const std::string& to, const std::string& dims,
                      const std::string& type, const std::string& op) {
  const std::string scalar = "tensor<" + type + ">";
  return "module { func.func public @main(%x: tensor<" + from + type + ">, %i: " + scalar +
         ") -> tensor<" + to + type + "> {\n %y = stablehlo.multiply %x, %x : tensor<" + from +
         type + ">\n %r = stablehlo.reduce(%y init: %i) applies stablehlo." + op +
         " across dimensions = [" + dims + "] : (tensor<" + from + type + ">, " + scalar +
         ") -> tensor<" + to + type + ">\n return %r : tensor<" + to + type + ">\n } }";
}

TEST(Reductions, LongLinesAreReducedInParts) {
  struct Form {
    const char *from, *to, *dims;
  };
  for (const Form& form :
       {Form{"1000x", "", "0"}, Form{"140007x", "", "0"}, Form{"37x41x", "", "0, 1"},
        Form{"3x2001x", "3x", "1"}, Form{"5000x24x", "24x", "0"}, Form{"40x50x64x", "64x", "0, 1"},
        Form{"9x5x128x", "5x", "0, 2"}}) {
    for (const char* op : {"add", "maximum", "multiply"}) {
      SCOPED_TRACE(std::string(form.from) + " " + op);
      ASSERT_NE(checked_plan(reduction(form.from, form.to, form.dims, "i32", op)), nullptr);
    }
    const auto plan = checked_plan(reduction(form.from, form.to, form.dims, "f32", "add"), 0.2);
    ASSERT_NE(plan, nullptr);
    EXPECT_GT(count(plan->steps).kernels, 1) << plan::to_string(*plan);
  }
}

// Sums and greatest elements of x and of its squares.
std::string several_reductions(const std::string& from, const std::string& to,
                               const std::string& dims, const std::string& type) {
  const std::string x = "tensor<" + from + type + ">", e = "tensor<" + type + ">";
  const std::string r = "tensor<" + to + type + ">";
  const auto reduce = [&](const std::string& name, const std::string& of, const std::string& op) {
    return " %" + name + " = stablehlo.reduce(%" + of + " init: %i) applies stablehlo." + op +
           " across dimensions = [" + dims + "] : (" + x + ", " + e + ") -> " + r + "\n";
  };
  return "module { func.func public @main(%x: " + x + ", %i: " + e + ") -> (" + r + ", " + r +
         ", " + r + ", " + r + ") {\n %y = stablehlo.multiply %x, %x : " + x + "\n" +
         reduce("sum", "x", "add") + reduce("most", "x", "maximum") +
         reduce("squares", "y", "add") + reduce("least", "y", "minimum") +
         " return %sum, %most, %squares, %least : " + r + ", " + r + ", " + r + ", " + r + "\n } }";
}

TEST(Reductions, SiblingsGiveWhatEachGivesAlone) {
  struct Form {
    const char *from, *to, *dims;
  };
  for (const Form& form :
       {Form{"1000x", "", "0"}, Form{"140007x", "", "0"}, Form{"3x2001x", "3x", "1"},
        Form{"5000x24x", "24x", "0"}, Form{"9x5x128x", "5x", "0, 2"}}) {
    for (const char* type : {"f32", "i32", "bf16", "f64"}) {
      SCOPED_TRACE(std::string(form.from) + type);
      const auto module =
          stablehlo::read_program(several_reductions(form.from, form.to, form.dims, type));
      ASSERT_TRUE(module.ok()) << module.status().message();
      std::vector<HostArray> inputs;
      for (const ir::Type& input : (*module)->entry()->type.elements()) {
        inputs.push_back(random_array(input));
      }
      // Where the greatest element shows how zeros and NaN are ordered.
      if (std::string_view(type) == "f32") {
        inputs[0].mutable_as<float>()[17] = -0.0f;
        inputs[0].mutable_as<float>()[400] = std::nanf("");
      }
      std::vector<std::vector<std::byte>> alone;
      int64_t kernels = 0;
      for (const bool together : {false, true}) {
        CompilerOptions options;
        options.verify_passes = true;
        plan::DeviceTraits traits;
        traits.merges_reductions = together;
        const auto plan =
            compile_program(std::shared_ptr(ir::clone_module(**module)), options, traits);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        const auto results = run_plan(**plan, inputs);
        ASSERT_TRUE(results.ok()) << results.status().message();
        if (!together) {
          alone = *results;
          kernels = count((*plan)->steps).kernels;
        } else {
          EXPECT_EQ(*results, alone);
          EXPECT_EQ(count((*plan)->steps).kernels * 4, kernels) << plan::to_string(**plan);
        }
      }
    }
  }
}

TEST(Reductions, ASumThatAnotherNeedsIsNoSibling) {
  plan::DeviceTraits traits;
  traits.merges_reductions = true;
  auto module = stablehlo::read_program(R"(module {
   func.func public @main(%x: tensor<9000xf32>) -> (tensor<f32>, tensor<f32>) {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %a = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<9000xf32>, tensor<f32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<9000xf32>
    %d = stablehlo.subtract %x, %b : tensor<9000xf32>
    %m = stablehlo.reduce(%d init: %z) applies stablehlo.maximum across dimensions = [0] : (tensor<9000xf32>, tensor<f32>) -> tensor<f32>
    return %a, %m : tensor<f32>, tensor<f32>
  } })");
  ASSERT_TRUE(module.ok()) << module.status().message();
  const std::vector<HostArray> inputs{random_array((*module)->entry()->type.elements()[0])};
  const auto plan =
      compile_program(std::shared_ptr<const ir::Module>(std::move(*module)), {}, traits);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto results = run_plan(**plan, inputs);
  ASSERT_TRUE(results.ok());
  float sum = 0, most = 0;
  std::memcpy(&sum, (*results)[0].data(), sizeof(sum));
  std::memcpy(&most, (*results)[1].data(), sizeof(most));
  const float greatest = *std::max_element(inputs[0].as<float>(), inputs[0].as<float>() + 9000);
  EXPECT_EQ(most, std::max(0.0f, greatest - sum));
}

TEST(Reductions, AnUnknownReducerKeepsTheOrder) {
  // The last element that is not zero: associative, and does not commute.
  const auto plan =
      checked_plan(R"(module { func.func public @main(%x: tensor<20011xi32>) -> tensor<i32> {
    %z = stablehlo.constant dense<0> : tensor<i32>
    %r = stablehlo.reduce(%x init: %z) across dimensions = [0] : (tensor<20011xi32>, tensor<i32>) -> tensor<i32>
     reducer(%a: tensor<i32>, %b: tensor<i32>) {
      %c = stablehlo.compare EQ, %b, %z, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %s = stablehlo.select %c, %a, %b : tensor<i1>, tensor<i32>
      stablehlo.return %s : tensor<i32>
    }
    return %r : tensor<i32>
  } })");
  ASSERT_NE(plan, nullptr);
  EXPECT_GT(count(plan->steps).kernels, 1) << plan::to_string(*plan);
}

}  // namespace
}  // namespace hekla::testing
