// SPDX-License-Identifier: Apache-2.0
// What a program says is a sum over partitions (Shardy's `unreduced`) is carried through linear
// operations as its addends, and summed once, where the program says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backends/compiler/spmd/one_device.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::spmd {
namespace {

struct Mesh {
  const char* text;
  int64_t partitions;
  const char* first;      // what cuts the first of three dimensions, which is summed
  const char* second;     // and the second one
  const char* unreduced;  // the same as axes
};
constexpr Mesh kMeshes[] = {
    {"\"y\"=2", 2, "\"y\"", "", "\"y\""},
    {"\"x\"=2, \"y\"=2", 4, "\"y\"", "", "\"y\""},
    {"\"x\"=2, \"y\"=2", 4, "\"y\"", "\"x\"", "\"y\""},
    {"\"x\"=2, \"y\"=2", 4, "\"x\", \"y\"", "", "\"x\", \"y\""},
};

// `body` makes %t, of `shape` with so many dimensions, of %s: f32 sums of shape 8x6, in addends;
// %a: tensor<4x8x6xf32>, %b: tensor<8x6xf32>, %i: tensor<i32> are at hand.
std::string program(const Mesh& mesh, const std::string& body, const std::string& shape,
                    const std::string& dimensions) {
  return fmt::format(R"(module {{
  sdy.mesh @mesh = <[{0}]>
  func.func public @main(%a: tensor<4x8x6xf32>, %b: tensor<8x6xf32>, %i: tensor<i32>) -> tensor<{7}> {{
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %v = sdy.sharding_constraint %a <@mesh, [{{{1}}}, {{{2}}}, {{}}]> : tensor<4x8x6xf32>
    %w = stablehlo.reduce(%v init: %z) applies stablehlo.add across dimensions = [0] :
        (tensor<4x8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
    %s = sdy.sharding_constraint %w <@mesh, [{{{2}}}, {{}}], unreduced={{{3}}}> : tensor<8x6xf32>
{4}
    %u = sdy.sharding_constraint %t <@mesh, [{6}], unreduced={{{3}}}> : tensor<{5}>
    %q = stablehlo.negate %u : tensor<{5}>
    %r = stablehlo.convert %q : (tensor<{5}>) -> tensor<{7}>
    return %r : tensor<{7}>
  }}
}})",
                     mesh.text, mesh.first, mesh.second, mesh.unreduced, body, shape, dimensions,
                     shape.substr(0, shape.rfind('x') + 1) + "f32");
}

HostArray random_array(std::mt19937& random, const Dims& dims) {
  HostArray array(DType::kF32, dims);
  for (int64_t i = 0; i < element_count(dims); ++i) {
    array.mutable_as<float>()[i] = static_cast<float>(static_cast<int>(random() % 17) - 8);
  }
  return array;
}

int count_collectives(const ir::Module& module, bool all_reduces) {
  int count = 0;
  ir::walk(module.entry()->body(), [&](const ir::Operation& op) {
    if (ir::is_collective(op.code())) {
      count += (op.code() == ir::OpCode::kAllReduce) == all_reduces ? 1 : 0;
    }
  });
  return count;
}

