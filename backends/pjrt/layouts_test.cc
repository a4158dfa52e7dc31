// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/layouts.h"

#include <gtest/gtest.h>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::pjrt {
namespace {

TEST(Layouts, TextGoesBothWays) {
  for (const std::string text : {"{0,1}", "{0,2,1}", "{1,2,0}", "{0,1,2,3}"}) {
    const size_t rank = text.size() / 2;
    const Result<Order> order = read_layout(text, rank);
    ASSERT_TRUE(order.ok()) << text << order.status().to_string();
    EXPECT_EQ(layout_text(*order, rank), text);
  }
  // Row-major has one spelling; bits of an element are the device's business.
  for (const auto& [text, rank] :
       {std::pair("{}", 0), {"{0}", 1}, {"{2,1,0}", 3}, {"{1,0:E(4)}", 2}}) {
    const Result<Order> order = read_layout(text, static_cast<size_t>(rank));
    ASSERT_TRUE(order.ok()) << text << order.status().to_string();
    EXPECT_TRUE(order->empty()) << text;
  }
  EXPECT_EQ(layout_text({}, 3), "{2,1,0}");
  EXPECT_EQ(layout_text({}, 0), "{}");
}

TEST(Layouts, NonsenseIsRefused) {
  for (const std::string text : {"", "{", "0,1", "{0,0}", "{0}", "{0,2}", "{-1,0}", "{0,1,2}",
                                 "{0 1}", "{a}", "{0,99999999999999999999}", "{0,1", "{,}"}) {
    EXPECT_EQ(read_layout(text, 2).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(read_layout("{1,0:T(8,128)}", 2).status().code(), StatusCode::kUnimplemented);
}

TEST(Layouts, DimensionsInMemory) {
  const int64_t dims[] = {2, 3, 5};
  EXPECT_EQ(in_memory(dims, {}), (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(in_memory(dims, {0, 1, 2}), (std::vector<int64_t>{5, 3, 2}));
  EXPECT_EQ(in_memory(dims, {1, 0, 2}), (std::vector<int64_t>{5, 2, 3}));
}

Result<Order> by_strides(std::vector<int64_t> strides, std::vector<int64_t> dims) {
  PJRT_Buffer_MemoryLayout layout = {};
  layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout.strides.byte_strides = strides.data();
  layout.strides.num_byte_strides = strides.size();
  return read_layout(&layout, DType::kF32, dims);
}

TEST(Layouts, StridesOfDenseArrays) {
  EXPECT_EQ(*by_strides({4, 8}, {2, 3}), (Order{0, 1}));
  EXPECT_EQ(*by_strides({12, 4}, {2, 3}), Order());
  EXPECT_EQ(*by_strides({4, 24, 8}, {2, 4, 3}), (Order{0, 2, 1}));
  EXPECT_EQ(*by_strides({4, 4}, {1, 3}), Order());  // the stride of one element says nothing
  for (const std::vector<int64_t>& strides :
       {std::vector<int64_t>{24, 4}, {8, 4}, {0, 4}, {-12, 4}}) {
    EXPECT_EQ(by_strides(strides, {2, 3}).status().code(), StatusCode::kUnimplemented);
  }
}

std::unique_ptr<ir::Module> two_results(const std::string& body, const std::string& result) {
  auto module = stablehlo::read_program(
      "func.func @main(%x: tensor<2x3x5xf32>, %y: tensor<2xf32>) -> (tensor<" + result +
      ">, tensor<2xf32>) {\n" + body + "  return %r, %y : tensor<" + result +
      ">, tensor<2xf32>\n}\n");
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  return *std::move(module);
}

TEST(Layouts, ProgramsBeginAndEndWithTransposes) {
  const auto module = two_results("  %r = stablehlo.add %x, %x : tensor<2x3x5xf32>\n", "2x3x5xf32");
  const std::vector<Order> parameters = {{1, 0, 2}, {}}, results = {{0, 1, 2}, {}};
  apply_orders(*module, parameters, results);
  ASSERT_TRUE(ir::verify(*module).ok()) << ir::verify(*module).to_string();
  EXPECT_EQ(module->entry()->type.to_string(),
            "(tensor<5x2x3xf32>, tensor<2xf32>) -> (tensor<5x3x2xf32>, tensor<2xf32>)");
  const std::string text = stablehlo::print_module(*module);
  EXPECT_NE(text.find("dims = [1, 2, 0] : (tensor<5x2x3xf32>) -> tensor<2x3x5xf32>"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("dims = [2, 1, 0] : (tensor<2x3x5xf32>) -> tensor<5x3x2xf32>"),
            std::string::npos)
      << text;
}

TEST(Layouts, AParameterThatIsTheResult) {
  const auto module = two_results("  %r = stablehlo.abs %x : tensor<2x3x5xf32>\n", "2x3x5xf32");
  ir::Block& block = module->entry()->body().front();
  block.terminator()->set_operand(0, block.argument(0));
  block.erase(block.operations().front().get());
  const std::vector<Order> orders = {{0, 1, 2}, {}};
  apply_orders(*module, orders, orders);
  EXPECT_TRUE(ir::verify(*module).ok()) << ir::verify(*module).to_string();
  EXPECT_EQ(module->entry()->type.to_string(),
            "(tensor<5x3x2xf32>, tensor<2xf32>) -> (tensor<5x3x2xf32>, tensor<2xf32>)");
}

TEST(Layouts, WhatIsLeftOpenNeedsNoTranspose) {
  const auto moved = two_results(
      "  %0 = stablehlo.add %x, %x : tensor<2x3x5xf32>\n"
      "  %r = stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<2x3x5xf32>) -> "
      "tensor<5x2x3xf32>\n",
      "5x2x3xf32");
  const Order order = free_order(*moved, 0);
  // In memory the result is what was transposed.
  const int64_t dims[] = {5, 2, 3};
  EXPECT_EQ(in_memory(dims, order), (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(free_order(*moved, 1), Order());
  EXPECT_EQ(
      free_order(*two_results("  %r = stablehlo.add %x, %x : tensor<2x3x5xf32>\n", "2x3x5xf32"), 0),
      Order());
}

}  // namespace
}  // namespace hekla::pjrt
