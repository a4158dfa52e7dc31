// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/evaluator.h"

#include <fmt/format.h>

#include "backends/lapack/library.h"
#include "backends/reference/test_program.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::reference {
namespace {

using ir::OpCode;
using ir::Type;

const Type kF32x2 = Type::tensor(DType::kF32, {2});
const Type kI32 = Type::tensor(DType::kI32, {});
const Type kI1 = Type::tensor(DType::kI1, {});

HostArray number(int32_t value) { return HostArray::scalar<int32_t>(DType::kI32, value); }

ir::AttributeMap direction(std::string_view name) {
  ir::AttributeMap map;
  map.set("comparison_direction", ir::enum_attribute("comparison_direction", name));
  return map;
}

Result<std::vector<HostArray>> run_text(std::string_view text, std::vector<HostArray> inputs) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, stablehlo::read_text(text));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  HEKLA_RETURN_IF_ERROR(check_supported(*module));
  return evaluate(*module, std::move(inputs), {});
}

// while (i < n) { i += 1; x += x }, with n from outside of the loop.
TestProgram doubling() {
  TestProgram p({kI32, kF32x2});
  ir::Value* zero = p.constant(number(0));
  ir::Value* one = p.constant(number(1));
  ir::Operation* loop = p.body->append(OpCode::kWhile, {zero, p.arg(1)}, {kI32, kF32x2});
  ir::Block& condition = loop->add_region().add_block();
  ir::Block& body = loop->add_region().add_block();
  for (ir::Block* block : {&condition, &body}) {
    block->add_argument(kI32);
    block->add_argument(kF32x2);
  }
  auto* less =
      condition.append(OpCode::kCompare, {condition.argument(0), p.arg(0)}, {kI1}, direction("LT"));
  condition.append(OpCode::kReturn, {less->result()}, {});
  auto* next = body.append(OpCode::kAdd, {body.argument(0), one}, {kI32});
  auto* twice = body.append(OpCode::kAdd, {body.argument(1), body.argument(1)}, {kF32x2});
  body.append(OpCode::kReturn, {next->result(), twice->result()}, {});
  p.finish({loop->result(0), loop->result(1)});
  return p;
}

TEST(Evaluator, LoopsRunUntilTheConditionFails) {
  const TestProgram p = doubling();
  const auto five = p.run({number(5), f32({1, 3})});
  ASSERT_TRUE(five.ok()) << five.status().to_string();
  EXPECT_EQ((*five)[0].as<int32_t>()[0], 5);
  EXPECT_EQ(values_of<float>((*five)[1]), std::vector<float>({32, 96}));
  // Zero trips give the inputs.
  EXPECT_EQ(values_of<float>((*p.run({number(0), f32({1, 3})}))[1]), std::vector<float>({1, 3}));
}

TEST(Evaluator, LeavesTheCallersArraysAlone) {
  const HostArray x = f32({1, 3});
  ASSERT_TRUE(doubling().run({number(5), x}).ok());
  EXPECT_EQ(values_of<float>(x), std::vector<float>({1, 3}));
}

TEST(Evaluator, IsPureAndRepeats) {
  const TestProgram p = doubling();
  const auto first = p.run({number(3), f32({1, 3})});
  const auto second = p.run({number(3), f32({1, 3})});
  EXPECT_TRUE((*first)[1].identical((*second)[1]));
}

TEST(Evaluator, CancelsALoopThatNeverEnds) {
  std::atomic<bool> cancelled = false;
  EvaluateOptions options;
  options.cancelled = &cancelled;
  int64_t steps = 0;
  options.on_operation = [&](const ir::Operation&, const std::vector<HostArray>&) {
    if (++steps == 1000) cancelled = true;
  };
  const auto result = doubling().run({number(2000000000), f32({0, 0})}, options);
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
  EXPECT_LT(steps, 1100);
}

