// SPDX-License-Identifier: Apache-2.0
// Loops whose iterations each point does by itself are kernels; others are not. And updates at
// known places write parts of memory, by kernels that they share.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/plan_interpreter.h"

namespace hekla::testing {
namespace {

using Plan = std::shared_ptr<const plan::LaunchPlan>;

HostArray ramp(const ir::Type& type) {
  HostArray array(type.dtype(), type.dims());
  for (int64_t i = 0; i < array.size(); ++i) {
    if (type.dtype() == DType::kF32) {
      array.mutable_as<float>()[i] = 0.5F + 0.01F * static_cast<float>(i);
    } else {
      array.mutable_as<int32_t>()[i] = static_cast<int32_t>(3 * i + 1);
    }
  }
  return array;
}

// The plan, once the evaluator's results are also the plan's.
Plan same_as_evaluated(const std::string& text, const plan::DeviceTraits& traits = {},
                       CompilerOptions options = {}) {
  Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
  EXPECT_TRUE(read.ok()) << read.status().message() << "\n" << text;
  if (!read.ok()) return nullptr;
  const std::shared_ptr<const ir::Module> module = std::move(*read);
  options.verify_passes = true;
  auto plan = compile_program(module, options, traits);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return nullptr;
  std::vector<HostArray> inputs;
  for (const ir::Type& type : module->entry()->type.elements()) inputs.push_back(ramp(type));
  const auto want = reference::evaluate(*module, inputs);
  const auto got = run_plan(**plan, inputs);
  EXPECT_TRUE(want.ok()) << want.status().message();
  EXPECT_TRUE(got.ok()) << got.status().message();
  for (size_t r = 0; want.ok() && got.ok() && r < want->size(); ++r) {
    EXPECT_EQ(std::memcmp((*want)[r].data(), (*got)[r].data(), (*got)[r].size()), 0)
        << "result " << r << "\n"
        << text << to_string(**plan);
  }
  return *plan;
}

int64_t kernel_steps(const plan::LaunchPlan& plan) {
  int64_t count = 0;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    count += std::holds_alternative<plan::KernelStep>(step.what);
  });
  return count;
}

int64_t counted_loops(const plan::LaunchPlan& plan) {
  int64_t count = 0;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    count += std::holds_alternative<plan::RepeatStep>(step.what);
  });
  return count;
}

struct Loop {
  std::string arguments = "%x: tensor<7x3xf32>";
  std::string before;                     // operations in front of the loop
  std::string carried = "%v = %x";        // beside the counter %i
  std::string types = "tensor<7x3xf32>";  // of these
  std::string body;
  std::string next;  // of these
  int results = 1;
  int trips = 10;
};

// All that it carries beside the counter is returned.
std::string text_of(const Loop& loop) {
  std::string results;
  for (int i = 1; i <= loop.results; ++i) results += fmt::format("{}%r#{}", i > 1 ? ", " : "", i);
  return fmt::format(R"(func.func @main({}) -> ({}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<{}> : tensor<i32>
{}  %r:{} = stablehlo.while(%i = %zero, {}) : tensor<i32>, {}
   cond {{
    %c = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
{}    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, {} : tensor<i32>, {}
  }}
  return {} : {}
}})",
                     loop.arguments, loop.types, loop.trips, loop.before, loop.results + 1,
                     loop.carried, loop.types, loop.body, loop.next, loop.types, results,
                     loop.types);
}

constexpr char kHalve[] =
    "    %h = stablehlo.constant dense<0.5> : tensor<7x3xf32>\n"
    "    %w = stablehlo.multiply %v, %h : tensor<7x3xf32>\n";

