// SPDX-License-Identifier: Apache-2.0
// Which reads come to stand before an update.
#include <gtest/gtest.h>

#include <string>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/testing/module_of_text.h"

namespace hekla::passes {
namespace {

const char kArray[] = "tensor<90000xf32>";

// The names of main's operations, in their order, after the pass; %x is the array, %u an element.
Names ordered(const std::string& body) {
  const std::string type = kArray;
  const ModulePtr module =
      read("func.func @main(%x: " + type +
           ", %u: tensor<1xf32>, %i: tensor<i32>, %j: tensor<i32>) -> (" + type +
           ", tensor<1xf32>) {\n" + body + "  return %y, %r : " + type + ", tensor<1xf32>\n}\n");
  read_before_updates(*module);
  expect_valid(*module);
  return operations(*module);
}

std::string set(const std::string& result, const std::string& array, const std::string& place) {
  return "  %" + result + " = stablehlo.dynamic_update_slice %" + array + ", %u, %" + place +
         " : (" + kArray + ", tensor<1xf32>, tensor<i32>) -> " + kArray + "\n";
}

std::string get(const std::string& result, const std::string& array, const std::string& place) {
  return "  %" + result + " = stablehlo.dynamic_slice %" + array + ", %" + place +
         ", sizes = [1] : (" + kArray + ", tensor<i32>) -> tensor<1xf32>\n";
}

const char kPlace[] = "  %k = stablehlo.add %i, %j : tensor<i32>\n";

TEST(ReadBeforeUpdates, AReadMovesWithItsPlace) {
  EXPECT_EQ(ordered(set("y", "x", "i") + get("r", "x", "j")),
            (Names{"dynamic_slice", "dynamic_update_slice"}));
  EXPECT_EQ(ordered(set("y", "x", "i") + kPlace + get("r", "x", "k")),
            (Names{"add", "dynamic_slice", "dynamic_update_slice"}));
  // Of the first of two updates, and of both.
  EXPECT_EQ(ordered(set("z", "x", "i") + set("y", "z", "j") + kPlace + get("r", "x", "k")),
            (Names{"add", "dynamic_slice", "dynamic_update_slice", "dynamic_update_slice"}));
  EXPECT_EQ(ordered(set("z", "x", "i") + set("y", "z", "j") + get("q", "z", "i") +
                    get("s", "x", "i") + "  %r = stablehlo.add %q, %s : tensor<1xf32>\n"),
            (Names{"dynamic_slice", "dynamic_update_slice", "dynamic_slice", "dynamic_update_slice",
                   "add"}));
}

TEST(ReadBeforeUpdates, WhatDependsOnTheUpdateStays) {
  const Names as_it_was{"dynamic_update_slice", "dynamic_slice", "convert", "reshape",
                        "dynamic_slice"};
  EXPECT_EQ(ordered(set("y", "x", "i") + get("s", "y", "j") +
                    "  %c = stablehlo.convert %s : (tensor<1xf32>) -> tensor<1xi32>\n"
                    "  %k = stablehlo.reshape %c : (tensor<1xi32>) -> tensor<i32>\n" +
                    get("r", "x", "k")),
            as_it_was);
  // Somebody reads all of it later.
  EXPECT_EQ(ordered(set("z", "x", "i") + get("r", "x", "j") +
                    "  %y = stablehlo.add %x, %z : " + kArray + "\n"),
            (Names{"dynamic_update_slice", "dynamic_slice", "add"}));
}

}  // namespace
}  // namespace hekla::passes
