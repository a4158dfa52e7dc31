// SPDX-License-Identifier: Apache-2.0
// What is printed reads back to the same module, and text means what bytecode means.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/testing/sample_modules.h"
#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/print.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {
namespace {

Result<std::unique_ptr<ir::Module>> from_bytecode(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(RawModule raw, read_bytecode(bytes));
  return vhlo_to_ir(raw);
}

std::string artifact(const std::string& name) { return testing::read_artifact(name); }

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
  return name;
}

// The first 2,000 characters around `line` of the text, for messages.
std::string excerpt(const std::string& text, const std::string& message) {
  const size_t colon = message.find("text ");
  if (colon == std::string::npos) return text.substr(0, 2000);
  long line = std::strtol(message.c_str() + colon + 5, nullptr, 10);
  size_t at = 0;
  while (--line > 0 && at != std::string::npos) at = text.find('\n', at + 1);
  return at == std::string::npos ? "" : text.substr(at, 2000);
}

void expect_reads_back(const ir::Module& module) {
  const std::string text = print_module(module);
  Result<std::unique_ptr<ir::Module>> again = read_text(text);
  ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n"
                          << excerpt(text, again.status().message());
  EXPECT_EQ(first_difference(module, **again), std::nullopt);
  EXPECT_EQ(print_module(**again), text) << "printing is not stable";
}

class TextArtifact : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, TextArtifact, ::testing::ValuesIn(testing::artifact_names(".mlir")),
                         test_name);

TEST_P(TextArtifact, IsAValidProgram) {
  Result<std::unique_ptr<ir::Module>> module = read_text(artifact(GetParam() + ".mlir"));
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const Status status = ir::verify(**module);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_NE((*module)->entry(), nullptr);
}

TEST_P(TextArtifact, ReadsBackAfterPrinting) {
  Result<std::unique_ptr<ir::Module>> module = read_text(artifact(GetParam() + ".mlir"));
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  expect_reads_back(**module);
}

class BytecodeArtifact : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, BytecodeArtifact,
                         ::testing::ValuesIn(testing::artifact_names(".mlirbc")), test_name);

TEST_P(BytecodeArtifact, ReadsBackAfterPrinting) {
  Result<std::unique_ptr<ir::Module>> module = from_bytecode(artifact(GetParam() + ".mlirbc"));
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  expect_reads_back(**module);
}

class SampleModule : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> sample_names() {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : testing::sample_modules()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, SampleModule, ::testing::ValuesIn(sample_names()), test_name);

// The lines of main(x: tensor<4xf32>) as they are printed, without the return.
std::string printed(const std::string& lines) {
  Result<std::unique_ptr<ir::Module>> module =
      read_text("func.func @main(%x: tensor<4xf32>, %p: tensor<i1>) {\n" + lines + "\nreturn\n}\n");
  if (!module.ok()) return module.status().to_string();
  expect_reads_back(**module);
  const std::string text = print_module(**module);
  const size_t start = text.find('\n', text.find("func.func")) + 1;
  return text.substr(start, text.find("    return\n") - start);
}

TEST(Printing, AssertionsTakeBareNumbers) {
  EXPECT_EQ(printed("check.expect_close %x, %x, max_ulp_difference = 3, min_ulp_difference = 0 : "
                    "tensor<4xf32>, tensor<4xf32>"),
            "    \"check.expect_close\"(%arg0, %arg0) {max_ulp_difference = 3 : ui64, "
            "min_ulp_difference = 0 : ui64} : (tensor<4xf32>, tensor<4xf32>) -> ()\n");
  EXPECT_EQ(printed("check.expect_almost_eq %x, %x, tolerance = 0.5 : tensor<4xf32>"),
            "    \"check.expect_almost_eq\"(%arg0, %arg0) {tolerance = 0.5 : f64} : "
            "(tensor<4xf32>, tensor<4xf32>) -> ()\n");
}

