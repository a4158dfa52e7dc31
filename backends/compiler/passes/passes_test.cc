// SPDX-License-Identifier: Apache-2.0
// What each pass promises, on graphs of a few lines. Numbers are the business of tests/compiler.
#include "backends/compiler/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/compiler/passes/testing/module_of_text.h"

namespace hekla::passes {
namespace {

// The body of main, one argument %x of f32 [4,6].
ModulePtr main_of(const std::string& body, const std::string& result,
                  const std::string& type = "tensor<4x6xf32>") {
  return read("func.func @main(%x: tensor<4x6xf32>) -> " + type + " {\n" + body + "  return %" +
              result + " : " + type + "\n}\n");
}

// Of one operand of each such operation of main.
Names operand_types(const ir::Module& module, ir::OpCode code, size_t operand) {
  Names types;
  for (const auto& op : module.entry()->body().front().operations()) {
    if (op->code() == code) types.push_back(op->operand(operand)->type().to_string());
  }
  return types;
}

Names simplified(ModulePtr module) {
  simplify(*module);
  expect_valid(*module);
  clean_up(*module);
  expect_valid(*module);
  return operations(*module);
}

Names inlined(ModulePtr module) {
  const Status status = inline_calls(*module);
  EXPECT_TRUE(status.ok()) << status.to_string();
  expect_valid(*module);
  return operations(*module);
}

// ---- simplify

TEST(Simplify, WhatChangesNothingGoes) {
  const std::string type = " : tensor<4x6xf32>\n";
  const std::string to_same = " : (tensor<4x6xf32>) -> tensor<4x6xf32>\n";
  for (const std::string& op :
       {"stablehlo.reshape %x" + to_same, "stablehlo.transpose %x, dims = [0, 1]" + to_same,
        "stablehlo.slice %x [0:4, 0:6]" + to_same, "stablehlo.convert %x" + type,
        "stablehlo.broadcast_in_dim %x, dims = [0, 1]" + to_same}) {
    EXPECT_EQ(simplified(main_of("  %a = " + op + "  %b = stablehlo.negate %a" + type, "b")),
              (Names{"negate"}))
        << op;
  }
}

TEST(Simplify, TwoTransposesAreOneOrNone) {
  const std::string first =
      "  %a = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>\n";
  const std::string back =
      "  %b = stablehlo.transpose %a, dims = [1, 0] : (tensor<6x4xf32>) -> tensor<4x6xf32>\n"
      "  %c = stablehlo.negate %b : tensor<4x6xf32>\n";
  EXPECT_EQ(simplified(main_of(first + back, "c")), (Names{"negate"}));
  const std::string text =
      "func.func @main(%x: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {\n"
      "  %a = stablehlo.transpose %x, dims = [1, 2, 0] : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>\n"
      "  %b = stablehlo.transpose %a, dims = [1, 2, 0] : (tensor<3x4x2xf32>) -> tensor<4x2x3xf32>\n"
      "  return %b : tensor<4x2x3xf32>\n}\n";
  EXPECT_EQ(simplified(read(text)), (Names{"transpose"}));
}

TEST(Simplify, ReshapesInARowAreOne) {
  EXPECT_EQ(
      simplified(main_of("  %a = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>\n"
                         "  %b = stablehlo.reshape %a : (tensor<24xf32>) -> tensor<2x12xf32>\n",
                         "b", "tensor<2x12xf32>")),
      (Names{"reshape"}));
}

TEST(Simplify, MovementOfEqualElementsIsAConstant) {
  EXPECT_EQ(
      simplified(main_of("  %k = stablehlo.constant dense<2.5> : tensor<6x4xf32>\n"
                         "  %a = stablehlo.transpose %k, dims = [1, 0] : (tensor<6x4xf32>) -> "
                         "tensor<4x6xf32>\n"
                         "  %b = stablehlo.add %a, %x : tensor<4x6xf32>\n",
                         "b")),
      (Names{"constant", "add"}));
}

TEST(Simplify, ASliceOfOnePartOfAConcatenateIsTakenFromThere) {
  const auto sliced = [](const std::string& range, const std::string& type) {
    return simplified(main_of(
        "  %n = stablehlo.negate %x : tensor<4x6xf32>\n"
        "  %a = stablehlo.concatenate %n, %x, dim = 0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> "
        "tensor<8x6xf32>\n"
        "  %b = stablehlo.concatenate %x, %a, dim = 0 : (tensor<4x6xf32>, tensor<8x6xf32>) -> "
        "tensor<12x6xf32>\n"
        "  %s = stablehlo.slice %b [" +
            range + "] : (tensor<12x6xf32>) -> " + type + "\n",
        "s", type));
  };
  EXPECT_EQ(sliced("4:8, 0:6", "tensor<4x6xf32>"), Names{"negate"});
  EXPECT_EQ(sliced("8:12, 0:6", "tensor<4x6xf32>"), Names());
  EXPECT_EQ(sliced("5:7, 1:3", "tensor<2x2xf32>"), (Names{"negate", "slice"}));
  // By steps that end in the operand, though the limit does not.
  EXPECT_EQ(sliced("4:9:3, 0:6", "tensor<2x6xf32>"), (Names{"negate", "slice"}));
  // Of the inner one, and of two operands.
  EXPECT_EQ(sliced("7:9, 0:6", "tensor<2x6xf32>"), (Names{"negate", "concatenate", "slice"}));
  EXPECT_EQ(sliced("4:9:4, 0:6", "tensor<2x6xf32>"), (Names{"negate", "concatenate", "slice"}));
  EXPECT_EQ(sliced("3:5, 0:6", "tensor<2x6xf32>"),
            (Names{"negate", "concatenate", "concatenate", "slice"}));
}

// A slice of a part, and a transpose that moves something.
TEST(Simplify, WhatChangesSomethingStays) {
  EXPECT_EQ(simplified(main_of(
                "  %a = stablehlo.slice %x [0:4, 0:5] : (tensor<4x6xf32>) -> tensor<4x5xf32>\n",
                "a", "tensor<4x5xf32>")),
            (Names{"slice"}));
  EXPECT_EQ(simplified(main_of("  %a = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) "
                               "-> tensor<6x4xf32>\n",
                               "a", "tensor<6x4xf32>")),
            (Names{"transpose"}));
}

// ---- clean_up

Names cleaned(ModulePtr module) {
  clean_up(*module);
  expect_valid(*module);
  return operations(*module);
}

TEST(CleanUp, EqualPureOperationsAreOneAndUnusedOnesGo) {
  EXPECT_EQ(cleaned(main_of("  %a = stablehlo.tanh %x : tensor<4x6xf32>\n"
                            "  %b = stablehlo.tanh %x : tensor<4x6xf32>\n"
                            "  %u = stablehlo.sine %x : tensor<4x6xf32>\n"
                            "  %c = stablehlo.add %a, %b : tensor<4x6xf32>\n",
                            "c")),
            (Names{"tanh", "add"}));
}

// They look the same and are not: rng draws again, a custom call may do anything.
TEST(CleanUp, OperationsWithEffectsStayAsOftenAsTheyAre) {
  EXPECT_EQ(cleaned(main_of("  %a = stablehlo.custom_call @f(%x) {has_side_effect = true} : "
                            "(tensor<4x6xf32>) -> tensor<4x6xf32>\n"
                            "  %b = stablehlo.custom_call @f(%x) {has_side_effect = true} : "
                            "(tensor<4x6xf32>) -> tensor<4x6xf32>\n"
                            "  %c = stablehlo.negate %x : tensor<4x6xf32>\n",
                            "c")),
            (Names{"custom_call", "custom_call", "negate"}));
}

// ---- inline_calls

TEST(InlineCalls, BodiesStandInPlaceOfCalls) {
  const std::string text = R"(
module {
func.func public @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = func.call @twice(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = func.call @twice(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %b : tensor<4x6xf32>
}
func.func private @twice(%y: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = stablehlo.add %y, %y : tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}
}
)";
  ModulePtr module = read(text);
  ASSERT_TRUE(inline_calls(*module).ok());
  EXPECT_EQ(operations(*module), (Names{"add", "add"}));
  EXPECT_EQ(module->functions.size(), 1u);
}

TEST(InlineCalls, CompositesAreTheirDecompositionsAndErfIsOurs) {
  const auto composite = [](const std::string& name, const std::string& type) {
    return read("module {\nfunc.func public @main(%x: " + type + ") -> " + type +
                " {\n  %r = stablehlo.composite \"" + name + "\" %x {decomposition = @f} : (" +
                type + ") -> " + type + "\n  return %r : " + type +
                "\n}\nfunc.func private @f(%y: " + type + ") -> " + type +
                " {\n  %r = stablehlo.negate %y : " + type + "\n  return %r : " + type +
                "\n}\n}\n");
  };
  EXPECT_EQ(inlined(composite("my.f", "tensor<4xf32>")), (Names{"negate"}));
  // Two digits more than f32 has are the sender's to give.
  EXPECT_EQ(inlined(composite("chlo.erf", "tensor<4xf64>")), (Names{"negate"}));
  for (const std::string type : {"f32", "f16", "bf16", "f8E5M2"}) {
    const Names names = inlined(composite("chlo.erf", "tensor<4x" + type + ">"));
    EXPECT_EQ(std::count(names.begin(), names.end(), "negate"), 0) << type;
    EXPECT_EQ(std::count(names.begin(), names.end(), "divide"), 0) << type;
    EXPECT_GT(names.size(), 30u) << type;
  }
}

TEST(InlineCalls, AnnotationsOfOneDeviceGo) {
  EXPECT_EQ(inlined(main_of("  %a = stablehlo.custom_call @Sharding(%x) : (tensor<4x6xf32>) -> "
                            "tensor<4x6xf32>\n"
                            "  %b = stablehlo.optimization_barrier %a : tensor<4x6xf32>\n"
                            "  %c = stablehlo.negate %b : tensor<4x6xf32>\n",
                            "c")),
            (Names{"negate"}));
}

// ---- the others

TEST(FoldEmptySums, ReductionsOfNothingAreTheirInitialValues) {
  const auto reduced = [](const std::string& type, const std::string& dimension,
                          const std::string& result) {
    ModulePtr module = read("func.func @main(%x: " + type + ", %z: tensor<f32>) -> " + result +
                            " {\n  %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across "
                            "dimensions = [" +
                            dimension + "] : (" + type + ", tensor<f32>) -> " + result +
                            "\n  return %r : " + result + "\n}\n");
    fold_empty_sums(*module);
    expect_valid(*module);
    return operations(*module);
  };
  EXPECT_EQ(reduced("tensor<0x8xf32>", "0", "tensor<8xf32>"), Names{"broadcast_in_dim"});
  EXPECT_EQ(reduced("tensor<0x8xf32>", "1", "tensor<0xf32>"), Names{"reduce"});
  EXPECT_EQ(reduced("tensor<4x8xf32>", "0", "tensor<8xf32>"), Names{"reduce"});
}

TEST(WidenContractions, SumsOfHalvesAreTakenInF32AndRoundedOnce) {
  ModulePtr module = read(
      "func.func @main(%x: tensor<4x6xbf16>, %y: tensor<6x5xbf16>) -> tensor<4x5xbf16> {\n"
      "  %a = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x6xbf16>, "
      "tensor<6x5xbf16>) -> tensor<4x5xbf16>\n  return %a : tensor<4x5xbf16>\n}\n");
  widen_contractions(*module, [](const ir::Operation&) { return true; });
  expect_valid(*module);
  EXPECT_EQ(operations(*module), (Names{"dot_general", "convert"}));
  const ir::Operation& dot = *module->entry()->body().front().operations().front();
  EXPECT_EQ(dot.result()->type().dtype(), DType::kF32);
}

TEST(WidenContractions, WhatIsKeptStaysAsItIs) {
  ModulePtr module = read(
      "func.func @main(%x: tensor<4x4xbf16>) -> tensor<4x4xbf16> {\n"
      "  %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<4x4xbf16>, "
      "tensor<4x4xbf16>) -> tensor<4x4xbf16>\n  return %a : tensor<4x4xbf16>\n}\n");
  widen_contractions(
      *module, [](const ir::Operation&) { return true; },
      [](const ir::Operation& op) { return op.result()->type().dtype() == DType::kBF16; });
  EXPECT_EQ(operations(*module), (Names{"dot_general"}));
}

TEST(WidenContractions, F32StaysAsItIs) {
  ModulePtr module = main_of(
      "  %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<4x6xf32>, "
      "tensor<4x6xf32>) -> tensor<4x4xf32>\n",
      "a", "tensor<4x4xf32>");
  widen_contractions(*module, [](const ir::Operation&) { return true; });
  EXPECT_EQ(operations(*module), (Names{"dot_general"}));
}

TEST(SumThinProducts, TheLargeOperandIsReducedInItsOwnOrder) {
  // Both operands, which dimensions are summed, and whether that is thin enough.
  struct Case {
    const char *left, *right, *numbers, *result;
    size_t sums;
  };
  for (const Case& c :
       {Case{"4x6xf32", "6xf32", "contracting_dims = [1] x [0]", "4xf32", 1},
        Case{"6xbf16", "6x5xbf16", "contracting_dims = [0] x [0]", "5xbf16", 1},
        Case{"6x9xf32", "6x2xf32", "contracting_dims = [0] x [0]", "9x2xf32", 2},
        Case{"2x6xf32", "9x6xf32", "contracting_dims = [1] x [1]", "2x9xf32", 2},
        Case{"6xf32", "6xf32", "contracting_dims = [0] x [0]", "f32", 1},
        Case{"3x2x6xf32", "4x3x6xf32", "batching_dims = [0] x [1], contracting_dims = [2] x [2]",
             "3x2x4xf32", 2},
        Case{"4x6xf32", "6x4xf32", "contracting_dims = [1] x [0]", "4x4xf32", 0},
        Case{"4x6xi32", "6xi32", "contracting_dims = [1] x [0]", "4xi32", 0}}) {
    const auto tensor = [](const char* type) { return "tensor<" + std::string(type) + ">"; };
    ModulePtr module =
        read("func.func @main(%x: " + tensor(c.left) + ", %y: " + tensor(c.right) + ") -> " +
             tensor(c.result) + " {\n  %a = stablehlo.dot_general %x, %y, " + c.numbers + " : (" +
             tensor(c.left) + ", " + tensor(c.right) + ") -> " + tensor(c.result) +
             "\n  return %a : " + tensor(c.result) + "\n}\n");
    ASSERT_TRUE(sum_thin_products(*module, {.most_columns = 2,
                                            .least_line = 6,
                                            .least_elements = 6,
                                            .least_elements_of_several = 20})
                    .ok());
    expect_valid(*module);
    const Names names = operations(*module);
    EXPECT_EQ(static_cast<size_t>(std::count(names.begin(), names.end(), "reduce")), c.sums)
        << c.left << " by " << c.right;
    EXPECT_EQ(std::count(names.begin(), names.end(), "dot_general"), c.sums == 0 ? 1 : 0);
  }
}

TEST(Expand, ErfOfOlderSendersIsElementwise) {
  for (const std::string target : {"mhlo.erf", "chlo.erf"}) {
    ModulePtr module = main_of(
        "  %a = stablehlo.custom_call @" + target + "(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>\n",
        "a");
    ASSERT_TRUE(expand(*module).ok());
    expect_valid(*module);
    const Names names = operations(*module);
    EXPECT_EQ(std::count(names.begin(), names.end(), "custom_call"), 0) << target;
  }
}

TEST(Expand, ComplexNumbersForCholeskyAreHalvedByParts) {
  for (const auto& [divisor, by_parts] :
       {std::pair{"(2.0, 0.0)", true}, {"(2.0, 1.0)", false}, {"(0.0, 0.0)", false}}) {
    ModulePtr module = read(std::string("func.func @main(%x: tensor<64x4x4xcomplex<f32>>) -> ") +
                            "tensor<64x4x4xcomplex<f32>> {\n"
                            "  %c = stablehlo.constant dense<" +
                            divisor +
                            "> : tensor<complex<f32>>\n"
                            "  %d = stablehlo.broadcast_in_dim %c, dims = [] : "
                            "(tensor<complex<f32>>) -> tensor<64x4x4xcomplex<f32>>\n"
                            "  %h = stablehlo.divide %x, %d : tensor<64x4x4xcomplex<f32>>\n"
                            "  %a = stablehlo.cholesky %h, lower = true : "
                            "tensor<64x4x4xcomplex<f32>>\n"
                            "  return %a : tensor<64x4x4xcomplex<f32>>\n}\n");
    ASSERT_TRUE(expand(*module, /*lapack=*/true).ok());
    clean_up(*module);
    expect_valid(*module);
    const Names names = operations(*module);
    EXPECT_EQ(std::count(names.begin(), names.end(), "complex"), by_parts ? 1 : 0) << divisor;
    EXPECT_EQ(std::count(names.begin(), names.end(), "divide"), by_parts ? 2 : 1) << divisor;
    EXPECT_EQ(std::count(names.begin(), names.end(), "cholesky"), 1) << divisor;
  }
}

TEST(Expand, CholeskyBecomesLoopsAndContractions) {
  ModulePtr module = read(
      "func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {\n"
      "  %a = stablehlo.cholesky %x, lower = true : tensor<64x64xf32>\n"
      "  return %a : tensor<64x64xf32>\n}\n");
  ASSERT_TRUE(expand(*module).ok());
  expect_valid(*module);
  const Names names = operations(*module);
  EXPECT_EQ(std::count(names.begin(), names.end(), "cholesky"), 0);
  EXPECT_GT(std::count(names.begin(), names.end(), "while"), 0);
}

TEST(Expand, SolvesAreLeftToLapackByTheirSizes) {
  struct Case {
    const char *batch, *rows, *columns, *dtype;
    bool is_left, stays;
  };
  for (const Case& c : {
           // In lanes of vectors.
           Case{"3x", "16", "16", "f32", true, false},
           {"4x", "16", "16", "f64", false, true},
           {"2x128x", "2", "1", "complex<f32>", true, true},
           {"255x", "2", "1", "f32", true, false},
           {"9000x", "1", "4", "f32", true, false},
           {"700x", "17", "16", "f64", true, false},
           {"700x", "16", "17", "f64", true, false},
           {"700x", "16", "17", "f64", false, false},
           {"700x", "4", "4", "bf16", true, false},
           // 16 right-hand sides, 32 rows, 8,192 elements.
           {"", "90", "16", "f32", true, false},
           {"", "91", "16", "f32", true, true},
           {"", "91", "16", "f32", false, true},
           {"", "91", "15", "f32", true, false},
           {"9x", "31", "64", "f64", true, false},
           {"7x", "32", "64", "f64", true, false},
           {"8x", "32", "64", "f64", true, true},
           {"2x4x", "32", "16", "f32", false, true},
           // Fewer.
           {"", "255", "2", "f32", true, false},
           {"", "256", "2", "f32", true, true},
           {"", "256", "2", "f32", false, true},
           {"", "256", "1", "f32", true, false},
           {"", "512", "1", "f32", false, false},
           {"", "512", "512", "bf16", true, false},
           {"", "127", "1", "f64", true, false},
           {"", "128", "1", "f64", true, true},
       }) {
    const std::string rows = c.rows, columns = c.columns, of = std::string("tensor<") + c.batch;
    const std::string a = of + rows + "x" + rows + "x" + c.dtype + ">";
    const std::string b =
        of + (c.is_left ? rows + "x" + columns : columns + "x" + rows) + "x" + c.dtype + ">";
    ModulePtr module = read("func.func @main(%x: " + a + ", %y: " + b + ") -> " + b +
                            " {\n  %a = \"stablehlo.triangular_solve\"(%x, %y) {left_side = " +
                            (c.is_left ? "true" : "false") +
                            ", lower = true, unit_diagonal = false, transpose_a = "
                            "#stablehlo<transpose NO_TRANSPOSE>} : (" +
                            a + ", " + b + ") -> " + b + "\n  return %a : " + b + "\n}\n");
    ASSERT_TRUE(expand(*module, /*lapack=*/true).ok());
    expect_valid(*module);
    EXPECT_EQ(operations(*module) == Names{"triangular_solve"}, c.stays)
        << c.batch << rows << ' ' << columns << ' ' << c.dtype << ' ' << c.is_left;
  }
}

TEST(Expand, CholeskyIsLeftToLapackByItsSizes) {
  struct Case {
    const char *batch, *rows;
    bool stays;
  };
  for (const Case& c : {Case{"9000x", "1", false},
                        {"255x", "2", false},
                        {"256x", "2", true},  // in lanes of vectors
                        {"3x", "16", false},
                        {"4x", "16", true},
                        {"", "17", false},
                        {"5x", "17", false},
                        {"6x", "17", true},
                        {"", "39", false},
                        {"", "40", true}}) {
    const std::string type = std::string("tensor<") + c.batch + c.rows + "x" + c.rows + "xf32>";
    ModulePtr module = read("func.func @main(%x: " + type + ") -> " + type +
                            " {\n  %a = stablehlo.cholesky %x, lower = true : " + type +
                            "\n  return %a : " + type + "\n}\n");
    ASSERT_TRUE(expand(*module, /*lapack=*/true).ok());
    expect_valid(*module);
    EXPECT_EQ(operations(*module) == Names{"cholesky"}, c.stays) << c.batch << c.rows;
  }
}

// ---- expand_batch_norms

ModulePtr batch_norm(const std::string& op, const std::string& operands, const std::string& types,
                     const std::string& x, const std::string& results) {
  return read("func.func @main(%x: tensor<" + x + ">, %a: tensor<6xbf16>, %b: tensor<6xbf16>, " +
              "%c: tensor<6xbf16>, %d: tensor<6xbf16>, %g: tensor<" + x + ">) -> tensor<" + x +
              "> {\n  %r" + results + " = \"stablehlo." + op + "\"(" + operands +
              ") {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : " + types + "\n  return %r" +
              (results.empty() ? "" : "#0") + " : tensor<" + x + ">\n}\n");
}

TEST(ExpandBatchNorms, TheyAreReductionsAndArithmeticInF32) {
  const std::string f = "tensor<6xbf16>";
  for (const std::string x : {"4x6xbf16", "6x6x1x3xbf16"}) {
    const std::string t = "tensor<" + x + ">";
    const std::string three =
        "(" + t + ", " + f + ", " + f + ") -> (" + t + ", " + f + ", " + f + ")";
    const std::string five = "(" + t + ", " + f + ", " + f + ", " + f + ", ";
    ModulePtr modules[] = {
        batch_norm("batch_norm_training", "%x, %a, %b", three, x, ":3"),
        batch_norm("batch_norm_inference", "%x, %a, %b, %c, %d", five + f + ") -> " + t, x, ""),
        batch_norm("batch_norm_grad", "%x, %a, %b, %c, %g",
                   five + t + ") -> (" + t + ", " + f + ", " + f + ")", x, ":3")};
    const int reductions[] = {2, 0, 2};
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(expand_batch_norms(*modules[i]).ok());
      expect_valid(*modules[i]);
      int found = 0;
      for (const auto& op : modules[i]->entry()->body().front().operations()) {
        EXPECT_FALSE(op->name().starts_with("stablehlo.batch_norm"));
        if (op->code() != ir::OpCode::kReduce) continue;
        ++found;
        EXPECT_EQ(op->result()->type().to_string(), "tensor<6xf32>");
      }
      EXPECT_EQ(found, reductions[i]);
    }
  }
}

TEST(ExpandBatchNorms, OfNoElementsStays) {
  const std::string f = "tensor<6xbf16>", t = "tensor<0x6xbf16>";
  ModulePtr module = batch_norm(
      "batch_norm_training", "%x, %a, %b",
      "(" + t + ", " + f + ", " + f + ") -> (" + t + ", " + f + ", " + f + ")", "0x6xbf16", ":3");
  ASSERT_TRUE(expand_batch_norms(*module).ok());
  EXPECT_EQ(operations(*module), (Names{"batch_norm_training"}));
}

TEST(WriteWideConcatenates, EachOperandIsWrittenOnce) {
  // As JAX writes many of them: concatenates of concatenates, some of no elements.
  const std::string text = R"(
    %none = stablehlo.slice %x [0:0, 0:6] : (tensor<4x6xf32>) -> tensor<0x6xf32>
    %a = stablehlo.concatenate %x, %none, %x, dim = 0 : (tensor<4x6xf32>, tensor<0x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    %b = stablehlo.concatenate %a, %x, dim = 0 : (tensor<8x6xf32>, tensor<4x6xf32>) -> tensor<12x6xf32>
)";
  const auto written = [&](const WideConcatenateLimits& limits) {
    const ModulePtr module = main_of(text, "b", "tensor<12x6xf32>");
    const Status status = write_wide_concatenates(*module, limits);
    EXPECT_TRUE(status.ok()) << status.to_string();
    expect_valid(*module);
    clean_up(*module);
    expect_valid(*module);
    const Names names = operations(*module);
    return std::pair(std::count(names.begin(), names.end(), "dynamic_update_slice"),
                     std::count(names.begin(), names.end(), "concatenate"));
  };
  EXPECT_EQ(written({.least_operands = 3, .least_run = 24, .least_work = 3 * 72}),
            std::pair(3L, 0L));
  EXPECT_EQ(written({.least_operands = 4, .least_run = 24, .least_work = 0}), std::pair(0L, 2L));
  EXPECT_EQ(written({.least_operands = 3,
                     .least_run = 25,
                     .least_operands_of_short_runs = 4,
                     .least_work = 0}),
            std::pair(0L, 2L));
  EXPECT_EQ(written({.least_operands = 3, .least_run = 24, .least_work = 3 * 72 + 1}),
            std::pair(0L, 2L));
}

TEST(WriteWideConcatenates, OfNoElementsStays) {
  const ModulePtr module = main_of(R"(
    %none = stablehlo.slice %x [0:0, 0:6] : (tensor<4x6xf32>) -> tensor<0x6xf32>
    %b = stablehlo.concatenate %none, %none, dim = 0 : (tensor<0x6xf32>, tensor<0x6xf32>) -> tensor<0x6xf32>
)",
                                   "b", "tensor<0x6xf32>");
  EXPECT_TRUE(write_wide_concatenates(*module, {.least_operands = 1, .least_work = 0}).ok());
  EXPECT_EQ(operations(*module), (Names{"slice", "concatenate"}));
}

