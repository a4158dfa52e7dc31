// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/ir.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "runtime/program/ir/verify.h"

namespace hekla::ir {
namespace {

const Type kF32x2 = Type::tensor(DType::kF32, {2});

TEST(Type, PrintsStableHloSpelling) {
  EXPECT_EQ(Type::tensor(DType::kF32, {2, 3}).to_string(), "tensor<2x3xf32>");
  EXPECT_EQ(Type::tensor(DType::kC64, {}).to_string(), "tensor<complex<f32>>");
  EXPECT_EQ(Type::tensor(Type::scalar(DType::kI8), {kDynamic, 4}, {8, kDynamic}).to_string(),
            "tensor<?x4xi8, #stablehlo.bounds<8, ?>>");
  EXPECT_EQ(Type::function({kF32x2}, {kF32x2}).to_string(), "(tensor<2xf32>) -> tensor<2xf32>");
  EXPECT_EQ(Type::function({}, {}).to_string(), "() -> ()");
  EXPECT_EQ(Type::tuple({kF32x2, Type::token()}).to_string(),
            "tuple<tensor<2xf32>, !stablehlo.token>");
  Quantization q{DType::kI8, DType::kF32, -1, {0.5}, {-30}, -127, 127};
  EXPECT_EQ(Type::tensor(Type::quantized(q), {1}).to_string(),
            "tensor<1x!quant.uniform<i8<-127:127>:f32, 0.5:-30>>");
  Quantization axis{DType::kUI8, DType::kF32, 1, {1.0, 0.2}, {5, 0}, 0, 255};
  EXPECT_EQ(Type::quantized(axis).to_string(), "!quant.uniform<u8:f32:1, {1.0:5, 0.2}>");
}

TEST(Type, ComparesByStructure) {
  EXPECT_EQ(Type::tensor(DType::kF32, {2}), kF32x2);
  EXPECT_FALSE(Type::tensor(DType::kF32, {2}) == Type::tensor(DType::kF32, {3}));
  EXPECT_FALSE(Type::unranked_tensor(Type::scalar(DType::kF32)) == Type::tensor(DType::kF32, {}));
}

TEST(Attribute, EqualElementsBecomeASplat) {
  const float values[] = {1, 1, 1};
  Type type = Type::tensor(DType::kF32, {3});
  Attribute listed = make_dense(type, HostArray::from<float>(DType::kF32, {3}, values));
  Attribute splat = make_dense(type, HostArray::scalar<float>(DType::kF32, 1));
  EXPECT_EQ(listed, splat);
  EXPECT_TRUE(splat.get<DenseValue>()->is_splat);
  EXPECT_EQ(splat.get<DenseValue>()->expand()->as<float>()[2], 1);
  const float others[] = {1, 1, 2};
  EXPECT_FALSE(make_dense(type, HostArray::from<float>(DType::kF32, {3}, others)) == splat);
}

TEST(Attribute, SplatsOfHugeTypesTakeNoMemoryUntilExpanded) {
  Type type = Type::tensor(DType::kF32, {int64_t{1} << 40, 1 << 10});
  Attribute splat = make_dense(type, HostArray::scalar<float>(DType::kF32, 1));
  EXPECT_EQ(splat.get<DenseValue>()->expand().status().code(), StatusCode::kResourceExhausted);
}

TEST(OpCode, ReducersThatTakeOperandsInAnyOrder) {
  std::string all;
#define HEKLA_CODE(code, name) OpCode::code,
  for (const OpCode each : {HEKLA_IR_OPS(HEKLA_CODE)}) {
#undef HEKLA_CODE
    if (!is_commutative_reducer(each)) continue;
    EXPECT_TRUE(is_elementwise_binary(each)) << op_name(each);
    all += std::string(op_name(each).substr(std::string("stablehlo.").size())) + " ";
  }
  EXPECT_EQ(all, "add and maximum minimum multiply or xor ");
}

TEST(OpCode, NamesReadBack) {
  EXPECT_EQ(op_name(OpCode::kCrossReplicaSum), "stablehlo.cross-replica-sum");
  EXPECT_EQ(op_code_from_name("stablehlo.dot_general"), OpCode::kDotGeneral);
  EXPECT_EQ(op_code_from_name("chlo.erf"), std::nullopt);
}

TEST(Ir, KeepsUsersWhileOperandsChange) {
  Function function("f");
  Block& block = function.body().add_block();
  Value* x = block.add_argument(kF32x2);
  Value* y = block.add_argument(kF32x2);
  Operation* square = block.append(OpCode::kMultiply, {x, x}, {kF32x2});
  Operation* sum = block.append(OpCode::kAdd, {square->result(), y}, {kF32x2});
  EXPECT_EQ(x->users().size(), 2u);
  square->result()->replace_all_uses_with(y);
  EXPECT_FALSE(square->result()->has_uses());
  EXPECT_EQ(y->users().size(), 2u);
  EXPECT_EQ(sum->operand(0), y);
  block.erase(square);
  EXPECT_FALSE(x->has_uses());
  EXPECT_EQ(block.operations().size(), 1u);
}

TEST(Ir, AttributeMapsSortAndReplace) {
  AttributeMap map({{"b", i64_attribute(1)}, {"a", UnitValue{}}});
  map.set("b", i64_attribute(2));
  EXPECT_EQ(map.begin()->first, "a");
  EXPECT_EQ(map.get("b").get<IntegerValue>()->value, 2);
  map.erase("a");
  EXPECT_EQ(map.size(), 1u);
  EXPECT_TRUE(map.get("a").is_absent());
}

TEST(Ir, EqualityOfAccuraciesIsThatOfTheirBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ((ResultAccuracy{nan, 0, 0, "TOLERANCE"}), (ResultAccuracy{nan, 0, 0, "TOLERANCE"}));
  EXPECT_FALSE((ResultAccuracy{0.0, 0, 0, "TOLERANCE"}) ==
               (ResultAccuracy{-0.0, 0, 0, "TOLERANCE"}));
}

TEST(Verify, AnOperationDoesNotSeeItsOwnResults) {
  Module module;
  module.functions.push_back(std::make_unique<Function>("main"));
  Function& function = *module.functions.back();
  function.type = Type::function({kF32x2}, {kF32x2});
  function.argument_attributes.resize(1);
  function.result_attributes.resize(1);
  Block& block = function.body().add_block();
  Value* x = block.add_argument(kF32x2);
  Operation* op = block.append(Operation::unknown("test.loop", {x}, {kF32x2}));
  Block& inner = op->add_region().add_block();
  inner.append(OpCode::kReturn, {x}, {});
  block.append(OpCode::kFuncReturn, {op->result()}, {});
  EXPECT_TRUE(verify(module).ok()) << verify(module).message();
  inner.terminator()->set_operand(0, op->result());
  EXPECT_NE(verify(module).message().find("operand 0 is not defined before its use"),
            std::string::npos);
}

TEST(Location, PrintsTheInnermostNameAndFile) {
  auto file = std::make_shared<Location>(Location{Location::Kind::kFile, "m.py", 3, 7, {}});
  auto inner =
      std::make_shared<Location>(Location{Location::Kind::kName, "jit(f)/add", 0, 0, {file}});
  auto outer = std::make_shared<Location>(Location{Location::Kind::kName, "add:", 0, 0, {inner}});
  EXPECT_EQ(location_string(outer), "\"jit(f)/add\" (m.py:3:7)");
  EXPECT_EQ(location_string(nullptr), "unknown location");
  // Of several places one's own name and file.
  auto nowhere = std::make_shared<Location>(Location{Location::Kind::kName, "psum", 0, 0, {}});
  const auto fused = [](std::vector<LocationRef> children) {
    return std::make_shared<Location>(
        Location{Location::Kind::kFused, "", 0, 0, std::move(children)});
  };
  EXPECT_EQ(location_string(fused({nowhere, outer})), "\"jit(f)/add\" (m.py:3:7)");
  EXPECT_EQ(location_string(fused({fused({nowhere}), file})), "m.py:3:7");
  EXPECT_EQ(location_string(fused({nullptr, nowhere, nowhere})), "\"psum\"");
  EXPECT_EQ(location_string(fused({})), "unknown location");
  // A name around all of them is the name of each.
  auto named = std::make_shared<Location>(
      Location{Location::Kind::kName, "jit(f)/jit(g)/psum", 0, 0, {fused({nowhere, outer})}});
  EXPECT_EQ(location_string(named), "\"jit(f)/jit(g)/psum\" (m.py:3:7)");
}

}  // namespace
}  // namespace hekla::ir
