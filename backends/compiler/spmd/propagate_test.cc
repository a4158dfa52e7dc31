// SPDX-License-Identifier: Apache-2.0
// What propagation promises, on programs of a few lines over a mesh whose axes are x=2, y=2, z=3
// and w=4; u and v are the halves of w.
//
// A tiling is written as its dimensions' axes, one letter each: "xy,," cuts the first of three
// dimensions. What is given may have, behind a dimension's axes, @1 (its priority) and ? (it is
// open), and behind them all +z (a sum over z) and !z (z may not cut it).
#include "backends/compiler/spmd/propagate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::spmd {
namespace {

constexpr std::string_view kAxes = "xyzuv";

PrimeMesh mesh() {
  sharding::Mesh mesh;
  mesh.axes = {{"x", 2}, {"y", 2}, {"z", 3}, {"w", 4}};
  return PrimeMesh(std::move(mesh));
}

Given given_of(std::string_view text, size_t rank) {
  Given given;
  given.tiling = Tiling::replicated(rank);
  given.open.resize(rank);
  given.priority.resize(rank);
  size_t d = 0;
  char mode = ' ';
  for (char c : text) {
    const auto axis = static_cast<int>(kAxes.find(c));
    if (c == ',') {
      ++d;
    } else if (c == '?') {
      given.open[d] = true;
    } else if (c == '+' || c == '!' || c == '@') {
      mode = c;
      continue;
    } else if (mode == '@') {
      given.priority[d] = c - '0';
    } else if (mode == ' ') {
      given.tiling.dims[d].push_back(axis);
    } else {
      (mode == '+' ? given.tiling.partial : given.replicated).push_back(axis);
      continue;
    }
    mode = ' ';
  }
  return given;
}

std::string text_of(const Tiling& tiling) {
  std::string text;
  for (size_t d = 0; d < tiling.dims.size(); ++d) {
    if (d > 0) text += ',';
    for (int axis : tiling.dims[d]) text += kAxes[static_cast<size_t>(axis)];
  }
  if (!tiling.partial.empty()) text += '+';
  for (int axis : tiling.partial) text += kAxes[static_cast<size_t>(axis)];
  return text;
}

// Of a function @main: "arguments -> returned values", each list apart by a blank. Given are
// arguments by hekla.given and results of custom calls by `given`.
std::string propagated(const std::string& text) {
  auto module = stablehlo::read_program(text);
  if (!module.ok()) return module.status().to_string();
  if (const Status status = ir::verify(**module); !status.ok()) return status.to_string();
  const ir::Function& main = *(*module)->entry();
  const ir::Block& block = const_cast<ir::Function&>(main).body().front();
  std::unordered_map<const ir::Value*, Given> given;
  const auto rank = [](const ir::Value& value) { return value.type().dims().size(); };
  for (size_t i = 0; i < block.argument_count(); ++i) {
    const auto* said = main.argument_attributes[i].get("hekla.given").get<ir::StringValue>();
    if (said == nullptr) continue;
    given.emplace(block.argument(i), given_of(said->value, rank(*block.argument(i))));
  }
  ir::walk(main.body(), [&](const ir::Operation& op) {
    const std::string said = ir::text_value(op, "given");
    if (op.attribute("given").is_absent()) return;
    given.emplace(op.result(), given_of(said, rank(*op.result())));
  });
  const Tilings tilings = propagate(block, mesh(), given);
  std::string found;
  const auto add = [&](const ir::Value* value) {
    const auto at = tilings.find(value);
    found += at == tilings.end() ? "none " : "[" + text_of(at->second) + "] ";
  };
  for (size_t i = 0; i < block.argument_count(); ++i) add(block.argument(i));
  found += "->";
  for (const ir::Value* value : block.terminator()->operands()) {
    found += ' ';
    add(value);
    found.pop_back();
  }
  return found;
}

// Of arguments %a, %b ... of `type` with what is given of them, a body and a value of type `made`.
std::string over(const std::string& type, const std::vector<std::string>& arguments,
                 const std::string& body, const std::string& value, const std::string& made = "") {
  const std::string result = made.empty() ? type : made;
  std::string text = "func.func @main(";
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) text += ", ";
    text += fmt::format("%{}: {}", static_cast<char>('a' + i), type);
    if (arguments[i] != "any") text += fmt::format(" {{hekla.given = \"{}\"}}", arguments[i]);
  }
  return propagated(
      fmt::format("{}) -> {} {{\n{}\n  return {} : {}\n}}", text, result, body, value, result));
}

std::string sum(const std::vector<std::string>& arguments,
                const std::string& type = "tensor<24x24xf32>") {
  return over(type, arguments, "%r = stablehlo.add %a, %b : " + type, "%r");
}