// Equal parts where a sum has nearly as many as are wanted; else as many, and what is left.
TEST(SplitContractions, PartsAreEqualAndTheRestIsAdded) {
  struct Case {
    int64_t depth, most_points;
    std::string parts, rest;  // types of the first operand of each product; no rest: empty
  };
  for (const Case& c : {Case{12, 4 * 24, "tensor<4x3x4xf32>", ""},
                        Case{13, 4 * 24, "tensor<4x3x4xf32>", "tensor<1x4xf32>"},
                        Case{15, 4 * 24, "tensor<3x5x4xf32>", ""},
                        Case{17, 8 * 24, "tensor<8x2x4xf32>", "tensor<1x4xf32>"},
                        Case{23, 4 * 24, "tensor<4x5x4xf32>", "tensor<3x4xf32>"},
                        Case{13, 24, "", "tensor<13x4xf32>"}}) {
    const std::string left = "tensor<" + std::to_string(c.depth) + "x4xf32>";
    const std::string right = "tensor<" + std::to_string(c.depth) + "x6xf32>";
    const ModulePtr module =
        read("func.func @main(%x: " + left + ", %y: " + right + ") -> tensor<4x6xf32> {\n" +
             "  %a = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (" + left + ", " +
             right + ") -> tensor<4x6xf32>\n  return %a : tensor<4x6xf32>\n}\n");
    ASSERT_TRUE(
        split_contractions(
            *module,
            {.most_points = c.most_points, .long_depth = 2, .least_depth = 1, .few_points = 1})
            .ok());
    expect_valid(*module);
    Names wanted;
    for (const std::string& each : {c.parts, c.rest}) {
      if (!each.empty()) wanted.push_back(each);
    }
    EXPECT_EQ(operand_types(*module, ir::OpCode::kDotGeneral, 0), wanted) << c.depth;
  }
}

