// SPDX-License-Identifier: Apache-2.0
// What lowering promises, on single operations of a few elements: which part they take in kernels,
// what a kernel reads and writes, and the elements themselves, written down by hand from
// StableHLO's specification.
#include "backends/compiler/lower/lower.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::lower {
namespace {

using Floats = std::vector<float>;
using ModulePtr = std::unique_ptr<ir::Module>;

ModulePtr read(const std::string& text) {
  Result<ModulePtr> module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

const ir::Block& body_of(const ir::Module& module) { return module.entry()->body().front(); }

// A program of one operation on %x: f32 of `from`, and the constants before it.
ModulePtr program(const std::string& from, const std::string& to, const std::string& before,
                  const std::string& op) {
  return read("func.func @main(%x: tensor<" + from + "xf32>) -> tensor<" + to + "> {\n" + before +
              "  %r = " + op + "\n  return %r : tensor<" + to + ">\n}\n");
}

// The operation whose result is returned.
const ir::Operation& last_op(const ir::Module& module) {
  return *body_of(module).terminator()->operand(0)->defining_op();
}

bool is_argument(const ir::Value& value) { return value.defining_op() == nullptr; }

// Everything in one kernel, run on 1, 2, 3, ...
Floats computed(const ir::Module& module) {
  const ir::Value* result = body_of(module).terminator()->operand(0);
  const Result<LoweredKernel> lowered = lower_kernel({result}, is_argument);
  EXPECT_TRUE(lowered.ok()) << lowered.status().to_string();
  if (!lowered.ok()) return {};
  std::unordered_map<const ir::Value*, Floats> memory;
  std::vector<std::span<std::byte>> operands;
  for (const BoundOperand& operand : lowered->operands) {
    EXPECT_NE(operand.value, nullptr);
    Floats& values = memory[operand.value];
    values.resize(static_cast<size_t>(element_count(operand.value->type().dims())));
    if (!operand.is_output) std::iota(values.begin(), values.end(), 1.0F);
  }
  for (const BoundOperand& operand : lowered->operands) {
    operands.push_back(std::as_writable_bytes(std::span(memory[operand.value])));
  }
  const Status status = kernel::interpret(lowered->kernel, operands);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return memory[result];
}

constexpr char kZero[] = "  %z = stablehlo.constant dense<0.0> : tensor<f32>\n";

// ---- roles

TEST(Roles, EachOperationTakesTheRightPart) {
  const std::string same = " : tensor<4x6xf32>";
  const std::map<std::string, Role> roles = {
      {"stablehlo.add %x, %x" + same, Role::kElementwise},
      {"stablehlo.tanh %x" + same, Role::kElementwise},
      {"stablehlo.clamp %x, %x, %x" + same, Role::kElementwise},
      {"stablehlo.constant dense<1.0>" + same, Role::kConstant},
      {"stablehlo.iota dim = 1" + same, Role::kConstant},
      {"stablehlo.reverse %x, dims = [0]" + same, Role::kMovement},
      {"stablehlo.pad %x, %z, low = [1, 0], high = [-1, 0], interior = [0, 0] : (tensor<4x6xf32>, "
       "tensor<f32>) -> tensor<4x6xf32>",
       Role::kMovement},
      {"stablehlo.custom_call @unknown(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>", Role::kNone},
  };
  for (const auto& [op, role] : roles) {
    const ModulePtr module = program("4x6", "4x6xf32", kZero, op);
    EXPECT_EQ(role_of(last_op(*module)), role) << op;
  }
  const ModulePtr sum =
      program("4x6", "4xf32", kZero,
              "stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : "
              "(tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>");
  EXPECT_EQ(role_of(last_op(*sum)), Role::kReduction);
  const ModulePtr sort = read(R"(
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
)");
  EXPECT_EQ(role_of(last_op(*sort)), Role::kSequence);
}

TEST(Roles, WhatHasNoKernelSaysWhy) {
  const ModulePtr call =
      program("4", "4xf32", "", "stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>");
  EXPECT_EQ(why_no_kernel(last_op(*call)), "there is no kernel for this operation");
  const ModulePtr negate = program("4", "4xf32", "", "stablehlo.negate %x : tensor<4xf32>");
  EXPECT_EQ(why_no_kernel(last_op(*negate)), "");
  const ModulePtr dynamic = read(
      "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n"
      "  %r = stablehlo.negate %x : tensor<?xf32>\n  return %r : tensor<?xf32>\n}\n");
  EXPECT_NE(why_no_kernel(last_op(*dynamic)).find("static"), std::string::npos);
}

TEST(Roles, ReshapesKeepTheOrderOfElements) {
  const auto keeps = [](const std::string& to, const std::string& op) {
    const ModulePtr module = program("4x6", to, "", op);
    return keeps_row_major_order(last_op(*module));
  };
  EXPECT_TRUE(keeps("24xf32", "stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>"));
  EXPECT_TRUE(keeps("4x1x6xf32",
                    "stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<4x6xf32>) "
                    "-> tensor<4x1x6xf32>"));
  EXPECT_FALSE(keeps("4x2x6xf32",
                     "stablehlo.broadcast_in_dim %x, dims = [0, 2] : "
                     "(tensor<4x6xf32>) -> tensor<4x2x6xf32>"));
  EXPECT_FALSE(keeps("6x4xf32",
                     "stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> "
                     "tensor<6x4xf32>"));
}

// ---- kernels

TEST(Kernels, ReadEachOperandOnceAndSayWhichElements) {
  const ModulePtr module = program("4x6", "4x6xf32", "  %a = stablehlo.tanh %x : tensor<4x6xf32>\n",
                                   "stablehlo.multiply %a, %x : tensor<4x6xf32>");
  const ir::Value* result = body_of(*module).terminator()->operand(0);
  const Result<LoweredKernel> lowered = lower_kernel({result}, is_argument);
  ASSERT_TRUE(lowered.ok());
  ASSERT_EQ(lowered->operands.size(), 2u);
  EXPECT_TRUE(is_argument(*lowered->operands[0].value));
  EXPECT_EQ(lowered->operands[1].value, result);
  EXPECT_TRUE(lowered->operands[1].is_output);
  EXPECT_TRUE(lowered->kernel.operands[0].is_pointwise);
  EXPECT_EQ(lowered->kernel.operands[0].bytes, 4 * 6 * 4);
  EXPECT_EQ(lowered->kernel.points(), 4 * 6);
  // With the tanh in memory it is one more operand, and not computed.
  const Result<LoweredKernel> loads = lower_kernel({result}, [&](const ir::Value& value) {
    return is_argument(value) || value.defining_op()->code() == ir::OpCode::kTanh;
  });
  ASSERT_TRUE(loads.ok());
  EXPECT_EQ(loads->operands.size(), 3u);
  EXPECT_LT(loads->kernel.body.size(), lowered->kernel.body.size());
}

TEST(Kernels, ReadsOfOtherElementsAreNotPointwise) {
  const ModulePtr module =
      program("4x6", "4x6xf32", "", "stablehlo.reverse %x, dims = [1] : tensor<4x6xf32>");
  const Result<LoweredKernel> lowered =
      lower_kernel({body_of(*module).terminator()->operand(0)}, is_argument);
  ASSERT_TRUE(lowered.ok());
  EXPECT_FALSE(lowered->kernel.operands[0].is_pointwise);
}

TEST(Kernels, TooManyInstructionsAreAnErrorWithTheLimit) {
  const ModulePtr module = program("4", "4xf32", "", "stablehlo.tanh %x : tensor<4xf32>");
  LowerOptions options;
  options.max_instructions = 10;
  const Result<LoweredKernel> lowered =
      lower_kernel({body_of(*module).terminator()->operand(0)}, is_argument, options);
  EXPECT_EQ(lowered.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(lowered.status().message().find("10"), std::string::npos) << lowered.status().message();
}

TEST(Kernels, OperationsWithoutScalarFormAreUnimplemented) {
  const ModulePtr module =
      program("4", "4xf32", "", "stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>");
  EXPECT_EQ(lower_kernel({body_of(*module).terminator()->operand(0)}, is_argument).status().code(),
            StatusCode::kUnimplemented);
}

// ---- elements

// ---- indices

// Kernels that compute what they read from a larger array count in what that one needs.
TEST(Indices, AreAsWideAsTheLargestArrayThatTheyGoInto) {
  const std::string head = "func.func @main(%all: tensor<2x3000000000xi8>) -> tensor<";
  const std::string part =
      "  %x = stablehlo.slice %all [1:2, 2999000000:2999065536] : (tensor<2x3000000000xi8>) -> "
      "tensor<1x65536xi8>\n  %z = stablehlo.constant dense<0> : tensor<i8>\n";
  const std::string sum =
      "stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : "
      "(tensor<1x65536xi8>, tensor<i8>) -> tensor<1xi8>\n";
  const std::string from = "(tensor<1x65536xi8>) -> tensor<1x65536xi8>\n";
  const struct {
    const char* name;
    std::string type, operation;
  } kCases[] = {
      {"reduce", "1xi8", "  %r = " + sum},
      {"rows", "1x65536xi8",
       "  %s = " + sum +
           "  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xi8>) -> "
           "tensor<1x65536xi8>\n  %r = stablehlo.subtract %x, %b : tensor<1x65536xi8>\n"},
      {"sort", "1x65536xi8",
       "  %r = \"stablehlo.sort\"(%x) ({\n  ^bb0(%a: tensor<i8>, %b: tensor<i8>):\n"
       "    %p = stablehlo.compare LT, %a, %b : (tensor<i8>, tensor<i8>) -> tensor<i1>\n"
       "    stablehlo.return %p : tensor<i1>\n  }) {dimension = 1 : i64, is_stable = true} : " +
           from},
      {"scan", "1x65536xi8",
       "  %r = \"stablehlo.reduce_window\"(%x, %z) ({\n  ^bb0(%a: tensor<i8>, %b: tensor<i8>):\n"
       "    %p = stablehlo.add %a, %b : tensor<i8>\n    stablehlo.return %p : tensor<i8>\n"
       "  }) {window_dimensions = array<i64: 1, 65536>, padding = dense<[[0, 0], [65535, 0]]> : "
       "tensor<2x2xi64>} : (tensor<1x65536xi8>, tensor<i8>) -> tensor<1x65536xi8>\n"},
  };
  for (const auto& [name, type, operation] : kCases) {
    for (const int64_t team_points : {1, 256}) {
      SCOPED_TRACE(testing::Message() << name << ", teams of " << team_points);
      const ModulePtr module = read(head + type + "> {\n" + part + operation +
                                    "  return %r : tensor<" + type + ">\n}\n");
      LowerOptions options;
      options.team_points = team_points;
      options.team_words = 4096;
      const Result<LoweredSequence> lowered =
          lower_sequence({body_of(*module).terminator()->operand(0)}, is_argument, options);
      ASSERT_TRUE(lowered.ok()) << lowered.status().to_string();
      size_t readers = 0;
      for (const LoweredKernel& made : lowered->kernels) {
        for (const BoundOperand& operand : made.operands) {
          if (operand.value == nullptr || !is_argument(*operand.value)) continue;
          ++readers;
          EXPECT_EQ(made.kernel.index_type, kernel::ScalarType::kI64) << made.kernel.name;
        }
      }
      EXPECT_GT(readers, 0u);
    }
  }
}

TEST(Elements, PadsAreLowHighInteriorAndMayBeNegative) {
  const auto padded = [](const std::string& to, const std::string& numbers) {
    return computed(*program("3", to + "xf32", kZero,
                             "stablehlo.pad %x, %z, " + numbers +
                                 " : (tensor<3xf32>, tensor<f32>) -> tensor<" + to + "xf32>"));
  };
  EXPECT_EQ(padded("6", "low = [1], high = [2], interior = [0]"), (Floats{0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(padded("5", "low = [0], high = [0], interior = [1]"), (Floats{1, 0, 2, 0, 3}));
  EXPECT_EQ(padded("4", "low = [-1], high = [0], interior = [1]"), (Floats{0, 2, 0, 3}));
  EXPECT_EQ(padded("2", "low = [1], high = [-2], interior = [0]"), (Floats{0, 1}));
}

TEST(Elements, SlicesReversesAndTransposes) {
  EXPECT_EQ(computed(*program("7", "3xf32", "",
                              "stablehlo.slice %x [1:7:2] : (tensor<7xf32>) -> tensor<3xf32>")),
            (Floats{2, 4, 6}));
  EXPECT_EQ(computed(*program("2x3", "2x3xf32", "",
                              "stablehlo.reverse %x, dims = [1] : tensor<2x3xf32>")),
            (Floats{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(computed(*program("2x3", "3x2xf32", "",
                              "stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> "
                              "tensor<3x2xf32>")),
            (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(computed(*program("2", "2x2xf32", "",
                              "stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<2xf32>) -> "
                              "tensor<2x2xf32>")),
            (Floats{1, 2, 1, 2}));
  EXPECT_EQ(computed(*program("2x2", "2x4xf32", "",
                              "stablehlo.concatenate %x, %x, dim = 1 : (tensor<2x2xf32>, "
                              "tensor<2x2xf32>) -> tensor<2x4xf32>")),
            (Floats{1, 2, 1, 2, 3, 4, 3, 4}));
}

// Starts are clamped so that the slice lies inside.
TEST(Elements, DynamicSlicesAreClamped) {
  for (const auto& [start, wanted] : std::map<std::string, Floats>{
           {"-5", {1, 2}}, {"0", {1, 2}}, {"2", {3, 4}}, {"3", {4, 5}}, {"9", {4, 5}}}) {
    EXPECT_EQ(computed(*program(
                  "5", "2xf32", "  %i = stablehlo.constant dense<" + start + "> : tensor<i32>\n",
                  "stablehlo.dynamic_slice %x, %i, sizes = [2] : (tensor<5xf32>, tensor<i32>) -> "
                  "tensor<2xf32>")),
              wanted)
        << start;
  }
}

TEST(Elements, SumsTakeTheInitialValueOnce) {
  const std::string init = "  %z = stablehlo.constant dense<100.0> : tensor<f32>\n";
  EXPECT_EQ(computed(*program(
                "2x3", "2xf32", init,
                "stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : "
                "(tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>")),
            (Floats{106, 115}));
  EXPECT_EQ(computed(*program(
                "2x3", "3xf32", init,
                "stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0] "
                ": (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>")),
            (Floats{100, 100, 100}));
}

TEST(Elements, ProductsOfMatricesInEveryLayout) {
  // x = [[1, 2], [3, 4]]
  const auto product = [](const std::string& numbers) {
    return computed(*program("2x2", "2x2xf32", "",
                             "stablehlo.dot_general %x, %x, contracting_dims = " + numbers +
                                 " : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>"));
  };
  EXPECT_EQ(product("[1] x [0]"), (Floats{7, 10, 15, 22}));
  EXPECT_EQ(product("[1] x [1]"), (Floats{5, 11, 11, 25}));
  EXPECT_EQ(product("[0] x [0]"), (Floats{10, 14, 14, 20}));
  EXPECT_EQ(product("[0] x [1]"), (Floats{7, 15, 10, 22}));
}

TEST(Elements, WindowsSumWithPaddingAndStride) {
  const ModulePtr module = read(R"(
func.func @main(%x: tensor<5xf32>) -> tensor<3xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 3>, window_strides = array<i64: 2>,
      padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<5xf32>, tensor<f32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}
)");
  EXPECT_EQ(computed(*module), (Floats{3, 9, 9}));
}

// Lengths that a kernel may not read beyond: one element less and more than a vector.
TEST(Elements, EveryLengthEndsWhereItEnds) {
  for (const int length : {1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 129}) {
    const std::string n = std::to_string(length);
    const Floats got = computed(*program(
        n, "f32", kZero,
        "stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<" +
            n + "xf32>, tensor<f32>) -> tensor<f32>"));
    EXPECT_EQ(got, (Floats{static_cast<float>(length * (length + 1) / 2)})) << n;
  }
}

}  // namespace
}  // namespace hekla::lower