std::string constraint(const std::string& name, const std::string& of, const std::string& given,
                       const std::string& type) {
  return fmt::format(
      "{0} = stablehlo.custom_call @hekla.constraint({1}) {{given = \"{2}\"}} : ({3}) -> {3}\n",
      name, of, given, type);
}

TEST(Propagate, GoesBothWays) {
  EXPECT_EQ(sum({"x,y", "any"}), "[x,y] [x,y] -> [x,y]");
  EXPECT_EQ(sum({"any", "any"}), "[,] [,] -> [,]");
  const std::string type = "tensor<24x24xf32>";
  EXPECT_EQ(
      over(type, {"any"},
           "%n = stablehlo.negate %a : " + type + "\n" + constraint("%r", "%n", "x,", type), "%r"),
      "[x,] -> [x,]");
}

TEST(Propagate, WhatIsGivenStands) {
  EXPECT_EQ(sum({"x,y", ","}), "[x,y] [,] -> [x,y]");
  EXPECT_EQ(sum({"xz,y", "x?,"}), "[xz,y] [xz,] -> [xz,y]");
  EXPECT_EQ(sum({"xz,y", "x,?"}), "[xz,y] [x,y] -> [xz,y]");
  EXPECT_EQ(sum({"xz,y", "?,?!z"}), "[xz,y] [x,y] -> [xz,y]");
}

TEST(Propagate, StopsWhereArraysDiffer) {
  EXPECT_EQ(sum({"x,", "y,"}), "[x,] [y,] -> [,]");
  EXPECT_EQ(sum({"xz,", "xy,"}), "[xz,] [xy,] -> [x,]");
  EXPECT_EQ(sum({"x,", ",x"}), "[x,] [,x] -> [x,]");
  EXPECT_EQ(sum({"u,", "uv,"}), "[u,] [uv,] -> [uv,]");
}

TEST(Propagate, LowerPrioritiesGoFirst) {
  EXPECT_EQ(sum({"x@1,", "y,"}), "[x,] [y,] -> [y,]");
  EXPECT_EQ(sum({"x,", "y@1,"}), "[x,] [y,] -> [x,]");
  EXPECT_EQ(sum({"x@2,", ",x@1?"}), "[x,] [,x] -> [,x]");
}

TEST(Propagate, SumsStayWhereTheyAre) {
  const std::string type = "tensor<24x24xf32>";
  const std::string body =
      constraint("%p", "%a", ",+z", type) + "%r = stablehlo.add %p, %b : " + type;
  EXPECT_EQ(over(type, {"any", "z,y"}, body, "%r"), "[,] [z,y] -> [z,y]");
  EXPECT_EQ(over(type, {"any"}, constraint("%p", "%a", "?,?+z", type), "%p"), "[,] -> [,+z]");
  EXPECT_EQ(over(type, {"zx,y"}, constraint("%p", "%a", "?,?+z", type), "%p"), "[zx,y] -> [,y+z]");
}

TEST(Propagate, CutsEvenlyUnlessGiven) {
  EXPECT_EQ(sum({"uv,", "any"}, "tensor<6x4xf32>"),
            "[uv,] [uv,] -> [uv,]");  // blocks of 2, 2, 2, 0
  EXPECT_EQ(sum({"x,", "any"}, "tensor<1x4xf32>"), "[x,] [,] -> [,]");
  EXPECT_EQ(sum({"x,y", "any"}, "tensor<0x4xf32>"), "[x,y] [,y] -> [,y]");
  // What neighbours exchange may be cut in any blocks, but in no more than there are elements.
  const auto slice = [](int64_t size) {
    const std::string made = fmt::format("tensor<{}xf32>", size);
    return over("tensor<8xf32>", {"x"},
                fmt::format("%r = stablehlo.slice %a [0:{}] : (tensor<8xf32>) -> {}", size, made),
                "%r", made);
  };
  EXPECT_EQ(slice(7), "[x] -> [x]");
  EXPECT_EQ(slice(4), "[x] -> [x]");
  EXPECT_EQ(slice(1), "[x] -> []");
  EXPECT_EQ(slice(8), "[x] -> [x]");
  // Another shape is not the same dimension.
  EXPECT_EQ(over("tensor<6xf32>", {"uv"},
                 "%r = stablehlo.reshape %a : (tensor<6xf32>) -> tensor<3x2xf32>", "%r",
                 "tensor<3x2xf32>"),
            "[uv] -> [,]");
}

