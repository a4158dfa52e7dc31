// SPDX-License-Identifier: Apache-2.0
// What the checker allows a device that may take f32 subnormal numbers for zero, and what it still
// finds there.
#include "tests/random/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "backends/compiler/passes/isolate.h"
#include "backends/reference/evaluator.h"

namespace hekla::testing {
namespace {

using ir::OpCode;

constexpr KeptSubnormals kKeepsAll{};
constexpr KeptSubnormals kNoF32{.f32 = false, .f64 = true};

// The evaluator, operation by operation, with zeros for subnormal numbers before and behind each
// that computes. `mistake` may change the results of an operation.
class ZeroingDevice : public Device {
 public:
  using Mistake = std::function<void(const ir::Operation&, std::vector<HostArray>&)>;
  // `does`: what its arithmetic keeps; `says`: what it claims to keep.
  ZeroingDevice(KeptSubnormals does, KeptSubnormals says, Mistake mistake = nullptr)
      : does_(does), mistake_(std::move(mistake)) {
    kept_subnormals_ = says;
  }
  const std::string& name() const override { return name_; }

  Result<std::vector<std::vector<HostArray>>> run(const ir::Module& module,
                                                  const std::vector<HostArray>& inputs,
                                                  const std::vector<std::string>&,
                                                  int launches) override {
    const ir::Block& block = module.entry()->body().front();
    std::unordered_map<const ir::Value*, HostArray> known;
    for (size_t i = 0; i < inputs.size(); ++i) known[block.argument(i)] = inputs[i];
    for (size_t k = 0; k + 1 < block.operations().size(); ++k) {
      const ir::Operation& op = *block.operations()[k];
      const KeptSubnormals kept = only_moves(op.code()) ? kKeepsAll : does_;
      const passes::SingleOperation single = passes::isolate_operation(module, op);
      std::vector<HostArray> operands;
      for (const ir::Value* value : single.inputs) {
        operands.push_back(with_zeros(known[value], kept, ZeroSign::kOfTheNumber));
      }
      HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ir::Module> program,
                             with_zeros(*single.module, kept, ZeroSign::kOfTheNumber));
      HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> results,
                             reference::evaluate(*program, std::move(operands)));
      for (HostArray& result : results) {
        result = with_zeros(std::move(result), kept, ZeroSign::kOfTheNumber);
      }
      if (mistake_) mistake_(op, results);
      for (size_t i = 0; i < op.result_count(); ++i) known[op.result(i)] = std::move(results[i]);
    }
    std::vector<HostArray> results;
    for (const ir::Value* value : block.terminator()->operands()) results.push_back(known[value]);
    return std::vector<std::vector<HostArray>>(static_cast<size_t>(launches), results);
  }

 private:
  const std::string name_ = "zeroing";
  const KeptSubnormals does_;
  const Mistake mistake_;
};

// `body` computes results of `results` from %x and %y, arrays of type `type`.
Program program_of(const std::string& type, const std::string& x, const std::string& y,
                   const std::string& body, const std::string& result, const std::string& results) {
  const std::string text = "module {\nfunc.func public @main(%x: " + type + ", %y: " + type +
                           ") -> (" + results + ") {\n" + body + "\nreturn " + result + " : " +
                           results + "\n}\nfunc.func private @inputs() -> (" + type + ", " + type +
                           ") {\n%0 = stablehlo.constant dense<" + x + "> : " + type +
                           "\n%1 = stablehlo.constant dense<" + y + "> : " + type +
                           "\nreturn %0, %1 : " + type + ", " + type + "\n}\n}\n";
  Result<Program> program = from_text(text);
  EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << text;
  return program.ok() ? std::move(*program) : Program{};
}

// Subnormal numbers of both signs beside zeros and the least normal numbers.
constexpr const char* kX = "[1.0e-40, -1.0e-40, 3.0e-39, 1.17549435e-38, -2.0e-38, 1.5]";
constexpr const char* kY = "[2.0e-40, 0.0, -1.0e-39, -1.0e-38, 1.9e-38, 1.0e-30]";

Program f32_program(const std::string& op, const std::string& results = "tensor<6xf32>") {
  return program_of("tensor<6xf32>", kX, kY,
                    "%r = stablehlo." + op + " : (tensor<6xf32>, tensor<6xf32>) -> " + results,
                    "%r", results);
}

std::string finding(const Program& program, Device& device) {
  if (program.module == nullptr) return "no program";
  const auto result = check(program, device);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok() || !result->has_value()) return "";
  return std::string(kind_name((*result)->kind)) + ": " + (*result)->text;
}

// Right where the device says that it may, wrong where it does not.
void expect_allowed(const Program& program) {
  ZeroingDevice says_so(kNoF32, kNoF32);
  EXPECT_EQ(finding(program, says_so), "");
  ZeroingDevice silent(kNoF32, kKeepsAll);
  EXPECT_NE(finding(program, silent), "");
  ZeroingDevice keeps(kKeepsAll, kNoF32);
  EXPECT_EQ(finding(program, keeps), "");
}