TEST(Evaluator, CasesOutOfRangeTakeTheLastBranch) {
  TestProgram p({kI32, kF32x2});
  ir::Operation* choice = p.body->append(OpCode::kCase, {p.arg(0)}, {kF32x2});
  for (OpCode code : {OpCode::kNegate, OpCode::kAbs, OpCode::kSign}) {
    ir::Block& branch = choice->add_region().add_block();
    auto* value = branch.append(code, {p.arg(1)}, {kF32x2});
    branch.append(OpCode::kReturn, {value->result()}, {});
  }
  p.finish({choice->result()});
  const auto run = [&](int32_t i) {
    return values_of<float>((*p.run({number(i), f32({3, -3})}))[0]);
  };
  EXPECT_EQ(run(0), std::vector<float>({-3, 3}));
  EXPECT_EQ(run(1), std::vector<float>({3, 3}));
  EXPECT_EQ(run(2), std::vector<float>({1, -1}));
  EXPECT_EQ(run(3), std::vector<float>({1, -1}));
  EXPECT_EQ(run(-1), std::vector<float>({1, -1}));
}

TEST(Evaluator, CallsSeeTheirOwnValues) {
  TestProgram p({kF32x2});
  ir::Block& square = p.add_function("square", {kF32x2});
  auto* product =
      square.append(OpCode::kMultiply, {square.argument(0), square.argument(0)}, {kF32x2});
  TestProgram::finish_function(*p.module.functions[1], square, {product->result()});
  p.module.functions[1]->visibility = ir::Function::Visibility::kPrivate;
  ir::AttributeMap callee;
  callee.set("callee", ir::SymbolValue{"square", {}});
  auto* once = p.body->append(OpCode::kFuncCall, {p.arg(0)}, {kF32x2}, callee);
  auto* twice = p.body->append(OpCode::kFuncCall, {once->result()}, {kF32x2}, callee);
  p.finish({twice->result(), once->result(), p.arg(0)});
  const auto result = p.run({f32({2, -3})});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(values_of<float>((*result)[0]), std::vector<float>({16, 81}));
  EXPECT_EQ(values_of<float>((*result)[1]), std::vector<float>({4, 9}));
  EXPECT_EQ(values_of<float>((*result)[2]), std::vector<float>({2, -3}));
}

TEST(Evaluator, RefusesWrongArguments) {
  const TestProgram p = doubling();
  const auto few = p.run({number(1)});
  EXPECT_EQ(few.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(few.status().message().find("takes 2 arguments, 1"), std::string::npos);
  const auto wrong = p.run({number(1), f32({1, 2, 3})});
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("tensor<2xf32>"), std::string::npos);
  EXPECT_NE(wrong.status().message().find("f32[3]"), std::string::npos);
  EXPECT_FALSE(p.run({number(1), i32({1, 2})}).ok());
}

TEST(Evaluator, MemoryEndsInAnErrorBeforeItIsTaken) {
  TestProgram p({Type::tensor(DType::kF32, {})});
  const Type huge = Type::tensor(DType::kF32, {1 << 20, 1 << 20});
  ir::AttributeMap attributes;
  attributes.set("broadcast_dimensions", ir::i64_array({}));
  auto* op = p.body->append(OpCode::kBroadcastInDim, {p.arg(0)}, {huge}, attributes);
  p.finish({op->result()});
  EvaluateOptions options;
  options.memory_limit_bytes = 1 << 20;
  const auto result = p.run({HostArray::scalar<float>(DType::kF32, 1)}, options);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(result.status().message().find("broadcast_in_dim"), std::string::npos);
  EXPECT_NE(result.status().message().find("1048576 bytes"), std::string::npos);
}

TEST(Evaluator, DeadValuesDoNotCountAgainstTheLimit) {
  // A chain of 100 additions of 4,000 bytes each runs in the memory of a few of them.
  const Type type = Type::tensor(DType::kF32, {1000});
  TestProgram p({type});
  ir::Value* value = p.arg(0);
  for (int i = 0; i < 100; ++i) {
    value = p.body->append(OpCode::kAdd, {value, p.arg(0)}, {type})->result();
  }
  p.finish({value});
  EvaluateOptions options;
  options.memory_limit_bytes = 20000;
  const auto result = p.run({HostArray(DType::kF32, {1000})}, options);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
}

