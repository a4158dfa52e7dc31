// SPDX-License-Identifier: Apache-2.0
// Which sums with arrays that are zero almost everywhere change a little of an array, and which
// stay. Numbers are the business of tests/random (--edits) and tests/jax.
#include <gtest/gtest.h>

#include <string>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/testing/module_of_text.h"

namespace hekla::passes {
namespace {

std::string zeros(const std::string& element) {
  return std::string("stablehlo.constant dense<") + (element[0] == 'i' ? "0>" : "0.0>");
}

// A loop that carries %a, which begins as `first`, and makes %next of it by `body`; %i counts, and
// %z is zero.
ModulePtr sum_loop(const std::string& first, const std::string& body,
                   const std::string& element = "f32") {
  const std::string type = "tensor<20000x6x" + element + ">";
  return read("func.func @main(%x: " + type + ", %u: tensor<2x6x" + element +
              ">, %p: tensor<i1>) -> " + type + R"( {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<9> : tensor<i32>
  %first = )" +
              first + " : " + type + "\n  %r:2 = stablehlo.while(%i = %zero, %a = %first)" +
              " : tensor<i32>, " + type + R"(
    cond {
      %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = )" +
              zeros(element) + " : " + type + "\n" + body +
              "      stablehlo.return %j, %next : tensor<i32>, " + type +
              "\n    }\n  return %r#1 : " + type + "\n}\n");
}

// Every `word` of a text is `by`.
std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at; (at = text.find(word)) != std::string::npos;) text.replace(at, word.size(), by);
  return text;
}

std::string with_type(const std::string& text, const std::string& element = "f32") {
  return replaced(replaced(text, "WHOLE", "tensor<20000x6x" + element + ">"), "PART",
                  "tensor<2x6x" + element + ">");
}

const char kZeros[] = "stablehlo.constant dense<0.0>";
const char kWindow[] =
    "      %d = stablehlo.dynamic_update_slice %z, %u, %i, %zero : (WHOLE, PART, tensor<i32>, "
    "tensor<i32>) -> WHOLE\n";
const char kAddWindow[] = "      %next = stablehlo.add %a, %d : WHOLE\n";

// Of what each sum and difference of the loop's body and of its branches gives, but for that of the
// counter.
Names sums_in_loop(const ModulePtr& module) {
  clean_up(*module);
  const Status status = add_in_place(*module);
  EXPECT_TRUE(status.ok()) << status.to_string();
  expect_valid(*module);
  clean_up(*module);
  Names types;
  ir::walk(module->entry()->body(), [&](ir::Operation& op) {
    const bool is_sum = op.code() == ir::OpCode::kAdd || op.code() == ir::OpCode::kSubtract;
    if (is_sum && op.result()->type().rank() > 0) {
      types.push_back(op.result()->type().to_string());
    }
  });
  return types;
}

TEST(AddInPlace, ASumWithAWindowAmongZerosChangesTheWindow) {
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(std::string(kWindow) + kAddWindow))),
            Names{"tensor<2x6xf32>"});
  // The other way round, one after the other, and a window at a fixed place.
  const std::string two =
      "      %b = stablehlo.add %d, %a : WHOLE\n"
      "      %c0 = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "      %e = stablehlo.pad %u, %c0, low = [3, 0], high = [19995, 0], interior = [0, 0] : "
      "(PART, tensor<f32>) -> WHOLE\n"
      "      %next = stablehlo.add %b, %e : WHOLE\n";
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(kWindow + two))),
            (Names{"tensor<2x6xf32>", "tensor<2x6xf32>"}));
}

