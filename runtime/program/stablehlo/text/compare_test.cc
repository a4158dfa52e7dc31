// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/text/compare.h"

#include <gtest/gtest.h>

#include <functional>

namespace hekla::stablehlo {
namespace {

const ir::Type kF32 = ir::Type::tensor(DType::kF32, {});

// main(x, y) = reduce(x, y) { a + b }; `edit` may change anything before the comparison.
std::unique_ptr<ir::Module> make_module(const std::function<void(ir::Module&)>& edit = {}) {
  auto module = std::make_unique<ir::Module>();
  module->name = "m";
  module->meshes.push_back({"mesh", {{{"x", 2}}, {}}, {}});
  auto function = std::make_unique<ir::Function>("main");
  function->type = ir::Type::function({ir::Type::tensor(DType::kF32, {4}), kF32}, {kF32});
  function->argument_attributes.resize(2);
  function->result_attributes.resize(1);
  ir::Block& block = function->body().add_block();
  ir::Value* x = block.add_argument(ir::Type::tensor(DType::kF32, {4}));
  ir::Value* y = block.add_argument(kF32);
  auto where = std::make_shared<ir::Location>();
  where->text = "model.py";
  ir::Operation* reduce =
      block.append(ir::OpCode::kReduce, {x, y}, {kF32},
                   ir::AttributeMap({{"dimensions", ir::i64_array({0})}}), where);
  ir::Block& body = reduce->add_region().add_block();
  ir::Value* a = body.add_argument(kF32);
  ir::Value* b = body.add_argument(kF32);
  ir::Operation* sum = body.append(ir::OpCode::kAdd, {a, b}, {kF32});
  body.append(ir::OpCode::kReturn, {sum->result()}, {});
  block.append(ir::OpCode::kFuncReturn, {reduce->result()}, {});
  module->functions.push_back(std::move(function));
  if (edit) edit(*module);
  return module;
}

ir::Operation& reduce_of(ir::Module& module) {
  return *module.functions[0]->body().front().operations()[0];
}

std::string difference(const std::function<void(ir::Module&)>& edit) {
  return first_difference(*make_module(), *make_module(edit)).value_or("none");
}

TEST(Compare, EqualModulesAndLocations) {
  EXPECT_EQ(difference([](ir::Module& m) {
              ir::Function& f = *m.functions[0];
              f.location = std::make_shared<ir::Location>();
            }),
            "none");
}

TEST(Compare, NamesPathAndBothSides) {
  EXPECT_EQ(difference([](ir::Module& m) { m.name = "n"; }), "module name: m | n");
  EXPECT_EQ(difference([](ir::Module& m) { m.attributes.set("a", ir::UnitValue{}); }),
            "module, attribute a: absent | unit");
  EXPECT_EQ(difference([](ir::Module& m) { m.meshes[0].value.axes[0].size = 3; }),
            "mesh 0: @mesh <[\"x\"=2]> | @mesh <[\"x\"=3]>");
  EXPECT_EQ(difference([](ir::Module& m) { m.functions.clear(); }), "number of functions: 1 | 0");
  EXPECT_EQ(difference([](ir::Module& m) {
              m.functions[0]->argument_attributes[1].set("jax.buffer_donor", ir::BoolValue{true});
            }),
            "@main, argument 1, attribute jax.buffer_donor: absent | true");
  EXPECT_EQ(difference([](ir::Module& m) {
              reduce_of(m).attributes().set("dimensions", ir::i64_array({1}));
            }),
            "@main, op 0 stablehlo.reduce, attribute dimensions: array<i64: 0> | array<i64: 1>");
  EXPECT_EQ(difference([](ir::Module& m) {
              ir::Operation& reduce = reduce_of(m);
              reduce.set_operand(0, reduce.operand(1));
            }),
            "@main, op 0 stablehlo.reduce, operand 0: value 0 | value 1");
  EXPECT_EQ(difference([](ir::Module& m) {
              ir::Block& body = reduce_of(m).region(0).front();
              body.operations()[0]->set_operand(1, reduce_of(m).operand(1));
            }),
            "@main, op 0 stablehlo.reduce, region 0, op 1 stablehlo.add, operand 1: "
            "value 4 | value 1");
  EXPECT_EQ(difference([](ir::Module& m) { reduce_of(m).result()->set_type(ir::Type::token()); }),
            "@main, op 0 stablehlo.reduce, result types: tensor<f32> | !stablehlo.token");
  EXPECT_EQ(difference([](ir::Module& m) { reduce_of(m).add_region(); }),
            "@main, op 0 stablehlo.reduce, regions: 1 | 2");
}

// main() = a + b, with the constants a and b in the given order, and one unused.
std::unique_ptr<ir::Module> make_sum(float a, float b, bool b_first) {
  auto module = std::make_unique<ir::Module>();
  auto function = std::make_unique<ir::Function>("main");
  function->type = ir::Type::function({}, {kF32});
  ir::Block& block = function->body().add_block();
  const auto constant = [&](float value) {
    ir::Attribute dense = ir::make_dense(kF32, HostArray::scalar<float>(DType::kF32, value));
    return block.append(ir::OpCode::kConstant, {}, {kF32}, ir::AttributeMap({{"value", dense}}))
        ->result();
  };
  if (b_first) constant(7);
  ir::Value* first = constant(b_first ? b : a);
  ir::Value* second = constant(b_first ? a : b);
  std::vector<ir::Value*> operands = {first, second};
  if (b_first) std::swap(operands[0], operands[1]);
  ir::Operation* sum = block.append(ir::OpCode::kAdd, operands, {kF32});
  block.append(ir::OpCode::kFuncReturn, {sum->result()}, {});
  module->functions.push_back(std::move(function));
  return module;
}

TEST(Compare, ConstantsByValueWhereverTheyStand) {
  EXPECT_NE(first_difference(*make_sum(1, 2, false), *make_sum(1, 2, true)), std::nullopt);
  const CompareOptions by_value{.constants_by_value = true};
  EXPECT_EQ(first_difference(*make_sum(1, 2, false), *make_sum(1, 2, true), by_value),
            std::nullopt);
  EXPECT_EQ(first_difference(*make_sum(1, 2, false), *make_sum(1, 3, true), by_value),
            "@main, op 0 stablehlo.add, operand 1, constant, attribute value: "
            "dense<2.0> : tensor<f32> | dense<3.0> : tensor<f32>");
}

}  // namespace
}  // namespace hekla::stablehlo