// Whole on every device, in and out: one all_reduce, and one all_gather of what is cut besides.
void check(const std::string& text, const Mesh& mesh) {
  const int64_t partitions = mesh.partitions;
  auto module = stablehlo::read_program(text);
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  std::mt19937 random(7);
  std::vector<HostArray> arguments = {random_array(random, {4, 8, 6}), random_array(random, {8, 6}),
                                      HostArray(DType::kI32, {})};
  arguments[2].mutable_as<int32_t>()[0] = 3;
  const auto expected = reference::evaluate(**module, arguments);
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  Layout layout;
  layout.partitions = partitions;
  layout.parameters.resize(3, sharding::HloSharding());
  layout.results = {sharding::HloSharding()};
  const Status status = to_one_device(**module, layout);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const Status verified = ir::verify(**module);
  ASSERT_TRUE(verified.ok()) << verified.to_string();
  const auto results = reference::evaluate_devices(
      **module, std::vector(static_cast<size_t>(partitions), arguments), {1, partitions});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (const auto& own : *results) {
    const int64_t size = own[0].size();
    ASSERT_EQ(size, (*expected)[0].size());
    for (int64_t i = 0; i < size; ++i) {
      // Zeros of either sign are equal.
      ASSERT_EQ(own[0].as<float>()[i], (*expected)[0].as<float>()[i]) << i;
    }
  }
  EXPECT_EQ(count_collectives(**module, true), 1);
  EXPECT_EQ(count_collectives(**module, false), *mesh.second == '\0' ? 0 : 1);
}

struct Op {
  const char* name;
  const char* body;
  const char* shape;
  const char* dimensions;  // %x stands for what cuts the second dimension of %a
};

// All values are small integers, so that sums are exact in any order.
const Op kOps[] = {
    {"add", "%t = stablehlo.add %s, %s : tensor<8x6xf32>", "8x6xf32", "{%x}, {}"},
    {"multiply", "%t = stablehlo.multiply %b, %s : tensor<8x6xf32>", "8x6xf32", "{%x}, {}"},
    {"divide", R"(%c = stablehlo.constant dense<4.0> : tensor<8x6xf32>
      %t = stablehlo.divide %s, %c : tensor<8x6xf32>)",
     "8x6xf32", "{%x}, {}"},
    {"transpose",
     "%t = stablehlo.transpose %s, dims = [1, 0] : (tensor<8x6xf32>) -> tensor<6x8xf32>", "6x8xf32",
     "{}, {%x}"},
    {"reshape", "%t = stablehlo.reshape %s : (tensor<8x6xf32>) -> tensor<2x4x6xf32>", "2x4x6xf32",
     "{%x}, {}, {}"},
    {"convert", "%t = stablehlo.convert %s : (tensor<8x6xf32>) -> tensor<8x6xf64>", "8x6xf64",
     "{%x}, {}"},
    {"narrow", R"(%c = stablehlo.convert %s : (tensor<8x6xf32>) -> tensor<8x6xf16>
      %d = sdy.sharding_constraint %c <@mesh, [{%x}, {}], unreduced={%u}> : tensor<8x6xf16>
      %t = stablehlo.add %d, %d : tensor<8x6xf16>)",
     "8x6xf16", "{%x}, {}"},
    {"slice", "%t = stablehlo.slice %s [0:8, 1:5:2] : (tensor<8x6xf32>) -> tensor<8x2xf32>",
     "8x2xf32", "{%x}, {}"},
    {"concatenate", R"(%c = stablehlo.constant dense<0.0> : tensor<8x2xf32>
      %t = stablehlo.concatenate %s, %c, %s, dim = 1 :
          (tensor<8x6xf32>, tensor<8x2xf32>, tensor<8x6xf32>) -> tensor<8x14xf32>)",
     "8x14xf32", "{%x}, {}"},
    {"pad",
     "%t = stablehlo.pad %s, %z, low = [0, 1], high = [0, 2], interior = [0, 1] : "
     "(tensor<8x6xf32>, tensor<f32>) -> tensor<8x14xf32>",
     "8x14xf32", "{%x}, {}"},
    {"broadcast",
     "%t = stablehlo.broadcast_in_dim %s, dims = [1, 0] : "
     "(tensor<8x6xf32>) -> tensor<6x8x3xf32>",
     "6x8x3xf32", "{}, {%x}, {}"},
    {"reverse", "%t = stablehlo.reverse %s, dims = [1] : tensor<8x6xf32>", "8x6xf32", "{%x}, {}"},
    {"select",
     R"(%c = stablehlo.compare GT, %b, %b : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xi1>
      %d = stablehlo.add %s, %s : tensor<8x6xf32>
      %e = sdy.sharding_constraint %d <@mesh, [{%x}, {}], unreduced={%u}> : tensor<8x6xf32>
      %t = stablehlo.select %c, %s, %e : tensor<8x6xi1>, tensor<8x6xf32>)",
     "8x6xf32", "{%x}, {}"},
    {"reduce", R"(%t = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [1] :
        (tensor<8x6xf32>, tensor<f32>) -> tensor<8xf32>)",
     "8xf32", "{%x}"},
    {"dot",
     "%t = stablehlo.dot_general %s, %b, contracting_dims = [1] x [1] : "
     "(tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x8xf32>",
     "8x8xf32", "{%x}, {}"},
    {"dynamic_slice", R"(%c = stablehlo.constant dense<0> : tensor<i32>
      %t = stablehlo.dynamic_slice %s, %c, %i, sizes = [8, 2] :
          (tensor<8x6xf32>, tensor<i32>, tensor<i32>) -> tensor<8x2xf32>)",
     "8x2xf32", "{%x}, {}"},
    {"dynamic_update_slice", R"(%c = stablehlo.constant dense<0> : tensor<i32>
      %f = stablehlo.constant dense<0.0> : tensor<8x9xf32>
      %t = stablehlo.dynamic_update_slice %f, %s, %c, %i :
          (tensor<8x9xf32>, tensor<8x6xf32>, tensor<i32>, tensor<i32>) -> tensor<8x9xf32>)",
     "8x9xf32", "{%x}, {}"},
    {"gather", R"(%c = stablehlo.constant dense<[[1], [4], [9]]> : tensor<3x1xi32>
      %t = "stablehlo.gather"(%s, %c) <{dimension_numbers = #stablehlo.gather<offset_dims = [0],
          collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
          slice_sizes = array<i64: 8, 1>}> : (tensor<8x6xf32>, tensor<3x1xi32>) -> tensor<8x3xf32>)",
     "8x3xf32", "{%x}, {}"},
    {"scatter", R"(%c = stablehlo.constant dense<[[1], [4], [1], [0], [7], [2]]> : tensor<6x1xi32>
      %f = stablehlo.constant dense<0.0> : tensor<8x5xf32>
      %t = "stablehlo.scatter"(%f, %c, %s) <{scatter_dimension_numbers = #stablehlo.scatter<
          update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1],
          index_vector_dim = 1>}> ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %n = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %n : tensor<f32>
        }) : (tensor<8x5xf32>, tensor<6x1xi32>, tensor<8x6xf32>) -> tensor<8x5xf32>)",
     "8x5xf32", "{%x}, {}"},
};