TEST(AddInPlace, OnlyArraysWithoutNegativeZeroKeepWhatIsNotAddedTo) {
  const Names whole{"tensor<20000x6xf32>"};
  const std::string body = with_type(std::string(kWindow) + kAddWindow);
  EXPECT_EQ(sums_in_loop(sum_loop("stablehlo.constant dense<-0.0>", body)), whole);
  EXPECT_EQ(sums_in_loop(sum_loop("stablehlo.negate %x", body)), whole);
  EXPECT_EQ(sums_in_loop(sum_loop("stablehlo.abs %x", body)), Names{"tensor<2x6xf32>"});
  // It begins at 0, and the loop makes -0 of it.
  const std::string negated =
      "      %m = stablehlo.add %a, %d : WHOLE\n      %next = stablehlo.negate %m : WHOLE\n";
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(kWindow + negated))), whole);
  // Integers have none.
  EXPECT_EQ(sums_in_loop(sum_loop("stablehlo.negate %x",
                                  with_type(std::string(kWindow) + kAddWindow, "i32"), "i32")),
            (Names{"tensor<2x6xi32>"}));
}

TEST(AddInPlace, WhatEachElementIsComputedWithStays) {
  const Names whole{"tensor<20000x6xf32>"};
  // The sum, the array, or the window, which somebody else reads too.
  const std::string used =
      "      %m = stablehlo.add %a, %d : WHOLE\n      %next = stablehlo.abs %m : WHOLE\n";
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(kWindow + used))), whole);
  const std::string made =
      "      %m = stablehlo.abs %a : WHOLE\n      %next = stablehlo.add %m, %d : WHOLE\n";
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(kWindow + made))), whole);
  const std::string shared =
      "      %m = stablehlo.maximum %a, %d : WHOLE\n      %next = stablehlo.add %m, %d : WHOLE\n";
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(kWindow + shared))), whole);
}

const char kScatter[] =
    "      %k = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>\n"
    "      %d = \"stablehlo.scatter\"(%z, %k, %u) <{scatter_dimension_numbers = "
    "#stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0]>}> ({\n"
    "      ^bb0(%l: tensor<ELEMENT>, %s: tensor<ELEMENT>):\n"
    "        %y = stablehlo.add %l, %s : tensor<ELEMENT>\n"
    "        stablehlo.return %y : tensor<ELEMENT>\n"
    "      }) : (WHOLE, tensor<1xi32>, PART) -> WHOLE\n";

TEST(AddInPlace, WhatAScatterAddsIsAddedWhereItGoes) {
  for (const std::string element : {"f32", "i8", "bf16"}) {
    const std::string text = replaced(kScatter, "ELEMENT", element);
    const std::string part = "tensor<1x2x6x" + element + ">";
    EXPECT_EQ(
        sums_in_loop(sum_loop(zeros(element), with_type(text + kAddWindow, element), element)),
        (Names{part, part}));
  }
}

const char kRows[] =
    "      %k = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<COUNTx1xi32>\n"
    "      %w = stablehlo.constant dense<2.0> : tensor<COUNTx6xf32>\n"
    "      %d = \"stablehlo.scatter\"(%z, %k, %w) <{scatter_dimension_numbers = "
    "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
    "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n"
    "      ^bb0(%l: tensor<f32>, %s: tensor<f32>):\n"
    "        %y = stablehlo.add %l, %s : tensor<f32>\n"
    "        stablehlo.return %y : tensor<f32>\n"
    "      }) : (WHOLE, tensor<COUNTx1xi32>, tensor<COUNTx6xf32>) -> WHOLE\n";

// Which rows are the same is asked of each two.
TEST(AddInPlace, ManyRowsStay) {
  const auto added = [](const std::string& count) {
    return sums_in_loop(sum_loop(kZeros, with_type(replaced(kRows, "COUNT", count) + kAddWindow)));
  };
  EXPECT_EQ(added("300"), Names{"tensor<300x6xf32>"});
  EXPECT_EQ(added("400"), Names{"tensor<20000x6xf32>"});
}

TEST(AddInPlace, BranchesAddWhatTheyMake) {
  const std::string branch =
      "      %d = \"stablehlo.if\"(%p) ({\n"
      "        %w = stablehlo.dynamic_update_slice %z, %u, %i, %zero : (WHOLE, PART, tensor<i32>, "
      "tensor<i32>) -> WHOLE\n"
      "        stablehlo.return %w : WHOLE\n      }, {\n"
      "        stablehlo.return OTHER : WHOLE\n      }) : (tensor<i1>) -> WHOLE\n";
  const auto with = [&](const std::string& other) {
    const std::string text = replaced(branch, "OTHER", other);
    return sums_in_loop(sum_loop(kZeros, with_type(text + kAddWindow)));
  };
  EXPECT_EQ(with("%z"), Names{"tensor<2x6xf32>"});
  EXPECT_EQ(with("%x"), Names{"tensor<20000x6xf32>"});
}