TEST(Propagate, ReshapesSplitAndJoin) {
  const auto reshape = [](const std::string& from, const std::string& given,
                          const std::string& to) {
    return over(
        "tensor<" + from + "xf32>", {given},
        fmt::format("%r = stablehlo.reshape %a : (tensor<{}xf32>) -> tensor<{}xf32>", from, to),
        "%r", "tensor<" + to + "xf32>");
  };
  EXPECT_EQ(reshape("2x4", "x,y", "8"), "[x,y] -> [xy]");
  EXPECT_EQ(reshape("4x2", "x,y", "8"), "[x,y] -> [x]");  // y's parts are not in a row
  EXPECT_EQ(reshape("8", "xy", "2x4"), "[xy] -> [x,y]");
  EXPECT_EQ(reshape("8", "xy", "4x2"), "[xy] -> [xy,]");
  EXPECT_EQ(reshape("8", "uvx", "4x2"), "[uvx] -> [uv,x]");
  EXPECT_EQ(reshape("12", "xz", "2x6"), "[xz] -> [x,z]");
  EXPECT_EQ(reshape("12", "zx", "2x6"), "[zx] -> [,]");  // thirds of 12 lie across the rows
  EXPECT_EQ(reshape("6x10", "x,", "10x6"), "[x,] -> [x,]");
}

TEST(Propagate, ContractionsPassBatchAndFreeDimensions) {
  const auto dot = [](const std::vector<std::string>& given) {
    return over("tensor<24x24xf32>", given,
                "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
                "(tensor<24x24xf32>, tensor<24x24xf32>) -> tensor<24x24xf32>",
                "%r");
  };
  EXPECT_EQ(dot({"x,", ",y"}), "[x,] [,y] -> [x,y]");
  EXPECT_EQ(dot({",x", "any"}), "[,x] [x,] -> [,]");
  EXPECT_EQ(dot({"x,y", "y,x"}), "[x,y] [y,x] -> [x,]");  // of equals the first
}

TEST(Propagate, OfTwoTheLargerArrayIsFollowed) {
  const std::string text =
      "func.func @main(%a: tensor<4x8xf32> {hekla.given = \"x,\"}, "
      "%b: tensor<8x16xf32> {hekla.given = \",x\"}) -> tensor<4x16xf32> {\n"
      "  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
      "(tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>\n"
      "  return %r : tensor<4x16xf32>\n}";
  EXPECT_EQ(propagated(text), "[x,] [,x] -> [,x]");
}

TEST(Propagate, ConstantsDoNotTieTheirUsers) {
  const auto two = [](const std::string& made, const std::string& a, const std::string& b) {
    return propagated(
        fmt::format("func.func @main(%a: tensor<8x4xf32> {{hekla.given = \"{1}\"}}, "
                    "%b: tensor<8x4xf32> {{hekla.given = \"{2}\"}}) -> "
                    "(tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {{\n"
                    "  %s = stablehlo.constant dense<1.0> : tensor<f32>\n"
                    "  {0}\n"
                    "  %p = stablehlo.add %a, %c : tensor<8x4xf32>\n"
                    "  %q = stablehlo.add %b, %c : tensor<8x4xf32>\n"
                    "  return %p, %q, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>\n}}",
                    made, a, b));
  };
  const std::string iota = "%c = stablehlo.iota dim = 0 : tensor<8x4xf32>";
  EXPECT_EQ(two(iota, "x,", "y,"), "[x,] [y,] -> [x,] [y,] [,]");
  EXPECT_EQ(two(iota, "x,y", "x,"), "[x,y] [x,] -> [x,y] [x,] [x,]");
  EXPECT_EQ(two("%c = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8x4xf32>",
                "x,", "y,"),
            "[x,] [y,] -> [x,] [y,] [,]");
  // What is computed of constants is one.
  EXPECT_EQ(two("%i = stablehlo.iota dim = 0 : tensor<8x4xf32>\n"
                "  %c = stablehlo.negate %i : tensor<8x4xf32>",
                "x,", "y,"),
            "[x,] [y,] -> [x,] [y,] [,]");
}

TEST(Propagate, OperandsOfOneConstraintAreMadeThatWay) {
  const std::string type = "tensor<24x24xf32>";
  const auto with = [&](const std::string& constraints) {
    return over(type, {",y"},
                "%n = stablehlo.negate %a : " + type + "\n" + constraints +
                    "%s = stablehlo.sine %n : " + type,
                "%s");
  };
  EXPECT_EQ(with(constraint("%c", "%n", "x,", type)), "[,y] -> [x,]");
  // Open ones and several that differ take part like others.
  EXPECT_EQ(with(constraint("%c", "%n", "x,?", type)), "[,y] -> [x,y]");
  EXPECT_EQ(with(constraint("%c", "%n", "x,", type) + constraint("%d", "%n", "z,", type)),
            "[,y] -> [x,y]");
}