TEST(Evaluator, NarrowIntegersOfClientsAreExtended) {
  const Type type = Type::tensor(DType::kI4, {2});
  TestProgram p({type});
  p.finish({p.body->append(OpCode::kAbs, {p.arg(0)}, {type})->result()});
  // -7 and 7 as a client may store them: four bits, the rest zero.
  const auto result = p.run({array_of<uint8_t>(DType::kI4, {0x09, 0x07})});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(values_of<int8_t>((*result)[0]), std::vector<int8_t>({7, 7}));
}

TEST(Evaluator, ShapesThatAreKnownLateAreCheckedLate) {
  const Type any = Type::tensor(DType::kF32, {ir::kDynamic});
  TestProgram p({any, any});
  p.finish({p.body->append(OpCode::kAdd, {p.arg(0), p.arg(1)}, {any})->result()});
  const auto sum = p.run({f32({1, 2}), f32({3, 4})});
  ASSERT_TRUE(sum.ok()) << sum.status().to_string();
  EXPECT_EQ(values_of<float>((*sum)[0]), std::vector<float>({4, 6}));
  const auto wrong = p.run({f32({1, 2}), f32({3, 4, 5})});
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("stablehlo.add"), std::string::npos);
}

TEST(Evaluator, ComputedShapesMustBeTheDeclaredOnes) {
  const Type shape = Type::tensor(DType::kI32, {1});
  const Type four = Type::tensor(DType::kF32, {4});
  TestProgram p({shape});
  ir::AttributeMap attributes;
  attributes.set("iota_dimension", ir::i64_attribute(0));
  auto* iota = p.body->append(OpCode::kDynamicIota, {p.arg(0)}, {four}, attributes);
  p.finish({iota->result()});
  EXPECT_TRUE(p.run({i32({4})}).ok());
  const auto wrong = p.run({i32({2})});
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("tensor<4xf32>"), std::string::npos);
}