TEST(Printing, ForPeopleLongConstantsAreCutAndPlacesShown) {
  const auto module = read_text(
      "func.func @main() -> tensor<2x2xi32> {\n"
      "  %0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32> loc(\"a\\0Ab\")\n"
      "  %1 = \"test.op\"() {l = array<i64: 5, 6, 7>} : () -> tensor<i32>\n"
      "  return %0 : tensor<2x2xi32>\n}");
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const std::string text = print_module(**module, {.with_locations = true, .max_elements = 2});
  EXPECT_NE(text.find("stablehlo.constant dense<1, 2, ... 4 in all> : tensor<2x2xi32>  // "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("array<i64: 5, 6, ... 3 in all>"), std::string::npos) << text;
  // A name cannot break the comment's line.
  EXPECT_EQ(text.find("a\nb"), std::string::npos) << text;
  const std::string whole = print_module(**module, {.with_locations = true});
  const auto again = read_text(whole);
  ASSERT_TRUE(again.ok()) << whole << again.status().to_string();
  EXPECT_EQ(first_difference(**module, **again), std::nullopt);
}

TEST(Printing, UsesPrettyForms) {
  const std::string lines =
      "    %0 = stablehlo.add %arg0, %arg0 {mhlo.frontend_attributes = {a = \"1\"}} : "
      "tensor<4xf32>\n"
      "    %1 = stablehlo.compare LT, %arg0, %0, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> "
      "tensor<4xi1>\n"
      "    %2 = stablehlo.select %1, %arg0, %0 : tensor<4xi1>, tensor<4xf32>\n"
      "    %3 = stablehlo.constant dense<[0x7FC00000, -0.0, 1.0e-40, 3.0]> : tensor<4xf32>\n"
      "    %4 = stablehlo.slice %3 [0:4:2] : (tensor<4xf32>) -> tensor<2xf32>\n"
      "    %5 = stablehlo.dot_general %4, %4, contracting_dims = [0] x [0], precision = [HIGH, "
      "DEFAULT] : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>\n"
      "    %6 = stablehlo.reduce(%arg0 init: %5) applies stablehlo.maximum across dimensions = [0] "
      ": (tensor<4xf32>, tensor<f32>) -> tensor<f32>\n"
      "    %7:2 = stablehlo.while(%arg2 = %6, %arg3 = %arg1) : tensor<f32>, tensor<i1>\n"
      "     cond {\n"
      "      stablehlo.return %arg3 : tensor<i1>\n"
      "    } do {\n"
      "      stablehlo.return %arg2, %arg3 : tensor<f32>, tensor<i1>\n"
      "    }\n"
      "    %8 = \"stablehlo.if\"(%arg1) ({\n"
      "      stablehlo.return %7#0 : tensor<f32>\n"
      "    }, {\n"
      "      stablehlo.return %6 : tensor<f32>\n"
      "    }) : (tensor<i1>) -> tensor<f32>\n"
      "    %9 = stablehlo.custom_call @\"a b\"(%8) {api_version = 4 : i32} : (tensor<f32>) -> "
      "tensor<f32>\n";
  std::string source = lines;
  for (size_t at; (at = source.find("%arg0")) != std::string::npos;) source.replace(at, 5, "%x");
  for (size_t at; (at = source.find("%arg1")) != std::string::npos;) source.replace(at, 5, "%p");
  EXPECT_EQ(printed(source), lines);
}

// Without operands its end is where the next line begins.
TEST(Printing, AReturnAmongOthersIsGeneric) {
  EXPECT_EQ(printed("\"func.return\"() : () -> ()\n%0 = stablehlo.abs %x : tensor<4xf32>"),
            "    \"func.return\"() : () -> ()\n    %0 = stablehlo.abs %arg0 : tensor<4xf32>\n");
}

// Bytecode may hold text that is no attribute by itself.
TEST(Printing, OpaqueTextReadsBackWhateverItIs) {
  for (const char* text :
       {"#sdy.sharding<@m, [{}]>", "(1)2", "", "#a<\"", "#a<>, b = 3", "3", "}\n{"}) {
    ir::Module module;
    module.attributes.set("a", ir::OpaqueValue{text});
    expect_reads_back(module);
  }
}

TEST_P(SampleModule, ReadsBackAfterPrinting) {
  for (const auto& [name, bytes] : testing::sample_modules()) {
    if (name != GetParam()) continue;
    Result<std::unique_ptr<ir::Module>> module = from_bytecode(bytes);
    ASSERT_TRUE(module.ok()) << module.status().to_string();
    expect_reads_back(**module);
  }
}

// Both read, and are the same program.
void expect_same(const std::string& left, const std::string& right) {
  Result<std::unique_ptr<ir::Module>> l = read_text(left);
  Result<std::unique_ptr<ir::Module>> r = read_text(right);
  ASSERT_TRUE(l.ok()) << l.status().to_string() << "\n" << left;
  ASSERT_TRUE(r.ok()) << r.status().to_string() << "\n" << right;
  EXPECT_EQ(first_difference(**l, **r), std::nullopt);
}

TEST(Reading, GenericModulesAndFunctions) {
  expect_same(
      "\"builtin.module\"() <{sym_name = \"m\"}> ({\n"
      "  \"sdy.mesh\"() <{mesh = #sdy.mesh<[\"x\"=2]>, sym_name = \"s\"}> : () -> ()\n"
      "  \"func.func\"() <{arg_attrs = [{a}], function_type = (tensor<f32>) -> tensor<f32>, "
      "sym_name = \"main\", sym_visibility = \"public\"}> ({\n"
      "  ^bb0(%x: tensor<f32>):\n"
      "    \"func.return\"(%x) : (tensor<f32>) -> ()\n"
      "  }) {k = 1 : i32} : () -> ()\n"
      "  \"func.func\"() <{function_type = () -> (), sym_name = \"d\"}> ({}) : () -> ()\n"
      "}) {b} : () -> ()\n",
      "module @m attributes {b} {\n"
      "  sdy.mesh @s = <[\"x\"=2]>\n"
      "  func.func public @main(%0: tensor<f32> {a}) -> tensor<f32> attributes {k = 1 : i32} {\n"
      "    return %0 : tensor<f32>\n"
      "  }\n"
      "  func.func @d()\n"
      "}\n");
}

TEST(Reading, AliasesAndResourcesMayFollowTheirUse) {
  expect_same(
      "func.func @f(%x: !t) {\n"
      "  %c = stablehlo.constant {a = #a, b = #a} dense_resource<\"r s\"> : tensor<2xi16>\n"
      "  return loc(#l)\n}\n"
      "#a = [#b, \"{-# #c = 4\"]\n#b = 3 : i8 // #b = 4\n!t = tensor<!e>\n!e = f16\n"
      "#l = loc(callsite(\"g\" at #l))\n"
      "{-# dialect_resources: { builtin: { \"r s\": \"0x0400000001000200\" } } #-}\n",
      "func.func @f(%x: tensor<f16>) {\n"
      "  %c = stablehlo.constant {a = [3 : i8, \"{-# #c = 4\"], b = [3 : i8, \"{-# #c = 4\"]} "
      "dense<[1, 2]> : tensor<2xi16>\n"
      "  return\n}\n");
}

TEST(Reading, SpellingsOfOneThing) {
  const auto attribute = [](const std::string& value) {
    return "module attributes {a = " + value + "} {}";
  };
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {"dense<[1, 2]> : tensor<2xi64>", "array<i64: 1, 2>"},
           {"dense<7> : tensor<3xi64>", "array<i64: 7, 7, 7>"},
           {"dense<true> : tensor<2xi1>", "array<i1: true, true>"},
           {"dense<\"0x0D\"> : tensor<i4>", "dense<-3> : tensor<i4>"},
           {"dense<\"0xFE02\"> : tensor<2xui2>", "dense<2> : tensor<2xui2>"},
           {"dense<[1, 1]> : tensor<2xi32>", "dense<1> : tensor<2xi32>"},
           {"dense<[[], []]> : tensor<2x0xi32>", "dense<> : tensor<2x0xi32>"},
           {"dense<0x7FC00000> : tensor<f32>", "dense<\"0x0000C07F\"> : tensor<f32>"},
           {"0x3F800000 : f32", "1.0 : f32"},
           {"255 : i8", "-1 : i8"},
           {"@\"a\"::@b", "@a::@\"b\""},
           {"tensor<2xsi32>", "tensor<2xi32>"},
           {"{b, c = unit}", "{c, b = unit}"},
           {"#stablehlo.dot<rhs_contracting_dimensions = [1], lhs_contracting_dimensions = [0]>",
            "#stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [1]>"},
           {"#stablehlo.conv<[b, f]x[o, i]->[f, b]>",
            "#stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 1, "
            "kernel_output_feature_dimension = 0, kernel_input_feature_dimension = 1, "
            "output_batch_dimension = 1, output_feature_dimension = 0>"}}) {
    expect_same(attribute(left), attribute(right));
  }
}