TEST(Propagate, OperandsTakeFromEachOtherWhatResultsHave) {
  const std::string type = "tensor<8x4xf32>";
  EXPECT_EQ(
      over(type, {"x,", "any"},
           "%s = stablehlo.add %a, %b : " + type + "\n" + constraint("%r", "%s", ",", type), "%r"),
      "[x,] [,] -> [,]");
}

// One array as both operands gets an axis once.
TEST(Propagate, OperandsMayBeOneArray) {
  const std::string type = "tensor<8x4xf32>";
  EXPECT_EQ(
      over(type, {"any"},
           "%s = stablehlo.multiply %a, %a : " + type + "\n" + constraint("%r", "%s", "x,y", type),
           "%r"),
      "[x,y] -> [x,y]");
}

TEST(Propagate, BroadcastsForwardComeLast) {
  const std::string text =
      "func.func @main(%a: tensor<8xf32> {hekla.given = \"x\"}, "
      "%b: tensor<8x8xf32> {hekla.given = \"y,\"}, %c: tensor<8x8xf32>) -> tensor<8x8xf32> {\n"
      "  %r = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>\n"
      "  %d = stablehlo.dot_general %b, %c, contracting_dims = [1] x [0] : "
      "(tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>\n"
      "  %s = stablehlo.add %r, %d : tensor<8x8xf32>\n"
      "  return %s : tensor<8x8xf32>\n}";
  EXPECT_EQ(propagated(text), "[x] [y,] [,] -> [y,]");
}

TEST(Propagate, LoopsCarryOneTiling) {
  const std::string text =
      "func.func @main(%a: tensor<8x4xf32> {hekla.given = \"GIVEN\"}, %b: tensor<8x4xf32>) -> "
      "(tensor<8x4xf32>, tensor<8x4xf32>) {\n"
      "  %z = stablehlo.constant dense<0> : tensor<i32>\n"
      "  %0:3 = stablehlo.while(%i = %z, %s = %a, %t = %b) : tensor<i32>, tensor<8x4xf32>, "
      "tensor<8x4xf32>\n"
      "  cond {\n"
      "    %n = stablehlo.constant dense<5> : tensor<i32>\n"
      "    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
      "    stablehlo.return %c : tensor<i1>\n"
      "  } do {\n"
      "    %o = stablehlo.constant dense<1> : tensor<i32>\n"
      "    %j = stablehlo.add %i, %o : tensor<i32>\n"
      "    %u = stablehlo.add %s, %t : tensor<8x4xf32>\n"
      "    stablehlo.return %j, %u, %u : tensor<i32>, tensor<8x4xf32>, tensor<8x4xf32>\n"
      "  }\n"
      "  return %0#1, %0#2 : tensor<8x4xf32>, tensor<8x4xf32>\n}";
  const auto with = [&](const std::string& given) {
    std::string program = text;
    return propagated(program.replace(program.find("GIVEN"), 5, given));
  };
  EXPECT_EQ(with("x,y"), "[x,y] [x,y] -> [x,y] [x,y]");
  EXPECT_EQ(with(","), "[,] [,] -> [,] [,]");
}

TEST(Propagate, BranchesAgreeWithTheirResult) {
  const std::string type = "tensor<8x4xf32>";
  const std::string text =
      "func.func @main(%p: tensor<i1>, %a: tensor<8x4xf32>, %b: tensor<8x4xf32>) -> "
      "tensor<8x4xf32> {\n"
      "  %r = \"stablehlo.if\"(%p) ({\n"
      "    %n = stablehlo.negate %a : tensor<8x4xf32>\n"
      "    stablehlo.return %n : tensor<8x4xf32>\n"
      "  }, {\n"
      "    stablehlo.return %b : tensor<8x4xf32>\n"
      "  }) : (tensor<i1>) -> tensor<8x4xf32>\n  " +
      constraint("%s", "%r", "x,y", type) + "  return %s : tensor<8x4xf32>\n}";
  EXPECT_EQ(propagated(text), "[] [x,y] [x,y] -> [x,y]");
}

TEST(Propagate, UnknownOperationsPassNothingOn) {
  const std::string type = "tensor<8xf32>";
  EXPECT_EQ(over(type, {"x"}, "%r = stablehlo.custom_call @mystery(%a) : (" + type + ") -> " + type,
                 "%r"),
            "[x] -> []");
  EXPECT_EQ(over(type, {"x"},
                 "%r = stablehlo.custom_call @mystery(%a) {given = \"y\"} : (" + type + ") -> " +
                     type + "\n%s = stablehlo.negate %r : " + type,
                 "%s"),
            "[x] -> [y]");
  EXPECT_EQ(over(type, {"x"}, "%r = stablehlo.optimization_barrier %a : " + type, "%r"),
            "[x] -> [x]");
}

}  // namespace
}  // namespace hekla::spmd