// The loop is one kernel, as it is and in parts; `is_own`: whose results may take the place of what
// it carries.
void expect_kernel(const Loop& loop, bool is_own = false) {
  const std::string text = text_of(loop);
  const Plan whole = same_as_evaluated(text);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(counted_loops(*whole), 0) << to_string(*whole);
  EXPECT_EQ(kernel_steps(*whole), 1) << to_string(*whole);
  const auto& operands = whole->kernels.at(0).operands;
  EXPECT_EQ(std::any_of(operands.begin(), operands.end(),
                        [](const kernel::KernelOperand& o) { return o.is_pointwise; }),
            is_own);
  CompilerOptions parts;
  parts.plan.small_limits = true;
  const Plan several = same_as_evaluated(text, {}, parts);
  ASSERT_NE(several, nullptr);
  EXPECT_LE(several->kernels.size(), 2u) << to_string(*several);
  CompilerOptions apart;
  apart.plan.fuse = false;
  const Plan steps = same_as_evaluated(text, {}, apart);
  ASSERT_NE(steps, nullptr);
  EXPECT_EQ(counted_loops(*steps), 1) << to_string(*steps);
}

void expect_steps(const Loop& loop, const std::string& why) {
  const Plan plan = same_as_evaluated(text_of(loop));
  ASSERT_NE(plan, nullptr);
  EXPECT_GE(counted_loops(*plan), 1) << to_string(*plan);
  const std::string said = decisions_string(plan->decisions);
  EXPECT_NE(said.find(why), std::string::npos) << said;
}

TEST(PointwiseLoops, ElementsStayInAKernel) {
  expect_kernel({.body = kHalve, .next = "%w"}, /*is_own=*/true);
}

TEST(PointwiseLoops, TheCounterIsCarriedWhereItIsUsed) {
  expect_kernel({.body = R"(    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<7x3xf32>
    %w = stablehlo.subtract %b, %v : tensor<7x3xf32>
)",
                 .next = "%w"});
}

TEST(PointwiseLoops, ArraysAndNumbersGoRoundTogether) {
  expect_kernel(
      {.arguments = "%x: tensor<7x3xf32>, %y: tensor<21xf32>, %s: tensor<f32>",
       .carried = "%v = %x, %u = %y, %t = %s",
       .types = "tensor<7x3xf32>, tensor<21xf32>, tensor<f32>",
       .body =
           R"(    %b = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<21xf32>
    %f = stablehlo.reshape %v : (tensor<7x3xf32>) -> tensor<21xf32>
    %w = stablehlo.multiply %f, %b : tensor<21xf32>
    %g = stablehlo.reshape %u : (tensor<21xf32>) -> tensor<7x3xf32>
    %m = stablehlo.negate %t : tensor<f32>
)",
       .next = "%g, %w, %m",
       .results = 3});
}

// As lax.scan writes it: rows of one array are read, rows of another written.
TEST(PointwiseLoops, RowsAreReadAndWritten) {
  const std::string row =
      R"(    %r = stablehlo.dynamic_slice %a, %i, %zero, sizes = [1, 3] : (tensor<10x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
    %f = stablehlo.reshape %r : (tensor<1x3xf32>) -> tensor<3xf32>
    %w = stablehlo.subtract %f, %v : tensor<3xf32>
    %g = stablehlo.reshape %w : (tensor<3xf32>) -> tensor<1x3xf32>
    %p = stablehlo.dynamic_update_slice %o, %g, %i, %zero : (tensor<10x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<10x3xf32>
)";
  for (const int trips : {1, 4, 10}) {  // the rest keeps what it was
    expect_kernel({.arguments = "%x: tensor<3xf32>, %y: tensor<10x3xf32>",
                   .carried = "%v = %x, %a = %y, %o = %y",
                   .types = "tensor<3xf32>, tensor<10x3xf32>, tensor<10x3xf32>",
                   .body = row,
                   .next = "%w, %a, %p",
                   .results = 3,
                   .trips = trips});
  }
}

TEST(PointwiseLoops, OfANumberOnePointWritesRows) {
  expect_kernel({.arguments = "%x: tensor<3xf32>, %s: tensor<f32>, %y: tensor<10xf32>",
                 .carried = "%v = %x, %t = %s, %o = %y",
                 .types = "tensor<3xf32>, tensor<f32>, tensor<10xf32>",
                 .body = R"(    %w = stablehlo.add %v, %v : tensor<3xf32>
    %m = stablehlo.negate %t : tensor<f32>
    %g = stablehlo.reshape %m : (tensor<f32>) -> tensor<1xf32>
    %p = stablehlo.dynamic_update_slice %o, %g, %i : (tensor<10xf32>, tensor<1xf32>, tensor<i32>) -> tensor<10xf32>
)",
                 .next = "%w, %m, %p",
                 .results = 3});
}