TEST(Evaluator, ScatterTakesAsManyUpdatesAsTheLaunchSays) {
  // What torch_xla makes of masked_scatter.
  const auto run = [](int32_t indices, int32_t updates) {
    return run_text(
        R"(func.func @main(%n: tensor<2xi32>, %at: tensor<4x1xi32>, %updates: tensor<4xf32>)
               -> tensor<6xf32> {
             %0 = stablehlo.slice %n [0:1] : (tensor<2xi32>) -> tensor<1xi32>
             %1 = stablehlo.reshape %0 : (tensor<1xi32>) -> tensor<i32>
             %2 = stablehlo.slice %n [1:2] : (tensor<2xi32>) -> tensor<1xi32>
             %3 = stablehlo.reshape %2 : (tensor<1xi32>) -> tensor<i32>
             %4 = stablehlo.set_dimension_size %at, %1, dim = 0
                 : (tensor<4x1xi32>, tensor<i32>) -> tensor<?x1xi32, #stablehlo.bounds<4, ?>>
             %5 = stablehlo.set_dimension_size %updates, %3, dim = 0
                 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
             %6 = stablehlo.constant dense<0.0> : tensor<6xf32>
             %7 = "stablehlo.scatter"(%6, %4, %5) <{scatter_dimension_numbers =
                 #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
                                    index_vector_dim = 1>}> ({
               ^bb0(%a: tensor<f32>, %b: tensor<f32>):
                 stablehlo.return %b : tensor<f32>
             }) : (tensor<6xf32>, tensor<?x1xi32, #stablehlo.bounds<4, ?>>,
                   tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<6xf32>
             return %7 : tensor<6xf32>
           })",
        {i32({indices, updates}), HostArray(DType::kI32, {4, 1}), f32({7, 8, 9, 10})});
  };
  const auto none = run(0, 0);
  ASSERT_TRUE(none.ok()) << none.status().to_string();
  EXPECT_EQ(values_of<float>((*none)[0]), std::vector<float>({0, 0, 0, 0, 0, 0}));
  const auto three = run(3, 3);  // all of them at 0, the last stays
  ASSERT_TRUE(three.ok()) << three.status().to_string();
  EXPECT_EQ(values_of<float>((*three)[0]), std::vector<float>({9, 0, 0, 0, 0, 0}));
  const Status differ = run(2, 3).status();
  EXPECT_EQ(differ.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(differ.message().find("f32[3]"), std::string::npos) << differ.to_string();
}

TEST(Evaluator, FixedOperandsAreAsLongAsTheBoundedOnesBesideThem) {
  const auto run = [](int32_t size) {
    return run_text(
        R"(func.func @main(%n: tensor<i32>, %x: tensor<4x1xf32>, %y: tensor<4xf32>)
               -> (tensor<f32>, tensor<i32>) {
             %0 = stablehlo.set_dimension_size %x, %n, dim = 0
                 : (tensor<4x1xf32>, tensor<i32>) -> tensor<?x1xf32, #stablehlo.bounds<4, ?>>
             %1 = stablehlo.reshape %0
                 : (tensor<?x1xf32, #stablehlo.bounds<4, ?>>) -> tensor<?xf32, #stablehlo.bounds<4>>
             %2 = stablehlo.add %y, %1
                 : (tensor<4xf32>, tensor<?xf32, #stablehlo.bounds<4>>)
                 -> tensor<?xf32, #stablehlo.bounds<4>>
             %3 = stablehlo.constant dense<0.0> : tensor<f32>
             %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.add across dimensions = [0]
                 : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
             %5 = stablehlo.get_dimension_size %2, dim = 0
                 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>
             return %4, %5 : tensor<f32>, tensor<i32>
           })",
        {HostArray::scalar<int32_t>(DType::kI32, size),
         HostArray::from<float>(DType::kF32, {4, 1}, std::vector<float>{1, 2, 3, 4}),
         f32({10, 20, 30, 40})});
  };
  for (const int32_t size : {0, 1, 3, 4}) {
    const auto got = run(size);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(values_of<float>((*got)[0])[0], 11.0F * static_cast<float>(size * (size + 1) / 2));
    EXPECT_EQ(values_of<int32_t>((*got)[1])[0], size);
  }
}

TEST(CustomCalls, RefuseWhatTheirTargetDoesNotTake) {
  const Type matrix = Type::tensor(DType::kF32, {3, 2});
  for (const char* target : {"Qr", "mhlo.erf", "mhlo.topk", "shape_assertion", "check.expect_eq",
                             "ProductOfElementaryHouseholderReflectors"}) {
    TestProgram p({matrix});
    ir::AttributeMap attributes;
    attributes.set("call_target_name", ir::StringValue{target});
    p.body->append(OpCode::kCustomCall, {}, {matrix, matrix, matrix}, attributes);
    p.finish({p.arg(0)});
    const Status status = p.run({HostArray(DType::kF32, {3, 2})}).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << target << status.to_string();
  }
  // Right in number, wrong in shape: found when it runs.
  TestProgram p({matrix});
  ir::AttributeMap attributes;
  attributes.set("call_target_name", ir::StringValue{"Qr"});
  p.body->append(OpCode::kCustomCall, {p.arg(0)}, {matrix, matrix}, attributes);
  p.finish({p.arg(0)});
  const Status status = p.run({HostArray(DType::kF32, {3, 2})}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
}

TEST(CheckSupported, ListsEverythingAtOnce) {
  TestProgram p({kF32x2});
  for (const char* target : {"first_unknown", "second_unknown"}) {
    ir::AttributeMap attributes;
    attributes.set("call_target_name", ir::StringValue{target});
    p.body->append(OpCode::kCustomCall, {p.arg(0)}, {kF32x2}, attributes);
  }
  p.finish({p.arg(0)});
  const Status status = check_supported(p.module);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  for (const char* word : {"first_unknown", "second_unknown", "2 operations", "tensor<2xf32>"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

Status check_equal(const HostArray& value, const HostArray& expected, const char* target) {
  const Type type = Type::tensor(value.dtype(), value.dims());
  TestProgram p({type, type});
  ir::AttributeMap attributes;
  attributes.set("call_target_name", ir::StringValue{target});
  attributes.set("has_side_effect", ir::BoolValue{true});
  p.body->append(OpCode::kCustomCall, {p.arg(0), p.arg(1)}, {}, attributes);
  p.finish({});
  return p.run({value, expected}).status();
}

TEST(Assertions, NameTheFirstDifferentElement) {
  EXPECT_TRUE(check_equal(f32({1, 2}), f32({1, 2}), "check.expect_eq").ok());
  const Status status = check_equal(f32({1, 2.5F}), f32({1, 2}), "check.expect_eq");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const char* word : {"[1]", "2.5", "2"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
  EXPECT_TRUE(check_equal(f32({1.00001F}), f32({1}), "check.expect_almost_eq").ok());
  EXPECT_FALSE(check_equal(f32({1.001F}), f32({1}), "check.expect_almost_eq").ok());
}

const ir::Quantization kQuantization{DType::kI8, DType::kF32, -1, {0.5}, {3}, -128, 127};

TEST(Quantized, ValuesRoundAndSaturate) {
  const Type real = Type::tensor(DType::kF32, {5});
  const Type stored = Type::tensor(Type::quantized(kQuantization), {5});
  TestProgram p({real});
  auto* q = p.body->append(OpCode::kUniformQuantize, {p.arg(0)}, {stored});
  auto* back = p.body->append(OpCode::kUniformDequantize, {q->result()}, {real});
  p.finish({q->result(), back->result()});
  // x / 0.5 + 3, ties to even: 0.25 -> 3.5 -> 4, 0.75 -> 4.5 -> 4.
  const auto result = p.run({f32({0, 0.25F, 0.75F, 1000, -1000})});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(values_of<int8_t>((*result)[0]), std::vector<int8_t>({3, 4, 4, 127, -128}));
  EXPECT_EQ(values_of<float>((*result)[1]), std::vector<float>({0, 0.5F, 0.5F, 62, -65.5F}));
}

TEST(Quantized, ArithmeticIsOnRealValues) {
  const Type stored = Type::tensor(Type::quantized(kQuantization), {2});
  TestProgram p({stored, stored});
  p.finish({p.body->append(OpCode::kAdd, {p.arg(0), p.arg(1)}, {stored})->result()});
  // (1 + 2) and (62 + 62, which saturates).
  const auto result =
      p.run({array_of<int8_t>(DType::kI8, {5, 127}), array_of<int8_t>(DType::kI8, {7, 127})});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(values_of<int8_t>((*result)[0]), std::vector<int8_t>({9, 127}));
}

TEST(Quantized, OneScalePerIndexOfTheAxis) {
  const ir::Quantization per_axis{DType::kI8, DType::kF32, 0, {0.5, 2}, {0, 1}, -128, 127};
  const Type stored = Type::tensor(Type::quantized(per_axis), {2});
  TestProgram p({stored});
  p.finish({p.body->append(OpCode::kUniformDequantize, {p.arg(0)}, {kF32x2})->result()});
  const auto result = p.run({array_of<int8_t>(DType::kI8, {4, 4})});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(values_of<float>((*result)[0]), std::vector<float>({2, 6}));
}

TEST(Quantized, RegionsComputeOnRealValues) {
  const auto result = run_text(
      R"(func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5:3>>,
                         %zero: tensor<!quant.uniform<i8:f32, 0.5:3>>)
             -> (tensor<!quant.uniform<i8:f32, 0.5:3>>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>) {
           %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
               : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<!quant.uniform<i8:f32, 0.5:3>>)
               -> tensor<!quant.uniform<i8:f32, 0.5:3>>
           %1 = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
             ^bb0(%a: tensor<!quant.uniform<i8:f32, 0.5:3>>,
                  %b: tensor<!quant.uniform<i8:f32, 0.5:3>>):
               %2 = stablehlo.compare LT, %a, %b : (tensor<!quant.uniform<i8:f32, 0.5:3>>,
                   tensor<!quant.uniform<i8:f32, 0.5:3>>) -> tensor<i1>
               stablehlo.return %2 : tensor<i1>
           }) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>)
               -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
           return %0, %1 : tensor<!quant.uniform<i8:f32, 0.5:3>>,
               tensor<4x!quant.uniform<i8:f32, 0.5:3>>
         })",
      {array_of<int8_t>(DType::kI8, {5, 7, 127, 1}), HostArray::scalar<int8_t>(DType::kI8, 3)});
  // 1 + 2 + 62 saturates at 62 on the way; then - 1.
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(values_of<int8_t>((*result)[0]), std::vector<int8_t>({125}));
  EXPECT_EQ(values_of<int8_t>((*result)[1]), std::vector<int8_t>({1, 5, 7, 127}));
}

TEST(Quantized, RegionsHaveNoAxis) {
  const auto result = run_text(
      R"(func.func @main(%x: tensor<2x!quant.uniform<i8:f32:0, {0.5, 2.0:1}>>)
             -> tensor<2x!quant.uniform<i8:f32:0, {0.5, 2.0:1}>> {
           %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
             ^bb0(%a: tensor<!quant.uniform<i8:f32, 0.5>>, %b: tensor<!quant.uniform<i8:f32, 0.5>>):
               %1 = stablehlo.compare LT, %a, %b : (tensor<!quant.uniform<i8:f32, 0.5>>,
                   tensor<!quant.uniform<i8:f32, 0.5>>) -> tensor<i1>
               stablehlo.return %1 : tensor<i1>
           }) : (tensor<2x!quant.uniform<i8:f32:0, {0.5, 2.0:1}>>)
               -> tensor<2x!quant.uniform<i8:f32:0, {0.5, 2.0:1}>>
           return %0 : tensor<2x!quant.uniform<i8:f32:0, {0.5, 2.0:1}>>
         })",
      {array_of<int8_t>(DType::kI8, {4, 4})});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("per index of an axis"), std::string::npos)
      << result.status().to_string();
}

