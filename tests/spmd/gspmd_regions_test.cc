// SPDX-License-Identifier: Apache-2.0
// GSPMD's manual regions over some axes, as JAX writes them: their bodies are cut by the others.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/compiler/spmd/one_device.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/spmd/boxes.h"

namespace hekla::spmd {
namespace {

using sharding::HloSharding;

int count(const ir::Module& module, ir::OpCode code) {
  int found = 0;
  ir::walk(module.entry()->body(), [&](const ir::Operation& op) { found += op.code() == code; });
  return found;
}

HostArray iota(const Dims& dims) {
  HostArray array(DType::kI32, dims);
  for (int64_t i = 0; i < element_count(dims); ++i) {
    array.mutable_as<int32_t>()[i] = static_cast<int32_t>(i % 23 - 11);
  }
  return array;
}

// Results of each device against the boxes of the whole ones.
void check(ir::Module& module, Layout& layout, const std::vector<HostArray>& arguments,
           const std::vector<HostArray>& expected) {
  const Status status = to_one_device(module, layout);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const Status verified = ir::verify(module);
  ASSERT_TRUE(verified.ok()) << verified.to_string();
  std::vector<std::vector<HostArray>> parts(static_cast<size_t>(layout.partitions));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Dims& whole = arguments[i].dims();
    const auto boxes = boxes_of(*layout.parameters[i], layout.partitions, whole);
    const Dims& local = module.entry()->type.elements()[i].dims();
    for (size_t p = 0; p < parts.size(); ++p) {
      HostArray part(DType::kI32, local);
      for_each(boxes[p], local, whole, [&](int64_t at, int64_t in) {
        part.mutable_as<int32_t>()[at] = arguments[i].as<int32_t>()[in];
      });
      parts[p].push_back(std::move(part));
    }
  }
  const auto results =
      reference::evaluate_devices(module, std::move(parts), {1, layout.partitions});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (size_t k = 0; k < expected.size(); ++k) {
    const Dims& whole = expected[k].dims();
    const auto boxes = boxes_of(*layout.results[k], layout.partitions, whole);
    for (size_t p = 0; p < results->size(); ++p) {
      const HostArray& part = (*results)[p][k];
      for_each(boxes[p], part.dims(), whole, [&](int64_t at, int64_t in) {
        ASSERT_EQ(part.as<int32_t>()[at], expected[k].as<int32_t>()[in]) << k << " on " << p;
      });
    }
  }
}

std::vector<HostArray> evaluated(const std::string& text, const std::vector<HostArray>& arguments) {
  const auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  auto results = reference::evaluate(**module, arguments);
  EXPECT_TRUE(results.ok()) << results.status().to_string();
  return *std::move(results);
}

// What jax.jit(jax.shard_map(..., axis_names={'x'})) over x=2, y=4 sends, of
//   h = a @ w; return h, psum(h.sum(0), 'x')
constexpr const char* kProgram = R"(module {
  func.func public @main(%a: tensor<8x16xi32>, %w: tensor<16x32xi32>)
      -> (tensor<8x32xi32>, tensor<32xi32>) {
    %0 = stablehlo.custom_call @Sharding(%a) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<8x16xi32>) -> tensor<8x16xi32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<8x16xi32>) -> tensor<4x16xi32>
    %2 = stablehlo.custom_call @Sharding(%w) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{replicated}"} : (tensor<16x32xi32>) -> tensor<16x32xi32>
    %3 = stablehlo.custom_call @SPMDFullToShardShape(%2) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<16x32xi32>) -> tensor<16x32xi32>
    %4:2 = call @shmap_body(%1, %3) : (tensor<4x16xi32>, tensor<16x32xi32>) -> (tensor<4x32xi32>, tensor<32xi32>)
    %5 = stablehlo.custom_call @Sharding(%4#0) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<4x32xi32>) -> tensor<4x32xi32>
    %6 = stablehlo.custom_call @SPMDShardToFullShape(%5) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"} : (tensor<4x32xi32>) -> tensor<8x32xi32>
    %7 = stablehlo.custom_call @Sharding(%4#1) {backend_config = "unspecified_dims=[0]", mhlo.sharding = "{devices=[1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<32xi32>) -> tensor<32xi32>
    %8 = stablehlo.custom_call @SPMDShardToFullShape(%7) {backend_config = "unspecified_dims=[0]", mhlo.sharding = "{replicated}"} : (tensor<32xi32>) -> tensor<32xi32>
    return %6, %8 : tensor<8x32xi32>, tensor<32xi32>
  }
  func.func private @shmap_body(%a: tensor<4x16xi32>, %w: tensor<16x32xi32>) -> (tensor<4x32xi32>, tensor<32xi32>) {
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<4x16xi32>, tensor<16x32xi32>) -> tensor<4x32xi32>
    %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<4x32xi32>) -> tensor<4x32xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %4 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<4x32xi32>, tensor<i32>) -> tensor<32xi32>
    %5 = stablehlo.custom_call @Sharding(%4) {backend_config = "unspecified_dims=[0]", mhlo.sharding = "{devices=[1,2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<32xi32>) -> tensor<32xi32>
    %6 = "stablehlo.all_reduce"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %7 = stablehlo.add %x, %y : tensor<i32>
      %8 = stablehlo.custom_call @Sharding(%7) {backend_config = "", mhlo.sharding = "{devices=[2,4]<=[8] last_tile_dims={manual, replicated}}"} : (tensor<i32>) -> tensor<i32>
      stablehlo.return %8 : tensor<i32>
    }) : (tensor<32xi32>) -> tensor<32xi32>
    return %1, %6 : tensor<4x32xi32>, tensor<32xi32>
  }
})";

