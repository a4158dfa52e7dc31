// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/dump.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hekla::ir {
namespace {

const Type kPair = Type::tensor(DType::kF32, {2});

TEST(Dump, ShowsOneOperationPerLineWithTypesAttributesAndLocations) {
  Module module;
  module.name = "m";
  module.attributes.set("mhlo.num_partitions", IntegerValue{Type::scalar(DType::kI32), 1});
  module.meshes.push_back({"mesh", {{{"x", 2}, {"y", 4}}, {}}, {}});
  auto function = std::make_unique<Function>("main");
  function->visibility = Function::Visibility::kPublic;
  function->type = Type::function({kPair}, {kPair});
  function->argument_attributes.resize(1);
  function->argument_attributes[0].set("jax.buffer_donor", BoolValue{true});
  Block& block = function->body().add_block();
  Value* x = block.add_argument(kPair);
  auto where = std::make_shared<Location>();
  where->text = "model.py";
  where->line = 12;
  where->column = 5;
  Operation* loop = block.append(OpCode::kWhile, {x}, {kPair}, {}, where);
  Block& condition = loop->add_region().add_block();
  Value* iterate = condition.add_argument(kPair);
  Operation* less = condition.append(
      OpCode::kCompare, {iterate, x}, {Type::tensor(DType::kI1, {2})},
      AttributeMap({{"comparison_direction", enum_attribute("comparison_direction", "LT")}}));
  condition.append(OpCode::kReturn, {less->result()}, {});
  block.append(OpCode::kFuncReturn, {loop->result()}, {});
  module.functions.push_back(std::move(function));
  EXPECT_EQ(dump(module), R"(module @m attributes {mhlo.num_partitions = 1 : i32}
mesh @mesh ["x"=2, "y"=4]
func public @main(%0: tensor<2xf32> {jax.buffer_donor = true}) -> (tensor<2xf32>)
  %1 = stablehlo.while %0 : (tensor<2xf32>) -> (tensor<2xf32>)  at model.py:12:5
    region 0 (%2: tensor<2xf32>)
      %3 = stablehlo.compare %2, %0 {comparison_direction = comparison_direction LT} : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xi1>)
      stablehlo.return %3 : (tensor<2xi1>) -> ()
  func.return %1 : (tensor<2xf32>) -> ()
)");
}

TEST(Dump, ShowsEveryKindOfAttribute) {
  const Type f32 = Type::scalar(DType::kF32);
  EXPECT_EQ(dump(Attribute()), "absent");
  EXPECT_EQ(dump(Attribute(UnitValue{})), "unit");
  EXPECT_EQ(dump(i64_attribute(-3)), "-3 : i64");
  EXPECT_EQ(dump(Attribute(IntegerValue{Type::scalar(DType::kUI64), -1})),
            "18446744073709551615 : ui64");
  EXPECT_EQ(dump(Attribute(FloatValue{f32, 0x3dcccccd})), "0.1 : f32");
  EXPECT_EQ(dump(Attribute(FloatValue{f32, 0x7fc00001})), "0x7FC00001 : f32");
  EXPECT_EQ(dump(Attribute(StringValue{std::string("a\"\n\0", 4)})), "\"a\\22\\0A\\00\"");
  EXPECT_EQ(dump(i64_array({1, 2})), "i64[1, 2]");
  EXPECT_EQ(dump(bool_array({true})), "i1[1]");
  EXPECT_EQ(dump(Attribute(ArrayValue{{i64_attribute(1), UnitValue{}}})), "[1 : i64, unit]");
  EXPECT_EQ(dump(make_dictionary({{"b", UnitValue{}}, {"a", BoolValue{}}})),
            "{a = false, b = unit}");
  EXPECT_EQ(dump(Attribute(SymbolValue{"m", {"f"}})), "@m::@f");
  EXPECT_EQ(dump(Attribute(TypeValue{kPair})), "tensor<2xf32>");
  EXPECT_EQ(dump(Attribute(ChannelHandle{1, 2})), "channel<handle 1 type 2>");
  EXPECT_EQ(dump(Attribute(DotDimensionNumbers{{0}, {0}, {2}, {1}})),
            "dot<lhs_batching [0] rhs_batching [0] lhs_contracting [2] rhs_contracting [1]>");
  EXPECT_EQ(dump(Attribute(ShardingValue{sharding::TensorSharding{"mesh", {}, {}, {}, {}}})),
            "#sdy.sharding<@mesh, []>");
}

TEST(Dump, ShowsElementsByTheirType) {
  const auto dense = [](DType dtype, auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    const Dims dims = {sizeof...(values)};
    return dump(
        make_dense(Type::tensor(dtype, dims),
                   HostArray::from<std::common_type_t<decltype(values)...>>(dtype, dims, list)));
  };
  EXPECT_EQ(dense(DType::kF32, 0.5f, -0.0f), "dense<0.5, -0> : tensor<2xf32>");
  EXPECT_EQ(dense(DType::kI4, int8_t{-8}, int8_t{7}), "dense<-8, 7> : tensor<2xi4>");
  EXPECT_EQ(dense(DType::kUI8, uint8_t{255}, uint8_t{0}), "dense<255, 0> : tensor<2xui8>");
  EXPECT_EQ(dense(DType::kI1, uint8_t{1}, uint8_t{0}), "dense<true, false> : tensor<2xi1>");
  EXPECT_EQ(dense(DType::kBF16, uint16_t{0x3fc0}, uint16_t{0x7f80}),
            "dense<1.5, 0x7F80> : tensor<2xbf16>");
  EXPECT_EQ(dense(DType::kI32, 7, 7), "splat<7> : tensor<2xi32>");
}

TEST(Dump, CutsLargeConstants) {
  std::vector<int32_t> values(1000);
  std::iota(values.begin(), values.end(), 0);
  Attribute constant = make_dense(Type::tensor(DType::kI32, {1000}),
                                  HostArray::from<int32_t>(DType::kI32, {1000}, values));
  EXPECT_EQ(dump(constant, {.max_elements = 3}),
            "dense<0, 1, 2, ... 1000 in all> : tensor<1000xi32>");
}

}  // namespace
}  // namespace hekla::ir