TEST(SplitContractions, FeaturesOfAConvolutionBecomeGroupsAndARest) {
  const ModulePtr module = read(R"(
func.func @main(%x: tensor<1x4x4x7xf32>, %k: tensor<3x3x7x2xf32>) -> tensor<1x2x2x2xf32> {
  %a = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x7xf32>, tensor<3x3x7x2xf32>) -> tensor<1x2x2x2xf32>
  return %a : tensor<1x2x2x2xf32>
}
)");
  ASSERT_TRUE(
      split_contractions(*module,
                         {.most_points = 3 * 8, .long_depth = 2, .least_depth = 1, .few_points = 1})
          .ok());
  expect_valid(*module);
  EXPECT_EQ(operand_types(*module, ir::OpCode::kConvolution, 1),
            (Names{"tensor<3x3x2x6xf32>", "tensor<3x3x1x2xf32>"}));
}

// ---- rewrite_static_windows

// A scatter of one window of [count,6] at (%i[0], 0), or at a constant, of a large array, what
// follows it and what makes the array of %x.
ModulePtr scatter_of(int64_t rows, int64_t count, const std::string& reducer,
                     const std::string& after = "", const std::string& result = "a",
                     const std::string& index = "", const std::string& before = "") {
  const std::string type = "tensor<" + std::to_string(rows) + "x6xf32>";
  const std::string update = "tensor<" + std::to_string(count) + "x6xf32>";
  const std::string place =
      index.empty() ? "" : "  %k = stablehlo.constant " + index + " : tensor<1xi32>\n";
  const std::string array = before.empty() ? "" : "  %t = " + before + " : " + type + "\n";
  return read("func.func @main(%x: " + type + ", %i: tensor<1xi32>, %u: " + update + ") -> " +
              type + " {\n" + place + array + "  %a = \"stablehlo.scatter\"(" +
              (before.empty() ? "%x" : "%t") + (index.empty() ? ", %i" : ", %k") +
              R"(, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0]>}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      )" + reducer +
              R"(
  }) : ()" + type +
              ", tensor<1xi32>, " + update + ") -> " + type + "\n" + after + "  return %" + result +
              " : " + type + "\n}\n");
}