TEST(Reading, RegionsWithoutBlocksAndWithSeveral) {
  Result<std::unique_ptr<ir::Module>> module = read_text(
      "func.func @f() {\n"
      "  \"x\"() ({}, {^bb0:}, {\n\"y\"() : () -> ()\n^bb1(%a: i1):\n}) : () -> ()\n"
      "  return\n"
      "^bb1(%b: tensor<f32>):\n"
      "  return\n}\n");
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const ir::Region& body = (*module)->functions[0]->body();
  EXPECT_EQ(body.blocks().size(), 2U);
  const ir::Operation& op = *body.front().operations()[0];
  EXPECT_EQ(op.region(0).blocks().size(), 0U);
  EXPECT_EQ(op.region(1).blocks().size(), 1U);
  EXPECT_EQ(op.region(2).blocks().size(), 2U);
  expect_reads_back(**module);
}

// Why a sender's text and bytecode are not the same program: it rewrote the program in between.
enum class Rewrite : uint8_t {
  kExpandsChlo,     // operations of CHLO became composites or StableHLO
  kExpandsComplex,  // complex functions became real ones
  kRemovesUnused,   // operations without use are gone
};

const std::map<std::string, Rewrite>& rewrites() {
  static const std::map<std::string, Rewrite> kRewrites = {
      {"chlo_composites", Rewrite::kExpandsChlo},
      {"complex_math", Rewrite::kExpandsComplex},
      {"lstm_scan_grad", Rewrite::kRemovesUnused},
      {"rbg_uniform", Rewrite::kRemovesUnused},
      {"reductions", Rewrite::kExpandsChlo},
      {"special_functions", Rewrite::kExpandsChlo},
      {"top_k", Rewrite::kExpandsChlo},
  };
  return kRewrites;
}