constexpr const char* kPlain =
    R"(func.func public @main(%a: tensor<8x16xi32>, %w: tensor<16x32xi32>)
    -> (tensor<8x32xi32>, tensor<32xi32>) {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<8x16xi32>, tensor<16x32xi32>) -> tensor<8x32xi32>
  %c = stablehlo.constant dense<0> : tensor<i32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<8x32xi32>, tensor<i32>) -> tensor<32xi32>
  return %0, %1 : tensor<8x32xi32>, tensor<32xi32>
})";

// The program over eight partitions, whose results are those of kPlain; null: it is none.
std::unique_ptr<ir::Module> checked(const std::string& text, Layout& layout) {
  const std::vector<HostArray> arguments = {iota({8, 16}), iota({16, 32})};
  const std::vector<HostArray> expected = evaluated(kPlain, arguments);
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  if (!module.ok()) return nullptr;
  layout.partitions = 8;
  check(**module, layout, arguments, expected);
  return *std::move(module);
}

TEST(GspmdRegions, AreCutByTheAxesThatTheyLeaveFree) {
  Layout layout;
  layout.parameters = {tiles("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
                       tiles("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}")};
  layout.results.resize(2);
  const auto module = checked(kProgram, layout);
  ASSERT_TRUE(module != nullptr);
  EXPECT_EQ(to_text(*layout.results[0]), "{devices=[2,4]<=[8]}");
  EXPECT_EQ(to_text(*layout.results[1]), "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}");
  EXPECT_EQ(count(*module, ir::OpCode::kAllReduce), 1);  // the program's own
  EXPECT_EQ(count(*module, ir::OpCode::kAllGather), 0);
}

// The contraction cut by a free axis inside is summed over that alone.
TEST(GspmdRegions, AreSummedOverFreeAxes) {
  Layout layout;
  layout.parameters = {tiles("{devices=[2,4]<=[8]}"),
                       tiles("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")};
  layout.results = {tiles("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), HloSharding()};
  const auto module = checked(kProgram, layout);
  ASSERT_TRUE(module != nullptr);
  EXPECT_EQ(count(*module, ir::OpCode::kAllReduce), 2);
  EXPECT_EQ(count(*module, ir::OpCode::kAllGather), 0);
}

// A result that leaves in two ways, or an operand from inside: right, and cut no further.
TEST(GspmdRegions, OfOtherFormsStayWhole) {
  std::string text = kProgram;
  const std::string from = "call @shmap_body(%1, %3)";
  text.replace(text.find(from), from.size(), "call @shmap_body(%1, %n)");
  const std::string before = "    %4:2 = call";
  text.insert(text.find(before),
              "    %m = stablehlo.negate %3 : tensor<16x32xi32>\n"
              "    %n = stablehlo.negate %m : tensor<16x32xi32>\n");
  Layout layout;
  layout.parameters = {tiles("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
                       tiles("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}")};
  layout.results.resize(2);
  checked(text, layout);
}

}  // namespace
}  // namespace hekla::spmd