// The inner loop's body is rewritten first: the outer one's array still has no -0.
TEST(AddInPlace, LoopsInLoops) {
  const std::string scattered = replaced(kScatter, "ELEMENT", "f32");
  const std::string body = R"(
      %q:2 = stablehlo.while(%o = %zero, %b = %a) : tensor<i32>, WHOLE
        cond {
          %t2 = stablehlo.compare LT, %o, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %t2 : tensor<i1>
        } do {
          %o1 = stablehlo.add %o, %one : tensor<i32>
)" + scattered + R"(
          %c = stablehlo.add %b, %d : WHOLE
          stablehlo.return %o1, %c : tensor<i32>, WHOLE
        }
      %v = stablehlo.dynamic_update_slice %z, %u, %i, %zero : (WHOLE, PART, tensor<i32>, tensor<i32>) -> WHOLE
      %next = stablehlo.add %q#1, %v : WHOLE
)";
  EXPECT_EQ(sums_in_loop(sum_loop(kZeros, with_type(body))),
            (Names{"tensor<1x2x6xf32>", "tensor<1x2x6xf32>", "tensor<2x6xf32>"}));
}

// As a step against the gradient: the array begins with anything.
TEST(AddInPlace, MultiplesOfATermAreMultiplesOfWhatItAdds) {
  const auto stepped = [](const std::string& factor, const std::string& join,
                          const std::string& first = "stablehlo.negate %x") {
    const std::string body =
        "      %c = stablehlo.constant dense<" + factor +
        "> : WHOLE\n      %m = stablehlo.multiply %c, %d : WHOLE\n      %next = stablehlo." + join +
        " %a, %m : WHOLE\n";
    return sums_in_loop(sum_loop(first, with_type(kWindow + body)));
  };
  const Names little{"tensor<2x6xf32>"}, whole{"tensor<20000x6xf32>"};
  EXPECT_EQ(stepped("0.1", "subtract"), little);
  EXPECT_EQ(stepped("-0.1", "add"), little);
  // These make 0 of -0.
  EXPECT_EQ(stepped("-0.1", "subtract"), whole);
  EXPECT_EQ(stepped("0.1", "add"), whole);
  EXPECT_EQ(stepped("-0.1", "subtract", kZeros), little);
  EXPECT_EQ(stepped("0.1", "add", kZeros), little);
  // No zero times such a number is zero.
  EXPECT_EQ(stepped("0x7F800000", "subtract"), whole);
  EXPECT_EQ(stepped("0x7FC00000", "subtract"), whole);
}

TEST(AddInPlace, SumsOfTermsAreAddedOneAfterTheOther) {
  const auto stepped = [](const std::string& element) {
    const std::string body =
        "      %e = stablehlo.dynamic_update_slice %z, %u, %j, %zero : (WHOLE, PART, tensor<i32>, "
        "tensor<i32>) -> WHOLE\n"
        "      %s = stablehlo.add %d, %e : WHOLE\n"
        "      %m = stablehlo.negate %s : WHOLE\n"
        "      %next = stablehlo.add %a, %m : WHOLE\n";
    return sums_in_loop(
        sum_loop("stablehlo.negate %x", with_type(kWindow + body, element), element));
  };
  EXPECT_EQ(stepped("f32"), (Names{"tensor<2x6xf32>", "tensor<2x6xf32>"}));
  EXPECT_EQ(stepped("i8"), (Names{"tensor<2x6xi8>", "tensor<2x6xi8>"}));
  EXPECT_EQ(stepped("f16"), (Names{"tensor<20000x6xf16>", "tensor<20000x6xf16>"}));
}

}  // namespace
}  // namespace hekla::passes