std::string filled(std::string text, const Mesh& mesh) {
  for (const auto& [name, value] : {std::pair("%x}", std::string(mesh.second) + "}"),
                                    std::pair("%u}", std::string(mesh.unreduced) + "}")}) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) {
      text.replace(at, 3, value);
    }
  }
  return text;
}

TEST(Addends, PassThroughLinearOperationsAndAreSummedOnce) {
  for (const Op& op : kOps) {
    for (const Mesh& mesh : kMeshes) {
      SCOPED_TRACE(fmt::format("{} over {} by {}", op.name, mesh.text, mesh.second));
      check(program(mesh, filled(op.body, mesh), op.shape, filled(op.dimensions, mesh)), mesh);
    }
  }
}

// What is summed in front is there for whoever asks for the sum of its addends.
TEST(Addends, AreSummedInFrontOfWhatIsNotLinear) {
  const char* bodies[] = {
      "%t = stablehlo.multiply %s, %s : tensor<8x6xf32>",
      "%t = stablehlo.divide %b, %s : tensor<8x6xf32>",
      "%t = stablehlo.add %b, %s : tensor<8x6xf32>",
      "%t = stablehlo.maximum %s, %b : tensor<8x6xf32>",
      R"(%c = stablehlo.convert %s : (tensor<8x6xf32>) -> tensor<8x6xi8>
      %t = stablehlo.convert %c : (tensor<8x6xi8>) -> tensor<8x6xf32>)",
      R"(%o = stablehlo.constant dense<1.0> : tensor<f32>
      %t = stablehlo.pad %s, %o, low = [0, 1], high = [0, -1], interior = [0, 0] :
          (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>)",
  };
  for (const char* body : bodies) {
    for (const Mesh& mesh : kMeshes) {
      SCOPED_TRACE(fmt::format("{} over {} by {}", body, mesh.text, mesh.second));
      check(program(mesh, body, "8x6xf32", filled("{%x}, {}", mesh)), mesh);
    }
  }
}