TEST(FromText, WantsAnInputOfItsTypeForEachParameter) {
  const std::string main =
      "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {\nreturn %x : "
      "tensor<2xf32>\n}\n";
  const auto inputs = [](const std::string& type) {
    return "func.func private @inputs() -> " + type +
           " {\n%0 = stablehlo.constant dense<1> : " + type + "\nreturn %0 : " + type + "\n}\n";
  };
  EXPECT_NE(
      from_text(main).status().message().find("has 1 parameters and its function @inputs gives "
                                              "0 arrays"),
      std::string::npos)
      << from_text(main).status().to_string();
  EXPECT_NE(from_text(main + inputs("tensor<3xi32>")).status().message().find("parameter 0 is "),
            std::string::npos);
  const std::string none =
      "func.func public @main() -> tensor<2xi32> {\n"
      "%0 = stablehlo.constant dense<1> : tensor<2xi32>\n"
      "return %0 : tensor<2xi32>\n}\n";
  EXPECT_TRUE(from_text(none).ok());
}

TEST(OptionsIn, WhatACommentSays) {
  CheckOptions options;
  options.schedule_seed = 89030067;
  options.small_limits = true;
  options.tree_reductions = false;
  options.matrix_pieces = "f16";
  options.ring_products = true;
  options.recompute_parts = false;
  const auto got = options_in("// Why.\n" + to_comment(options) + "module {\n}\n", {});
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(to_comment(*got), to_comment(options));
  const auto none = options_in("module {\n}\n", options);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(to_comment(*none), to_comment(options));
  for (const char* wrong : {"schedule_seed=1x", "schedule_seed", "small_limits=1", "limits=true"}) {
    EXPECT_FALSE(options_in(std::string("// Checked with: ") + wrong + "\nmodule {\n}\n", {}).ok())
        << wrong;
  }
}

TEST(SubnormalsAsZero, ElementwiseOperations) {
  for (const char* op : {"add %x, %y", "subtract %x, %y", "divide %x, %y", "maximum %x, %y",
                         "minimum %x, %y", "atan2 %x, %y", "remainder %y, %x"}) {
    SCOPED_TRACE(op);
    expect_allowed(f32_program(op));
  }
  expect_allowed(f32_program("compare LT, %x, %y, FLOAT", "tensor<6xi1>"));
  expect_allowed(program_of(
      "tensor<4xf32>", "[1.0e-20, -1.0e-20, 1.0e-40, 3.0]", "[1.0e-20, 1.0e-19, 1.0e30, 2.0]",
      "%r = stablehlo.multiply %x, %y : tensor<4xf32>", "%r", "tensor<4xf32>"));
}

TEST(SubnormalsAsZero, OtherTypes) {
  expect_allowed(program_of("tensor<3xbf16>", "[1.0e-40, 1.2e-38, -1.0e-39]",
                            "[1.0e-40, -1.0e-38, 1.0e-30]",
                            "%r = stablehlo.add %x, %y : tensor<3xbf16>", "%r", "tensor<3xbf16>"));
  expect_allowed(program_of("tensor<2xcomplex<f32>>", "[(1.0e-40, 1.0), (-1.0e-39, 2.0e-20)]",
                            "[(1.0e-40, 1.0), (1.0e-39, -3.0e-20)]",
                            "%r = stablehlo.subtract %x, %y : tensor<2xcomplex<f32>>", "%r",
                            "tensor<2xcomplex<f32>>"));
  expect_allowed(program_of("tensor<2xf32>", "[1.0e-40, -1.0e-39]", "[0.0, 0.0]",
                            "%r = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf64>", "%r",
                            "tensor<2xf64>"));
}

// Zeros inside of regions, and numbers that are chosen by a comparison that takes them for equal.
TEST(SubnormalsAsZero, OperationsWithRegions) {
  expect_allowed(program_of("tensor<6xf32>", kX, kY, R"(
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%x init: %zero) across dimensions = [0] : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
      reducer(%a: tensor<f32>, %b: tensor<f32>) {
        %half = stablehlo.constant dense<2.0e-20> : tensor<f32>
        %p = stablehlo.multiply %half, %half : tensor<f32>
        %big = stablehlo.constant dense<1.0e38> : tensor<f32>
        %q = stablehlo.multiply %p, %big : tensor<f32>
        %s = stablehlo.add %a, %q : tensor<f32>
        stablehlo.return %s : tensor<f32>
      })",
                            "%r", "tensor<f32>"));
  // A stable sort leaves subnormal numbers as they stand.
  const Program sorted =
      program_of("tensor<4xf32>", "[3.0e-40, 1.0e-40, -1.0, 2.0e-40]", "[1.0, 2.0, 3.0, 4.0]", R"(
    %r:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
        %lt = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %lt : tensor<i1>
      }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>))",
                 "%r#0, %r#1", "tensor<4xf32>, tensor<4xf32>");
  ZeroingDevice keeps_what_moves(kKeepsAll, kNoF32, [](const ir::Operation& op, auto& results) {
    if (op.code() != OpCode::kSort) return;
    const float keys[] = {-1.0f, 3.0e-40f, 1.0e-40f, 2.0e-40f};
    const float places[] = {3, 1, 2, 4};
    std::memcpy(results[0].mutable_data(), keys, sizeof(keys));
    std::memcpy(results[1].mutable_data(), places, sizeof(places));
  });
  EXPECT_EQ(finding(sorted, keeps_what_moves), "");
}

