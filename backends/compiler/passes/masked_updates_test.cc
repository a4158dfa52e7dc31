// SPDX-License-Identifier: Apache-2.0
// Which selects of an array and of updates of it become updates by what is selected. Numbers are
// the business of tests/random (--edits) and tests/jax.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/testing/module_of_text.h"

namespace hekla::passes {
namespace {

const char kBatch[] = "tensor<4x30000xf32>";

// main of an array %x, a window %u, an update for each example %v, flags and places; returns %s.
ModulePtr update_of(const std::string& body) {
  const std::string type = kBatch;
  return read("func.func @main(%x: " + type +
              ", %u: tensor<1x9xf32>, %v: tensor<4xf32>, %p: tensor<i1>, %q: tensor<4xi1>, %m: "
              "tensor<4x30000xi1>, %i: tensor<i32>, %k: tensor<4x1xi32>) -> " +
              type + " {\n" + body + "  return %s : " + type + "\n}\n");
}

std::string window(const std::string& result, const std::string& array) {
  return "  %" + result + " = stablehlo.dynamic_update_slice %" + array + ", %u, %i, %i : (" +
         kBatch + ", tensor<1x9xf32>, tensor<i32>, tensor<i32>) -> " + kBatch + "\n";
}

// One element of each example.
std::string scatter(const std::string& result, const std::string& array) {
  return "  %" + result + " = \"stablehlo.scatter\"(%" + array + R"(, %k, %v) <{
      indices_are_sorted = true, unique_indices = true,
      scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1],
      input_batching_dims = [0], scatter_indices_batching_dims = [0],
      scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      stablehlo.return %r : tensor<f32>
  }) : ()" +
         kBatch + ", tensor<4x1xi32>, tensor<4xf32>) -> " + kBatch + "\n";
}

std::string select(const std::string& mask, const std::string& first, const std::string& second) {
  const std::string flags = mask == "p" ? "tensor<i1>" : "tensor<4x30000xi1>";
  return "  %s = stablehlo.select %" + mask + ", %" + first + ", %" + second + " : " + flags +
         ", " + kBatch + "\n";
}

std::string broadcast(const std::string& flags, const std::string& type, const std::string& dims) {
  return "  %b = stablehlo.broadcast_in_dim %" + flags + ", dims = [" + dims + "] : (" + type +
         ") -> tensor<4x30000xi1>\n";
}

// Types of what its selects choose.
Names selected(const std::string& body) {
  const ModulePtr module = update_of(body);
  const Status status = mask_updates(*module);
  EXPECT_TRUE(status.ok()) << status.to_string();
  expect_valid(*module);
  clean_up(*module);
  Names types;
  ir::walk(module->entry()->body(), [&](ir::Operation& op) {
    if (op.code() == ir::OpCode::kSelect) types.push_back(op.result()->type().to_string());
    if (op.code() == ir::OpCode::kScatter && !op.attribute("unique_indices").is_absent()) {
      types.push_back("a promise");  // which no longer holds where several are outside
    }
  });
  return types;
}

TEST(MaskUpdates, AWindowIsSelected) {
  const Names part{"tensor<1x9xf32>"};
  EXPECT_EQ(selected(window("w", "x") + select("p", "w", "x")), part);
  EXPECT_EQ(selected(window("w", "x") + select("p", "x", "w")), part);
  EXPECT_EQ(selected(window("w", "x") + select("m", "w", "x")), part);
  EXPECT_EQ(
      selected(window("w", "x") + broadcast("q", "tensor<4xi1>", "0") + select("b", "w", "x")),
      part);
}

TEST(MaskUpdates, IndicesOfAScatterAreSelected) {
  const Names indices{"tensor<4x1xi32>"};
  EXPECT_EQ(selected(scatter("w", "x") + select("p", "w", "x")), indices);
  EXPECT_EQ(
      selected(scatter("w", "x") + broadcast("q", "tensor<4xi1>", "0") + select("b", "x", "w")),
      indices);
  // What a batch chooses a branch by.
  EXPECT_EQ(selected(scatter("w", "x") + R"(
  %n = stablehlo.convert %v : (tensor<4xf32>) -> tensor<4xi32>
  %b = stablehlo.broadcast_in_dim %n, dims = [0] : (tensor<4xi32>) -> tensor<4x30000xi32>
  %c = stablehlo.constant dense<1> : tensor<4x30000xi32>
  %z = stablehlo.compare LT, %b, %c : (tensor<4x30000xi32>, tensor<4x30000xi32>) -> tensor<4x30000xi1>
)" + select("z", "x", "w")),
            indices);
  // Elements of an example have flags of their own.
  EXPECT_EQ(selected(scatter("w", "x") + select("m", "w", "x")),
            (Names{"a promise", "tensor<4x30000xf32>"}));
}

TEST(MaskUpdates, UpdatesThatFollowEachOtherAreSelectedOneByOne) {
  EXPECT_EQ(selected(window("w", "x") + scatter("y", "w") + select("p", "y", "x")),
            (Names{"tensor<1x9xf32>", "tensor<4x1xi32>"}));
}

TEST(MaskUpdates, WhatSomebodyElseLooksAtStays) {
  const Names whole{"tensor<4x30000xf32>"};
  const std::string type = std::string(" : ") + kBatch + "\n";
  // Another array; one that is computed; what is between two updates, or before the select.
  EXPECT_EQ(
      selected("  %n = stablehlo.negate %x" + type + window("w", "n") + select("p", "w", "x")),
      whole);
  EXPECT_EQ(
      selected("  %n = stablehlo.negate %x" + type + window("w", "n") + select("p", "w", "n")),
      whole);
  EXPECT_EQ(selected(window("w", "x") + window("y", "w") + "  %n = stablehlo.add %w, %y" + type +
                     select("p", "n", "x")),
            whole);
  EXPECT_EQ(selected(window("w", "x") + "  %t = stablehlo.select %p, %w, %x : tensor<i1>, " +
                     kBatch + "\n  %s = stablehlo.negate %t" + type),
            whole);
}

}  // namespace
}  // namespace hekla::passes