// The memory of results is for programs of one operation of LAPACK's; in others it is left alone.
TEST(ResultMemory, IsWrittenByLapackAlone) {
  if (lapack::table() == nullptr) GTEST_SKIP() << lapack::why_missing();
  constexpr int64_t n = 40;
  HostArray a(DType::kF64, {n, n});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) a.mutable_as<double>()[i * n + j] = i == j ? n : 1.0;
  }
  const auto program = [](const char* more, const char* result) {
    return fmt::format(R"(func.func @main(%x: tensor<40x40xf64>) -> tensor<40x40xf64> {{
                            %0 = stablehlo.cholesky %x, lower = true : tensor<40x40xf64>
                            {}
                            return {} : tensor<40x40xf64>
                          }})",
                       more, result);
  };
  std::vector<double> memory(n * n, -1);
  EvaluateOptions options;
  options.use_lapack = true;
  options.result_memory = {reinterpret_cast<std::byte*>(memory.data())};
  const auto run = [&](const std::string& text) {
    const auto module = stablehlo::read_text(text);
    EXPECT_TRUE(module.ok());
    auto results = evaluate(**module, {a}, options);
    EXPECT_TRUE(results.ok()) << results.status().to_string();
    return (*results)[0];
  };
  const HostArray other = run(program("%1 = stablehlo.add %0, %0 : tensor<40x40xf64>", "%1"));
  EXPECT_EQ(memory, std::vector<double>(n * n, -1));
  const HostArray factor = run(program("", "%0"));
  EXPECT_EQ(static_cast<const void*>(factor.data()), memory.data());
  for (size_t i = 0; i < memory.size(); ++i) EXPECT_EQ(2 * memory[i], other.as<double>()[i]);
}

}  // namespace
}  // namespace hekla::reference