TEST(RewriteStaticWindows, AMovingWindowOfALargeArrayIsWrittenInPlace) {
  const std::string set = "stablehlo.return %r : tensor<f32>";
  const std::string add =
      "%s = stablehlo.add %l, %r : tensor<f32>\n stablehlo.return %s : "
      "tensor<f32>";
  for (const std::string& reducer : {set, add}) {
    const ModulePtr module = scatter_of(20'000, 2, reducer);
    rewrite_static_windows(*module);
    expect_valid(*module);
    clean_up(*module);
    const Names names = operations(*module);
    EXPECT_EQ(std::ranges::count(names, "scatter"), 0);
    EXPECT_EQ(names.back(), "dynamic_update_slice");
    EXPECT_EQ(std::ranges::count(names, "dynamic_slice"), 1);
    EXPECT_EQ(std::ranges::count(names, "add"), reducer == add ? 1 : 0);
  }
}

TEST(RewriteStaticWindows, AMovingWindowOfFewElementsOrAmongArithmeticStays) {
  const std::string set = "stablehlo.return %r : tensor<f32>";
  const std::string negated = "  %n = stablehlo.negate %a : tensor<20000x6xf32>\n";
  const std::string apply =
      "%s = stablehlo.sine %l : tensor<f32>\n stablehlo.return %s : "
      "tensor<f32>";
  for (const ModulePtr& module :
       {scatter_of(4, 2, set), scatter_of(20'000, 1'000, set), scatter_of(20'000, 1'000, apply),
        scatter_of(20'000, 2, set, negated, "n"), scatter_of(20'000, 2, apply, negated, "n")}) {
    rewrite_static_windows(*module);
    expect_valid(*module);
    const Names names = operations(*module);
    EXPECT_EQ(std::ranges::count(names, "scatter"), 1);
  }
}

TEST(RewriteStaticWindows, WhatIsAppliedToALittleWindowIsAMapOfIt) {
  const std::string apply =
      "%c = stablehlo.constant dense<2.0> : tensor<f32>\n %m = stablehlo.maximum %l, %c : "
      "tensor<f32>\n %s = stablehlo.sine %m : tensor<f32>\n stablehlo.return %s : tensor<f32>";
  for (const ModulePtr& module :
       {scatter_of(20'000, 2, apply), scatter_of(20'000, 2, apply, "", "a", "dense<3>")}) {
    clean_up(*module);
    rewrite_static_windows(*module);
    expect_valid(*module);
    clean_up(*module);
    const Names names = operations(*module);
    EXPECT_EQ(std::ranges::count(names, "scatter"), 0);
    EXPECT_EQ(std::ranges::count(names, "map"), 1);
    EXPECT_EQ(operand_types(*module, ir::OpCode::kMap, 0), Names{"tensor<2x6xf32>"});
    EXPECT_EQ(names.back(), "dynamic_update_slice");
  }
}

TEST(RewriteStaticWindows, ALittleFixedWindowIsChangedInPlaceWhereTheArrayIsInMemory) {
  const std::string subtract =
      "%s = stablehlo.subtract %l, %r : tensor<f32>\n stablehlo.return %s : tensor<f32>";
  const ModulePtr module = scatter_of(20'000, 2, subtract, "", "a", "dense<3>");
  rewrite_static_windows(*module);
  expect_valid(*module);
  clean_up(*module);
  EXPECT_EQ(operand_types(*module, ir::OpCode::kSubtract, 0), Names{"tensor<2x6xf32>"});
  EXPECT_EQ(operations(*module).back(), "dynamic_update_slice");

  const std::string negated = "  %n = stablehlo.negate %a : tensor<20000x6xf32>\n";
  for (const ModulePtr& fused :
       {scatter_of(20'000, 2, subtract, negated, "n", "dense<3>"),
        scatter_of(20'000, 1'000, subtract, "", "a", "dense<3>"),
        scatter_of(20'000, 2, subtract, "", "a", "dense<3>", "stablehlo.abs %x")}) {
    rewrite_static_windows(*fused);
    expect_valid(*fused);
    clean_up(*fused);
    EXPECT_EQ(operand_types(*fused, ir::OpCode::kSubtract, 0), Names{"tensor<20000x6xf32>"});
    EXPECT_EQ(std::ranges::count(operations(*fused), "select"), 1);
  }
}

TEST(Expand, DotIsDotGeneral) {
  for (const std::string left : {"5", "4x5"}) {
    const std::string out = left == "5" ? "tensor<6xf32>" : "tensor<4x6xf32>";
    ModulePtr module =
        read("func.func @main(%x: tensor<" + left + "xf32>, %y: tensor<5x6xf32>) -> " + out +
             " {\n  %a = \"stablehlo.dot\"(%x, %y) {precision_config = " +
             "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : " + "(tensor<" +
             left + "xf32>, tensor<5x6xf32>) -> " + out + "\n  return %a : " + out + "\n}\n");
    ASSERT_TRUE(expand(*module).ok());
    expect_valid(*module);
    const ir::Operation& op = *module->entry()->body().front().operations().front();
    EXPECT_EQ(op.code(), ir::OpCode::kDotGeneral);
    EXPECT_FALSE(op.attribute("precision_config").is_absent());
    EXPECT_EQ(op.result()->type().to_string(), out);
  }
}

}  // namespace
}  // namespace hekla::passes
