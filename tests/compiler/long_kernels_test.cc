// SPDX-License-Identifier: Apache-2.0
// Kernels that would get too long become several, with the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/compiler/compile.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/plan_interpreter.h"

namespace hekla::testing {
namespace {

std::shared_ptr<const ir::Module> read(const std::string& text) {
  Result<std::unique_ptr<ir::Module>> module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  return module.ok() ? std::shared_ptr<const ir::Module>(std::move(*module)) : nullptr;
}

// `count` operations of one operand type, each on the result of the one before.
std::string chain(const std::string& op, const std::string& type, int count, std::string from) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string to = fmt::format("%c{}", i);
    const bool is_binary = op == "stablehlo.power";
    text += fmt::format("  {} = {} {}{} : {}\n", to, op, from, is_binary ? ", " + from : "", type);
    from = to;
  }
  return text + fmt::format("  return {} : {}\n", from, type);
}

std::vector<HostArray> ramps(const ir::Module& module) {
  std::vector<HostArray> inputs;
  for (const ir::Type& type : module.entry()->type.elements()) {
    HostArray array(type.dtype(), type.dims());
    for (int64_t i = 0; i < array.size(); ++i) {
      array.mutable_as<float>()[i] = 0.5F + 0.01F * static_cast<float>(i);
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

// Compiles and runs the program as it is and with every operation a kernel of its own.
void expect_cut(const std::string& text, const CompilerOptions& options) {
  const auto module = read(text);
  ASSERT_NE(module, nullptr);
  const auto plan = compile_program(module, options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_GT((*plan)->kernels.size(), 1u);
  for (const kernel::Kernel& kernel : (*plan)->kernels) {
    EXPECT_LE(kernel.body.size(), options.plan.max_instructions) << kernel.name;
  }
  for (const plan::Step& step : (*plan)->steps) {
    EXPECT_FALSE(std::holds_alternative<plan::HostStep>(step.what));
  }
  CompilerOptions apart = options;
  apart.plan.fuse = false;
  const auto whole = compile_program(module, apart);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  const auto got = run_plan(**plan, ramps(*module));
  const auto want = run_plan(**whole, ramps(*module));
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_TRUE(want.ok()) << want.status().to_string();
  EXPECT_EQ(*got, *want);
}

TEST(LongKernels, ChainsAreCut) {
  expect_cut("func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {\n" +
                 chain("stablehlo.power", "tensor<5xf32>", 250, "%x") + "}\n",
             {});
}

// Many short values that one reads.
TEST(LongKernels, WideOnesAreCut) {
  std::string text = "func.func @main(%x: tensor<90xf32>) -> tensor<180xf32> {\n";
  std::string names, types;
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("  %s{} = stablehlo.slice %x [{}:{}] : (tensor<90xf32>) -> tensor<3xf32>\n",
                        i, i, i + 3);
    text += fmt::format("  %t{} = stablehlo.tanh %s{} : tensor<3xf32>\n", i, i);
    names += fmt::format("{}%t{}", i > 0 ? ", " : "", i);
    types += i > 0 ? ", tensor<3xf32>" : "tensor<3xf32>";
  }
  text += fmt::format(
      "  %c = stablehlo.concatenate {}, dim = 0 : ({}) -> tensor<180xf32>\n"
      "  return %c : tensor<180xf32>\n}}\n",
      names, types);
  CompilerOptions options;
  options.plan.max_instructions = 700;
  expect_cut(text, options);
}

// Rows that are computed side by side behind a product multiply the instructions.
TEST(LongKernels, EpiloguesOfProductsAreCut) {
  expect_cut(
      "func.func @main(%a: tensor<9x8xf32>, %b: tensor<8x16xf32>) -> tensor<9x16xf32> {\n"
      "  %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<9x8xf32>, "
      "tensor<8x16xf32>) -> tensor<9x16xf32>\n" +
          chain("stablehlo.tanh", "tensor<9x16xf32>", 160, "%p") + "}\n",
      {});
}

// Kernels with several results, and updates in place.
TEST(LongKernels, SiblingsAndUpdatesAreCut) {
  CompilerOptions options;
  options.plan.max_instructions = 150;
  expect_cut(
      "func.func @main(%x: tensor<5xf32>, %y: tensor<9xf32>) -> (tensor<5xf32>, tensor<5xf32>, "
      "tensor<9xf32>) {\n"
      "  %t = stablehlo.tanh %x : tensor<5xf32>\n"
      "  %u = stablehlo.tanh %t : tensor<5xf32>\n"
      "  %e = stablehlo.exponential %x : tensor<5xf32>\n"
      "  %f = stablehlo.exponential %e : tensor<5xf32>\n"
      "  %i = stablehlo.constant dense<2> : tensor<i32>\n"
      "  %z = stablehlo.tanh %y : tensor<9xf32>\n"
      "  %l = stablehlo.logistic %f : tensor<5xf32>\n"
      "  %d = stablehlo.dynamic_update_slice %z, %l, %i : (tensor<9xf32>, tensor<5xf32>, "
      "tensor<i32>) -> tensor<9xf32>\n"
      "  return %u, %f, %d : tensor<5xf32>, tensor<5xf32>, tensor<9xf32>\n}\n",
      options);
}

}  // namespace
}  // namespace hekla::testing