template <typename Predicate>
int count_ops(const ir::Module& module, Predicate&& predicate) {
  int count = 0;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) { count += predicate(op) ? 1 : 0; });
  }
  return count;
}

void remove_unused(const ir::Region& region) {
  for (const auto& block : region.blocks()) {
    for (size_t i = block->operations().size(); i-- > 0;) {
      ir::Operation* op = block->operations()[i].get();
      for (size_t r = 0; r < op->region_count(); ++r) remove_unused(op->region(r));
      bool is_used = ir::has_side_effect(op->code());
      for (size_t r = 0; r < op->result_count(); ++r) is_used |= op->result(r)->has_uses();
      if (!is_used) block->erase(op);
    }
  }
}

void expect_rewritten(Rewrite rewrite, ir::Module& text, ir::Module& bytecode) {
  const auto is_chlo = [](const ir::Operation& op) { return op.name().starts_with("chlo."); };
  const auto is_complex_function = [](const ir::Operation& op) {
    return (op.code() == ir::OpCode::kExponential || op.code() == ir::OpCode::kLog) &&
           is_complex(op.result()->type().dtype());
  };
  switch (rewrite) {
    case Rewrite::kExpandsChlo:
      EXPECT_GT(count_ops(text, is_chlo), 0);
      EXPECT_EQ(count_ops(bytecode, is_chlo), 0);
      return;
    case Rewrite::kExpandsComplex:
      EXPECT_GT(count_ops(text, is_complex_function), 0);
      EXPECT_EQ(count_ops(bytecode, is_complex_function), 0);
      return;
    case Rewrite::kRemovesUnused:
      for (ir::Module* module : {&text, &bytecode}) {
        for (const auto& function : module->functions) remove_unused(function->body());
      }
      EXPECT_EQ(first_difference(text, bytecode, {.constants_by_value = true}), std::nullopt);
      return;
  }
}

TEST_P(TextArtifact, IsTheSameProgramAsTheBytecode) {
  Result<std::unique_ptr<ir::Module>> text = read_text(artifact(GetParam() + ".mlir"));
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  Result<std::unique_ptr<ir::Module>> bytecode = from_bytecode(artifact(GetParam() + ".mlirbc"));
  ASSERT_TRUE(bytecode.ok()) << bytecode.status().to_string();
  const std::optional<std::string> difference =
      first_difference(**text, **bytecode, {.constants_by_value = true});
  auto rewrite = rewrites().find(GetParam());
  if (rewrite == rewrites().end()) {
    EXPECT_EQ(difference, std::nullopt);
    return;
  }
  EXPECT_NE(difference, std::nullopt) << "equal now: remove it from the table";
  expect_rewritten(rewrite->second, **text, **bytecode);
}

TEST(TextArtifacts, AreThereForEveryRewrite) {
  const std::vector<std::string> names = testing::artifact_names(".mlir");
  for (const auto& [name, rewrite] : rewrites()) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

}  // namespace
}  // namespace hekla::stablehlo