TEST(PointwiseLoops, WhatLooksAtOtherPointsTakesSteps) {
  expect_steps(
      {.body = "    %w = stablehlo.reverse %v, dims = [0] : tensor<7x3xf32>\n", .next = "%w"},
      "stablehlo.reverse looks at other points");
  expect_steps({.body = R"(    %f = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%v init: %f) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<7x3xf32>, tensor<f32>) -> tensor<f32>
    %w = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<7x3xf32>
)",
                .next = "%w"},
               "stablehlo.broadcast_in_dim looks at other points");
  expect_steps({.arguments = "%x: tensor<7x3xf32>, %y: tensor<5xf32>",
                .carried = "%v = %x, %u = %y",
                .types = "tensor<7x3xf32>, tensor<5xf32>",
                .body = std::string(kHalve) + "    %d = stablehlo.negate %u : tensor<5xf32>\n",
                .next = "%w, %d",
                .results = 2},
               "it carries arrays of different sizes");
}

// An array that an iteration writes a part of and reads another of.
TEST(PointwiseLoops, WhatReadsWhatItWroteTakesSteps) {
  expect_steps(
      {.arguments = "%x: tensor<12xf32>",
       .types = "tensor<12xf32>",
       .body =
           R"(    %r = stablehlo.dynamic_slice %v, %i, sizes = [1] : (tensor<12xf32>, tensor<i32>) -> tensor<1xf32>
    %m = stablehlo.negate %r : tensor<1xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.dynamic_update_slice %v, %m, %j : (tensor<12xf32>, tensor<1xf32>, tensor<i32>) -> tensor<12xf32>
)",
       .next = "%w"},
      "looks at other points");
}

// As JAX writes a print that nothing waits for, and a check: no value of the loop needs them.
TEST(PointwiseLoops, WhatTellsOthersTakesSteps) {
  for (const auto& [told, why] :
       {std::pair(R"(    %told = stablehlo.create_token : !stablehlo.token
    %sent = "stablehlo.send"(%v, %told) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 2>, is_host_transfer = true}> : (tensor<7x3xf32>, !stablehlo.token) -> !stablehlo.token
)",
                  "stablehlo.send in it"),
        std::pair("    stablehlo.custom_call @check(%v) {has_side_effect = true} : "
                  "(tensor<7x3xf32>) -> ()\n",
                  "stablehlo.custom_call in it")}) {
    const std::string text = text_of({.body = std::string(kHalve) + told, .next = "%w"});
    Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
    ASSERT_TRUE(read.ok()) << read.status().message() << "\n" << text;
    const auto plan = compile_program(std::move(*read), {}, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(counted_loops(**plan), 1) << to_string(**plan);
    const std::string said = decisions_string((*plan)->decisions);
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }
}