// Gradients of a loop over small batches, and a stack of them: one sum, behind the loop.
TEST(Addends, AreCarriedByLoopsAndBranches) {
  constexpr const char* kLoop = R"(%c = stablehlo.constant dense<0> : tensor<i32>
    %n = stablehlo.constant dense<3> : tensor<i32>
    %k = stablehlo.constant dense<1> : tensor<i32>
    %f = stablehlo.constant dense<0.0> : tensor<3x8x6xf32>
    %l:2 = stablehlo.while(%p = %c, %q = %f) : tensor<i32>, tensor<3x8x6xf32>
    cond {
      %0 = stablehlo.compare LT, %p, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %0 : tensor<i1>
    } do {
      %1 = stablehlo.reshape %s : (tensor<8x6xf32>) -> tensor<1x8x6xf32>
      %2 = sdy.sharding_constraint %1 <@mesh, [{}, {%x}, {}], unreduced={%u}> : tensor<1x8x6xf32>
      %3 = stablehlo.dynamic_update_slice %q, %2, %p, %c, %c : (tensor<3x8x6xf32>,
          tensor<1x8x6xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x6xf32>
      %4 = sdy.sharding_constraint %3 <@mesh, [{}, {%x}, {}], unreduced={%u}> : tensor<3x8x6xf32>
      %5 = stablehlo.add %p, %k : tensor<i32>
      stablehlo.return %5, %4 : tensor<i32>, tensor<3x8x6xf32>
    }
    %t = stablehlo.reshape %l#1 : (tensor<3x8x6xf32>) -> tensor<3x8x6x1xf32>)";
  constexpr const char* kBranches = R"(%d = stablehlo.negate %s : tensor<8x6xf32>
    %e = sdy.sharding_constraint %d <@mesh, [{%x}, {}], unreduced={%u}> : tensor<8x6xf32>
    %t = "stablehlo.case"(%i) ({
      %0 = sdy.sharding_constraint %s <@mesh, [{%x}, {}], unreduced={%u}> : tensor<8x6xf32>
      stablehlo.return %0 : tensor<8x6xf32>
    }, {
      %1 = stablehlo.constant dense<0.0> : tensor<8x6xf32>
      stablehlo.return %1 : tensor<8x6xf32>
    }, {
      %2 = stablehlo.add %e, %s : tensor<8x6xf32>
      %3 = sdy.sharding_constraint %2 <@mesh, [{%x}, {}], unreduced={%u}> : tensor<8x6xf32>
      stablehlo.return %3 : tensor<8x6xf32>
    }) : (tensor<i32>) -> tensor<8x6xf32>)";
  for (const Mesh& mesh : kMeshes) {
    SCOPED_TRACE(fmt::format("over {} by {}", mesh.text, mesh.second));
    check(program(mesh, filled(kLoop, mesh), "3x8x6x1xf32", filled("{}, {%x}, {}, {}", mesh)),
          mesh);
    check(program(mesh, filled(kBranches, mesh), "8x6xf32", filled("{%x}, {}", mesh)), mesh);
  }
}

}  // namespace
}  // namespace hekla::spmd