TEST(SubnormalsAsZero, SignsOfZerosAreOpen) {
  const Program quotient =
      program_of("tensor<2xf32>", "[1.0, -1.0]", "[-1.0e-40, 1.0e-40]",
                 "%r = stablehlo.divide %x, %y : tensor<2xf32>", "%r", "tensor<2xf32>");
  for (const float sign : {1.0f, -1.0f}) {
    ZeroingDevice device(kNoF32, kNoF32, [&](const ir::Operation&, auto& results) {
      if (sign < 0) return;  // -infinity both
      results[0].template mutable_as<float>()[0] = std::numeric_limits<float>::infinity();
    });
    EXPECT_EQ(finding(quotient, device), "");
  }
}

// One element of an operation's first result becomes another number.
ZeroingDevice mistaken(OpCode code, int64_t element, float number) {
  return ZeroingDevice(kNoF32, kNoF32, [=](const ir::Operation& op, auto& results) {
    if (op.code() == code) results[0].template mutable_as<float>()[element] = number;
  });
}

TEST(SubnormalsAsZero, MistakesAreFound) {
  const Program sum = f32_program("add %x, %y");
  const float least = std::numeric_limits<float>::min();
  // A normal number off by one place, a zero for a normal number, a normal number for a zero.
  for (const auto& [element, number] : std::vector<std::pair<int64_t, float>>{
           {5, std::nextafter(1.5f, 2.0f)}, {5, 0}, {4, -least}, {0, least}}) {
    ZeroingDevice device = mistaken(OpCode::kAdd, element, number);
    EXPECT_NE(finding(sum, device), "") << element << " " << number;
  }
  // A subnormal number that is neither the sum nor zero.
  ZeroingDevice other = mistaken(OpCode::kAdd, 0, 7.0e-40f);
  EXPECT_NE(finding(sum, other), "");
  // The least of two numbers that do not compare equal.
  ZeroingDevice greater = mistaken(OpCode::kMinimum, 5, 1.5f);
  EXPECT_NE(finding(f32_program("minimum %x, %y"), greater), "");
  // The least normal number is not to be taken for zero.
  const Program product =
      program_of("tensor<1xf32>", "[2.3509887e-38]", "[0.5]",
                 "%r = stablehlo.multiply %x, %y : tensor<1xf32>", "%r", "tensor<1xf32>");
  ZeroingDevice zero = mistaken(OpCode::kMultiply, 0, 0);
  EXPECT_NE(finding(product, zero), "");
}

TEST(SubnormalsAsZero, WhatMovesKeepsThem) {
  const Program reversed =
      program_of("tensor<6xf32>", kX, kY, "%r = stablehlo.reverse %x, dims = [0] : tensor<6xf32>",
                 "%r", "tensor<6xf32>");
  ZeroingDevice right(kNoF32, kNoF32);
  EXPECT_EQ(finding(reversed, right), "");
  ZeroingDevice device = mistaken(OpCode::kReverse, 5, 0);
  EXPECT_NE(finding(reversed, device), "");
}

// What is said of f32 allows nothing in types that have f32's subnormal numbers within their range,
// nor in f64.
TEST(SubnormalsAsZero, OtherTypesKeepTheirs) {
  const Program half =
      program_of("tensor<1xf16>", "[6.0e-8]", "[0.0]", "%r = stablehlo.add %x, %y : tensor<1xf16>",
                 "%r", "tensor<1xf16>");
  const Program twice =
      program_of("tensor<1xf64>", "[1.0e-310]", "[0.0]",
                 "%r = stablehlo.add %x, %y : tensor<1xf64>", "%r", "tensor<1xf64>");
  const Program small =
      program_of("tensor<1xf64>", "[1.0e-40]", "[0.0]", "%r = stablehlo.add %x, %y : tensor<1xf64>",
                 "%r", "tensor<1xf64>");
  const auto zeros = [](const ir::Operation&, std::vector<HostArray>& results) {
    std::memset(results[0].mutable_data(), 0, static_cast<size_t>(results[0].size_bytes()));
  };
  ZeroingDevice device(kNoF32, kNoF32, zeros);
  for (const Program* program : {&half, &twice, &small}) {
    EXPECT_NE(finding(*program, device), "");
  }
  ZeroingDevice neither({false, false}, {false, false}, zeros);
  EXPECT_EQ(finding(twice, neither), "");
  EXPECT_NE(finding(half, neither), "");
  EXPECT_NE(finding(small, neither), "");
}

TEST(SubnormalsAsZero, DevicesSaySo) {
  EXPECT_TRUE(parse_kept_subnormals("").all());
  EXPECT_FALSE(parse_kept_subnormals("f32").f32);
  EXPECT_TRUE(parse_kept_subnormals("f32").f64);
  EXPECT_FALSE(parse_kept_subnormals("f32,f64").f64);
}

}  // namespace
}  // namespace hekla::testing