// Of a million trips, on a device that ends loops after 65,535 in all.
TEST(PointwiseLoops, ManyTripsAreSeveralKernels) {
  Result<std::unique_ptr<ir::Module>> read =
      stablehlo::read_program(text_of({.body = kHalve, .next = "%w", .trips = 1'000'000}));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const std::shared_ptr<const ir::Module> module = std::move(*read);
  for (const int64_t most : {int64_t{0}, int64_t{65'535}}) {
    plan::DeviceTraits traits;
    traits.max_loop_iterations = most;
    const auto plan = compile_program(module, {}, traits);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    int64_t launches = 0;
    for (const plan::Step& step : (*plan)->steps) {
      const auto* loop = std::get_if<plan::RepeatStep>(&step.what);
      launches += loop == nullptr ? 1 : loop->count * static_cast<int64_t>(loop->body.size());
    }
    EXPECT_LT(launches, 100) << to_string(**plan);
    EXPECT_GE(launches, most == 0 ? 1 : 1'000'000 / most) << to_string(**plan);
  }
}

std::string parts(int count, const std::string& type, const std::string& whole,
                  const std::string& made) {
  std::string arguments, body, names, types;
  for (int i = 0; i < count; ++i) {
    arguments += fmt::format("{}%x{}: {}", i > 0 ? ", " : "", i, type);
    body += fmt::format(fmt::runtime(made), fmt::arg("i", i));
    names += fmt::format("{}%y{}", i > 0 ? ", " : "", i);
    types += fmt::format("{}{}", i > 0 ? ", " : "", type);
  }
  return fmt::format(
      "func.func @main({}) -> {} {{\n{}  %all = stablehlo.concatenate {}, dim = {} : "
      "({}) -> {}\n  return %all : {}\n}}",
      arguments, whole, body, names, whole.starts_with("tensor<6x") ? 1 : 0, types, whole, whole);
}

constexpr char kNegated[] = "  %y{i} = stablehlo.negate %x{i} : tensor<";

// Concatenates of many operands: the kernels do not grow in number with them.
TEST(Updates, OperandsOfAConcatenateShareKernels) {
  CompilerOptions options;
  options.plan.small_limits = true;  // 30 are many
  // Computed straight into the result, where its elements lie right, and elsewhere.
  for (const int size : {8, 7}) {
    const std::string type = fmt::format("tensor<{}xf32>", size);
    const Plan plan =
        same_as_evaluated(parts(30, type, fmt::format("tensor<{}xf32>", 30 * size),
                                std::string(kNegated) + fmt::format("{}xf32>\n", size)),
                          {}, options);
    ASSERT_NE(plan, nullptr);
    EXPECT_LE(plan->kernels.size(), 3u) << to_string(*plan);
    EXPECT_EQ(kernel_steps(*plan), 30) << to_string(*plan);
  }
  // Columns.
  const Plan columns = same_as_evaluated(
      parts(30, "tensor<6x4xf32>", "tensor<6x120xf32>", std::string(kNegated) + "6x4xf32>\n"), {},
      options);
  ASSERT_NE(columns, nullptr);
  EXPECT_LE(columns->kernels.size(), 2u) << to_string(*columns);
  // What is in memory is copied, but for the first, which the array begins with.
  std::string arguments, names, types;
  for (int i = 0; i < 30; ++i) {
    arguments += fmt::format("{}%y{}: tensor<{}xf32>", i > 0 ? ", " : "", i, 15 + i);
    names += fmt::format("{}%y{}", i > 0 ? ", " : "", i);
    types += fmt::format("{}tensor<{}xf32>", i > 0 ? ", " : "", 15 + i);
  }
  const Plan copies = same_as_evaluated(
      fmt::format(
          "func.func @main({}) -> tensor<885xf32> {{\n  %all = stablehlo.concatenate {}, dim "
          "= 0 : ({}) -> tensor<885xf32>\n  return %all : tensor<885xf32>\n}}",
          arguments, names, types),
      {}, options);
  ASSERT_NE(copies, nullptr);
  EXPECT_EQ(copies->kernels.size(), 1u) << to_string(*copies);
}

// An update that is made of what it overwrites.
TEST(Updates, PartsAreReadBeforeTheyAreWritten) {
  same_as_evaluated(R"(func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %i2 = stablehlo.constant dense<2> : tensor<i32>
  %i9 = stablehlo.constant dense<9> : tensor<i32>
  %y = stablehlo.negate %x : tensor<8x4xf32>
  %a = stablehlo.slice %y [1:4, 0:4] : (tensor<8x4xf32>) -> tensor<3x4xf32>
  %b = stablehlo.add %a, %a : tensor<3x4xf32>
  %z = stablehlo.dynamic_update_slice %y, %b, %i2, %i0 : (tensor<8x4xf32>, tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
  %c = stablehlo.slice %z [0:2, 0:4] : (tensor<8x4xf32>) -> tensor<2x4xf32>
  %w = stablehlo.dynamic_update_slice %z, %c, %i9, %i2 : (tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
  return %w : tensor<8x4xf32>
})");
}

}  // namespace
}  // namespace hekla::testing
