// SPDX-License-Identifier: Apache-2.0
// What programs ask of their contractions, and what becomes of it.
#include "backends/compiler/lower/algorithm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/compiler/lower/contraction.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::lower {
namespace {

using ModulePtr = std::unique_ptr<ir::Module>;

// A product of 32 x 64 by 64 x 48 elements.
ModulePtr product(const std::string& from, const std::string& to, const std::string& words) {
  const std::string x = "tensor<32x64x" + from + ">", y = "tensor<64x48x" + from + ">",
                    out = "tensor<32x48x" + to + ">";
  Result<ModulePtr> module = stablehlo::read_program(
      "func.func @main(%x: " + x + ", %y: " + y + ") -> " + out +
      " {\n  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]" + words + " : (" + x +
      ", " + y + ") -> " + out + "\n  return %r : " + out + "\n}\n");
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

std::string named(const std::string& type, const std::string& sum, int products) {
  return ", algorithm = <lhs_precision_type = " + type + ", rhs_precision_type = " + type +
         ", accumulation_type = " + sum +
         ", lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = " +
         std::to_string(products) + ", allow_imprecise_accumulation = false>";
}

const ir::Operation& product_of(const ir::Module& module) {
  for (const auto& op : module.entry()->body().front().operations()) {
    if (op->code() == ir::OpCode::kDotGeneral) return *op;
  }
  std::abort();
}

std::string algorithm_text(const ir::Module& module) {
  const auto algorithm = algorithm_of(product_of(module));
  return algorithm.ok() ? to_string(*algorithm) : algorithm.status().message();
}

// Names without "stablehlo.", and types of results.
std::vector<std::string> operations(const ir::Module& module) {
  std::vector<std::string> names;
  for (const auto& op : module.entry()->body().front().operations()) {
    const std::string type(
        dtype_name(op->result_count() == 0 ? DType::kInvalid : op->result()->type().dtype()));
    if (op->result_count() != 0) names.push_back(std::string(op->name().substr(10)) + " " + type);
  }
  return names;
}

TEST(Algorithm, FollowsFromTypesAndPrecision) {
  EXPECT_EQ(algorithm_text(*product("f32", "f32", "")), "f32_f32_f32");
  EXPECT_EQ(algorithm_text(*product("f32", "f32", ", precision = [DEFAULT, HIGHEST]")),
            "f32_f32_f32");
  EXPECT_EQ(algorithm_text(*product("f32", "f32", ", precision = [DEFAULT, HIGH]")),
            "bf16_bf16_f32_x3");
  EXPECT_EQ(algorithm_text(*product("f32", "f32", ", precision = [HIGHEST, HIGH]")), "f32_f32_f32");
  EXPECT_EQ(algorithm_text(*product("bf16", "bf16", ", precision = [HIGH, HIGH]")),
            "bf16_bf16_f32");
  EXPECT_EQ(algorithm_text(*product("f64", "f64", "")), "f64_f64_f64");
  EXPECT_EQ(algorithm_text(*product("i8", "i32", "")), "i8_i8_i32");
}

TEST(Algorithm, NamedOnesAreTakenAsTheyAre) {
  EXPECT_EQ(algorithm_text(*product("f32", "f32", named("bf16", "f32", 1))), "bf16_bf16_f32");
  EXPECT_EQ(algorithm_text(*product("f32", "f32", named("bf16", "f32", 6))), "bf16_bf16_f32_x6");
  EXPECT_EQ(algorithm_text(*product("bf16", "bf16", named("tf32", "f32", 3))), "tf32_tf32_f32_x3");
  EXPECT_EQ(algorithm_text(*product("i32", "i32", named("bf16", "f32", 1))),
            "the algorithm bf16_bf16_f32 is for floats, and stablehlo.dot_general has i32 and i32 "
            "for i32");
}

TEST(Algorithm, SaysWhichPiecesADeviceMayMultiply) {
  const auto asked = [](const std::string& words) {
    return *algorithm_of(product_of(*product("f32", "f32", words)));
  };
  const kernel::Algorithm exact = asked(""), high = asked(", precision = [HIGH, HIGH]"),
                          six = asked(named("bf16", "f32", 6)),
                          tf32 = asked(named("tf32", "f32", 3)),
                          rounded = asked(named("bf16", "f32", 1));
  // f32 is f32 for those who ask for nothing.
  EXPECT_FALSE(allows_pieces(exact, DType::kBF16, 9));
  EXPECT_FALSE(allows_pieces(high, DType::kBF16, 1));
  EXPECT_FALSE(allows_pieces(high, DType::kTF32, 1));
  EXPECT_TRUE(allows_pieces(high, DType::kBF16, 3));
  EXPECT_TRUE(allows_pieces(high, DType::kTF32, 3));
  EXPECT_TRUE(allows_pieces(high, DType::kBF16, 9));
  EXPECT_FALSE(allows_pieces(high, DType::kF16, 3)) << "its range is less than that of bf16";
  EXPECT_FALSE(allows_pieces(six, DType::kBF16, 3));
  EXPECT_FALSE(allows_pieces(six, DType::kTF32, 3));
  EXPECT_TRUE(allows_pieces(six, DType::kBF16, 6));
  EXPECT_FALSE(allows_pieces(tf32, DType::kBF16, 3));
  EXPECT_TRUE(allows_pieces(tf32, DType::kBF16, 6));
  EXPECT_FALSE(allows_pieces(rounded, DType::kBF16, 3)) << "it is a product of bf16 as a whole";
}

TEST(Algorithm, WhatItAsksForSaysHowManyProductsOfPiecesThereAre) {
  const auto fewest = [](const std::string& words, DType type = DType::kBF16,
                         bool are_in_range = false) {
    const auto asked = algorithm_of(product_of(*product("f32", "f32", words)));
    return fewest_pieces(*asked, type, are_in_range).products;
  };
  EXPECT_EQ(fewest(""), 1);
  EXPECT_EQ(fewest(", precision = [HIGHEST, HIGH]"), 1);
  EXPECT_EQ(fewest(", precision = [DEFAULT, HIGH]"), 3);
  EXPECT_EQ(fewest(named("bf16", "f32", 3)), 3);
  EXPECT_EQ(fewest(named("bf16", "f32", 6)), 6);
  EXPECT_EQ(fewest(named("bf16", "f32", 9)), 9);
  // A piece of bf16 has 8 digits, one of TF32 11.
  EXPECT_EQ(fewest(named("tf32", "f32", 3)), 6);
  EXPECT_EQ(fewest(named("tf32", "f32", 1)), 4);
  EXPECT_EQ(fewest(named("f32", "f32", 1)), 1);
  EXPECT_EQ(fewest(named("f64", "f64", 1)), 1);
  // Rounded operands are products of their own type.
  EXPECT_EQ(fewest(named("bf16", "f32", 1)), 1);
  // f16 has 11 digits and a range that somebody has to answer for.
  EXPECT_EQ(fewest(named("bf16", "f32", 3), DType::kF16), 1);
  EXPECT_EQ(fewest(named("bf16", "f32", 3), DType::kF16, true), 3);
  EXPECT_EQ(fewest(named("tf32", "f32", 3), DType::kF16, true), 3);
  EXPECT_EQ(fewest(named("bf16", "f32", 6), DType::kF16, true), 6);
}

TEST(Algorithm, OperandsAreRoundedOnceAndOnlyWhereTheyHaveMore) {
  const auto applied = [](const std::string& from, const std::string& to,
                          const std::string& words) {
    ModulePtr module = product(from, to, words);
    apply_algorithms(*module);
    EXPECT_TRUE(ir::verify(*module).ok());
    const std::vector<std::string> once = operations(*module);
    apply_algorithms(*module);
    EXPECT_EQ(operations(*module), once);
    const auto algorithm = algorithm_of(product_of(*module));
    EXPECT_TRUE(algorithm.ok() && has_rounded_operands(product_of(*module), *algorithm));
    return once;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(applied("f32", "f32", named("bf16", "f32", 1)),
            (Names{"convert bf16", "convert bf16", "dot_general f32"}));
  EXPECT_EQ(
      applied("f32", "f32", named("tf32", "f32", 1)),
      (Names{"convert tf32", "convert f32", "convert tf32", "convert f32", "dot_general f32"}));
  EXPECT_EQ(applied("f32", "f32", named("bf16", "f32", 3)), (Names{"dot_general f32"}));
  EXPECT_EQ(applied("bf16", "bf16", named("bf16", "f32", 1)), (Names{"dot_general bf16"}));
  EXPECT_EQ(applied("bf16", "f32", named("f32", "f32", 1)), (Names{"dot_general f32"}));
  EXPECT_EQ(applied("f32", "bf16", named("f64", "f64", 1)),
            (Names{"dot_general f64", "convert bf16"}));
  EXPECT_EQ(applied("f64", "f64", named("bf16", "f32", 9)),
            (Names{"convert f32", "convert f32", "dot_general f64"}));
}

TEST(Algorithm, ThatOfTheClientIsForF32WithoutAWishOfItsOwn) {
  const auto asked = [](const std::string& type, const std::string& words) {
    ModulePtr module = product(type, type, words);
    name_algorithms(*module, *f32_algorithm("bf16_bf16_f32"));
    EXPECT_TRUE(ir::verify(*module).ok());
    return algorithm_text(*module);
  };
  EXPECT_EQ(asked("f32", ""), "bf16_bf16_f32");
  EXPECT_EQ(asked("f32", ", precision = [HIGHEST, HIGHEST]"), "f32_f32_f32");
  EXPECT_EQ(asked("f32", named("tf32", "f32", 3)), "tf32_tf32_f32_x3");
  EXPECT_EQ(asked("f64", ""), "f64_f64_f64");
  EXPECT_FALSE(f32_algorithm("bf16").has_value());
}

// A device's code for contractions gets what was asked for, and operands that are rounded already.
TEST(Algorithm, ReachesTheContraction) {
  ModulePtr module = product("f32", "f32", named("bf16", "f32", 1));
  EXPECT_EQ(why_no_contraction(product_of(*module), {}),
            "operands are not rounded for bf16_bf16_f32");
  apply_algorithms(*module);
  const auto in_memory = [](const ir::Value&) { return true; };
  const ir::Operation& op = product_of(*module);
  const auto lowered = lower_contraction(op, in_memory, *op.result(), {});
  ASSERT_TRUE(lowered.ok()) << lowered.status().message();
  EXPECT_EQ(lowered->contraction.lhs_dtype, DType::kBF16);
  EXPECT_EQ(to_string(lowered->contraction.algorithm), "bf16_bf16_f32");
  EXPECT_EQ(to_string(lowered->contraction), "1 x 32 x 48 x 64 bf16");
  module = product("f32", "f32", ", precision = [HIGH, HIGH]");
  const ir::Operation& high = product_of(*module);
  EXPECT_EQ(to_string(lower_contraction(high, in_memory, *high.result(), {})->contraction),
            "1 x 32 x 48 x 64 f32, bf16_bf16_f32_x3");
}

}  // namespace
}  // namespace hekla::lower
