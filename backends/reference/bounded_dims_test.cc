// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/bounded_dims.h"

#include <gtest/gtest.h>

#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::pjrt {
namespace {

std::unique_ptr<ir::Module> read(std::string_view text) {
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  return *std::move(module);
}

HostArray i32(Dims dims, std::vector<int32_t> values) {
  return HostArray::from<int32_t>(DType::kI32, dims, values);
}

std::vector<int32_t> values_of(const HostArray& array) {
  return {array.as<int32_t>(), array.as<int32_t>() + array.size()};
}

// Takes two bounded dimensions of one array and gives it, and another, back.
constexpr std::string_view kProgram = R"(
func.func @main(%a: tensor<2xi32>, %x: tensor<?x?xi32, #stablehlo.bounds<3, 2>>)
    -> (tensor<?x?xi32, #stablehlo.bounds<3, 2>>, tensor<2xi32>,
        tensor<?x?xi32, #stablehlo.bounds<3, 2>>) {
  %0 = stablehlo.add %x, %x : tensor<?x?xi32, #stablehlo.bounds<3, 2>>
  return %0, %a, %x : tensor<?x?xi32, #stablehlo.bounds<3, 2>>, tensor<2xi32>,
                      tensor<?x?xi32, #stablehlo.bounds<3, 2>>
})";

TEST(BoundedDims, SizesAreParametersAndResultsOfTheirOwn) {
  const auto module = read(kProgram);
  const auto parameters = bounded_dims(module->entry()->type.elements(), "parameter");
  const auto results = bounded_dims(module->entry()->type.results(), "result");
  ASSERT_TRUE(parameters.ok() && results.ok());
  EXPECT_EQ(*parameters, (std::vector<BoundedDim>{{1, 0}, {1, 1}}));
  EXPECT_EQ(*results, (std::vector<BoundedDim>{{0, 0}, {0, 1}, {2, 0}, {2, 1}}));
  expose_sizes(*module, *parameters, *results);
  ASSERT_TRUE(ir::verify(*module).ok()) << ir::verify(*module).to_string();
  EXPECT_EQ(module->entry()->type.to_string(),
            "(tensor<2xi32>, tensor<3x2xi32>, tensor<i32>, tensor<i32>) -> (tensor<3x2xi32>, "
            "tensor<2xi32>, tensor<3x2xi32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>)");

  const auto scalar = [](int32_t size) { return HostArray::scalar<int32_t>(DType::kI32, size); };
  const auto given = reference::evaluate(
      *module, {i32({2}, {7, 8}), i32({3, 2}, {1, 99, 2, 99, 99, 99}), scalar(2), scalar(1)});
  ASSERT_TRUE(given.ok()) << given.status().to_string();
  ASSERT_EQ(given->size(), 7U);
  EXPECT_EQ(values_of((*given)[0]), (std::vector<int32_t>{2, 0, 4, 0, 0, 0}));
  EXPECT_EQ(values_of((*given)[1]), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(values_of((*given)[2]), (std::vector<int32_t>{1, 0, 2, 0, 0, 0}));
  for (size_t i = 3; i < 7; ++i) EXPECT_EQ(values_of((*given)[i])[0], i % 2 == 1 ? 2 : 1);
}

TEST(BoundedDims, WithoutABoundThereIsNoPlace) {
  const auto module =
      read("func.func @main(%x: tensor<?xi32>) -> tensor<?xi32> {\n  return %x : tensor<?xi32>\n}");
  const auto found = bounded_dims(module->entry()->type.elements(), "parameter");
  EXPECT_EQ(found.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(found.status().message().find("parameter 0"), std::string::npos);
}

}  // namespace
}  // namespace hekla::pjrt
