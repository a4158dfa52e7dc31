// SPDX-License-Identifier: Apache-2.0
// The builder makes every program that senders write, with result types that it finds itself, and
// constants of every type.
#include "runtime/program/builder/graph_builder.h"

#include <gtest/gtest.h>

#include <set>
#include <unordered_map>

#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/write_bytecode.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::ir {
namespace {

using Values = GraphBuilder::Values;

std::unique_ptr<Module> read(std::string_view bytes) {
  Result<std::unique_ptr<Module>> module = stablehlo::read_program(bytes);
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

// Makes a program anew, operation by operation, and counts the kinds of operations whose result
// types the builder found.
class Remake {
 public:
  std::unique_ptr<Module> run(const Module& from) {
    auto to = std::make_unique<Module>();
    to->name = from.name;
    to->attributes = from.attributes;
    to->meshes = from.meshes;
    for (const auto& function : from.functions) {
      if (function->is_declaration()) return nullptr;
      const Status status = add_function(
          *to, function->name(), function->type.elements(),
          [&](GraphBuilder& g, const Values& arguments) {
            return block(g, function->body().front(), arguments);
          },
          function->visibility);
      EXPECT_TRUE(status.ok()) << status.to_string();
      Function& made = *to->functions.back();
      made.argument_attributes = function->argument_attributes;
      made.result_attributes = function->result_attributes;
      made.attributes = function->attributes;
      made.type = function->type;
    }
    return to;
  }

  std::set<std::string> inferred;

 private:
  Values block(GraphBuilder& g, const Block& from, const Values& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) values_[from.argument(i)] = arguments[i];
    for (const auto& op : from.operations()) {
      if (op.get() == from.terminator()) return operands(*op);
      make(g, *op);
    }
    return {};
  }

  Values operands(const Operation& op) {
    Values values;
    for (const Value* value : op.operands()) values.push_back(values_.at(value));
    return values;
  }

  // Types that the operation alone says are given, the others are left to the builder.
  static std::vector<Type> types_to_give(const Operation& op) {
    for (size_t declared : {0, 1}) {
      Operation bare(op.code(), op.operands(), std::vector<Type>(declared), op.attributes());
      ValueMap map;
      for (size_t i = 0; i < op.region_count(); ++i) {
        clone_region(op.region(i), bare.add_region(), map);
      }
      const Result<std::vector<Type>> types = infer_result_types(bare);
      bare.set_operands({});  // it is no user
      if (types.ok()) return *types == op.result_types() ? std::vector<Type>() : op.result_types();
    }
    return op.result_types();
  }

  void make(GraphBuilder& g, const Operation& op) {
    std::vector<GraphBuilder::RegionSpec> regions;
    for (size_t i = 0; i < op.region_count(); ++i) {
      const Block& inside = op.region(i).front();
      regions.push_back({inside.argument_types(), [&](GraphBuilder& b, const Values& arguments) {
                           return block(b, inside, arguments);
                         }});
    }
    std::vector<Type> types = types_to_give(op);
    if (types.empty()) inferred.insert(std::string(op.name()));
    const Operation* made =
        g.make_op(op.code(), operands(op), op.attributes(), regions, std::move(types));
    ASSERT_EQ(made->result_count(), op.result_count());
    for (size_t i = 0; i < op.result_count(); ++i) values_[op.result(i)] = made->result(i);
  }

  std::unordered_map<const Value*, Value*> values_;
};

TEST(GraphBuilder, MakesEveryProgramOfSenders) {
  Remake remake;
  size_t count = 0;
  for (const char* extension : {".mlirbc", ".mlir"}) {
    for (const std::string& name : stablehlo::testing::artifact_names(extension)) {
      const std::unique_ptr<Module> module =
          read(stablehlo::testing::read_artifact(name + extension));
      bool is_known = true;
      for (const auto& function : module->functions) {
        walk(function->body(),
             [&](const Operation& op) { is_known &= op.code() != OpCode::kUnknown; });
      }
      const std::unique_ptr<Module> made = is_known ? remake.run(*module) : nullptr;
      if (made == nullptr) continue;
      EXPECT_EQ(stablehlo::first_difference(*module, *made).value_or(""), "") << name << extension;
      ++count;
    }
  }
  EXPECT_GE(count, 90u);
  EXPECT_GE(remake.inferred.size(), 66u);
}

TEST(GraphBuilder, MakesConstantsOfEveryType) {
  for (int t = 1; t < kDTypeCount; ++t) {
    const DType dtype = static_cast<DType>(t);
    HostArray values(dtype, {5});
    auto* bytes = reinterpret_cast<uint8_t*>(values.mutable_data());
    const size_t width = static_cast<size_t>(dtype_bytes(dtype));
    // Small numbers are valid bits of every type, and differ from each other.
    for (size_t i = 0; i < 5; ++i) bytes[i * width] = static_cast<uint8_t>(i % 2);
    if (dtype == DType::kTF32) std::memset(bytes, 0, 5 * width);
    Module module;
    const Status status = add_function(module, "main", {}, [&](GraphBuilder& g, const Values&) {
      return Values{g.constant(values), g.constant(HostArray(dtype, {0, 3}))};
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(verify(module).ok()) << dtype_name(dtype);
    const std::string text = stablehlo::print_module(module);
    EXPECT_EQ(stablehlo::first_difference(module, *read(text)).value_or(""), "") << text;
    const Result<std::string> file = stablehlo::write_bytecode(module);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(stablehlo::first_difference(module, *read(*file)).value_or(""), "") << text;
  }
}

TEST(GraphBuilder, IntegersKeepAllTheirBits) {
  Module module;
  const int64_t large = (int64_t{1} << 62) + 1;  // no double
  ASSERT_TRUE(add_function(module, "main", {}, [&](GraphBuilder& g, const Values&) {
                return Values{g.integer_constant(DType::kI64, {2}, large)};
              }).ok());
  EXPECT_NE(stablehlo::print_module(module).find("4611686018427387905"), std::string::npos);
}

TEST(GraphBuilder, LoopsBranchesAndReductionsAreWhatTheirTextIs) {
  Module module;
  const Type scalar = Type::tensor(DType::kF32, {});
  const auto sum = [](GraphBuilder& g, const Values& x) { return Values{g.add(x[0], x[1])}; };
  const Status status = add_function(
      module, "main", {Type::tensor(DType::kF32, {4, 3}), Type::tensor(DType::kI1, {})},
      [&](GraphBuilder& g, const Values& x) {
        Value* zero = g.constant(DType::kF32, {}, 0);
        Value* rows = g.reduce({x[0]}, {zero}, {1}, sum)[0];
        Value* chosen = g.branch(
            x[1], [&](GraphBuilder& b, const Values&) { return Values{b.add(rows, rows)}; },
            [&](GraphBuilder&, const Values&) { return Values{rows}; })[0];
        return g.loop(3, {chosen}, [](GraphBuilder& b, Value*, const Values& carried) {
          return Values{b.multiply(carried[0], carried[0])};
        });
      });
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_TRUE(verify(module).ok()) << verify(module).to_string();
  const std::unique_ptr<Module> wanted = read(R"(
func.func public @main(%x: tensor<4x3xf32>, %p: tensor<i1>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %rows = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %chosen = "stablehlo.if"(%p) ({
    %twice = stablehlo.add %rows, %rows : tensor<4xf32>
    stablehlo.return %twice : tensor<4xf32>
  }, {
    stablehlo.return %rows : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %i0, %c = %chosen) : tensor<i32>, tensor<4xf32>
    cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %s = stablehlo.multiply %c, %c : tensor<4xf32>
      stablehlo.return %j, %s : tensor<i32>, tensor<4xf32>
    }
  return %r#1 : tensor<4xf32>
})");
  EXPECT_EQ(stablehlo::first_difference(module, *wanted).value_or(""), "");
}

TEST(GraphBuilder, TypesFollowOrAreAskedFor) {
  Module module;
  const Status status = add_function(module, "main", {Type::tensor(DType::kF32, {4})},
                                     [](GraphBuilder& g, const Values& x) {
                                       return Values{g.make_op(OpCode::kAbs, {x[0]})->result()};
                                     });
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(module.functions[0]->type.results()[0], Type::tensor(DType::kF32, {4}));
  Module wrong;
  EXPECT_FALSE(add_function(wrong, "main", {Type::tensor(DType::kF32, {4})},
                            [](GraphBuilder& g, const Values& x) {
                              return Values{g.make_op(OpCode::kConvert, {x[0]})->result()};
                            })
                   .ok());
}

TEST(GraphBuilder, OperandsThatDoNotFitAreKeptAsAnErrorOfTheFirstCall) {
  Module module;
  const Status status =
      add_function(module, "main", {Type::tensor(DType::kF32, {4}), Type::tensor(DType::kF32, {5})},
                   [](GraphBuilder& g, const Values& x) {
                     Value* wrong = g.add(x[0], x[1]);
                     return Values{g.concatenate({wrong, g.constant(DType::kI32, {2}, 0)}, 0)};
                   });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("stablehlo.add"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace hekla::ir
