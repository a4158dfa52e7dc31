// SPDX-License-Identifier: Apache-2.0
// Products around rings of devices: the values that they have at once, and as many bytes sent.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "backends/compiler/spmd/one_device.h"
#include "backends/compiler/spmd/report.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/spmd/boxes.h"

namespace hekla::spmd {
namespace {

using sharding::HloSharding;

struct Case {
  const char* name;
  int64_t partitions;
  const char* left;  // how they lie
  const char* right;
  const char* result;
  bool has_ring;
  const char* text = nullptr;
  Dims left_dims = {24, 16}, right_dims = {16, 12}, result_dims = {24, 12};
};

constexpr const char* kProduct = R"(
func.func public @main(%a: tensor<24x16xi32>, %b: tensor<16x12xi32>) -> tensor<24x12xi32> {
  %n = stablehlo.negate %a : tensor<24x16xi32>
  %r = stablehlo.dot_general %n, %b, contracting_dims = [1] x [0] :
      (tensor<24x16xi32>, tensor<16x12xi32>) -> tensor<24x12xi32>
  return %r : tensor<24x12xi32>
})";
constexpr const char* kLong = R"(
func.func public @main(%a: tensor<8x64xi32>, %b: tensor<64x12xi32>) -> tensor<8x12xi32> {
  %n = stablehlo.negate %a : tensor<8x64xi32>
  %r = stablehlo.dot_general %n, %b, contracting_dims = [1] x [0] :
      (tensor<8x64xi32>, tensor<64x12xi32>) -> tensor<8x12xi32>
  return %r : tensor<8x12xi32>
})";
constexpr const char* kNarrow = R"(
func.func public @main(%a: tensor<8x64xi32>, %b: tensor<64x12xi32>) -> tensor<8x12xi32> {
  %n = stablehlo.convert %a : (tensor<8x64xi32>) -> tensor<8x64xbf16>
  %m = stablehlo.convert %b : (tensor<64x12xi32>) -> tensor<64x12xbf16>
  %s = stablehlo.dot_general %n, %m, contracting_dims = [1] x [0] :
      (tensor<8x64xbf16>, tensor<64x12xbf16>) -> tensor<8x12xbf16>
  %r = stablehlo.convert %s : (tensor<8x12xbf16>) -> tensor<8x12xi32>
  return %r : tensor<8x12xi32>
})";
constexpr const char* kBatch = R"(
func.func public @main(%a: tensor<2x24x16xi32>, %b: tensor<2x12x16xi32>) -> tensor<2x24x12xi32> {
  %n = stablehlo.negate %a : tensor<2x24x16xi32>
  %r = stablehlo.dot_general %n, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2] :
      (tensor<2x24x16xi32>, tensor<2x12x16xi32>) -> tensor<2x24x12xi32>
  return %r : tensor<2x24x12xi32>
})";

constexpr const char* kRows2 = "{devices=[2,1]<=[2]}";
constexpr const char* kColumns2 = "{devices=[1,2]<=[2]}";
constexpr const char* kRows4 = "{devices=[4,1]<=[4]}";
constexpr const char* kColumns4 = "{devices=[1,4]<=[4]}";

const Case kCases[] = {
    {"rows come by", 2, kRows2, kColumns2, kColumns2, true},
    {"rows come by", 4, kRows4, kColumns4, kColumns4, true},
    {"in another order", 4, "{devices=[4,1]3,0,2,1}", "{devices=[1,4]3,0,2,1}",
     "{devices=[1,4]3,0,2,1}", true},
    {"over one of two axes", 8, "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
     "{devices=[1,4,2]<=[8] last_tile_dim_replicate}",
     "{devices=[1,4,2]<=[8] last_tile_dim_replicate}", true},
    {"a sum is handed on", 2, kColumns2, kRows2, kRows2, true, kLong, {8, 64}, {64, 12}, {8, 12}},
    {"a sum is handed on", 4, kColumns4, kRows4, kRows4, true, kLong, {8, 64}, {64, 12}, {8, 12}},
    {"a sum is handed on",
     4,
     kColumns4,
     kRows4,
     kColumns4,
     true,
     kLong,
     {8, 64},
     {64, 12},
     {8, 12}},
    {"a sum of narrow floats",
     4,
     kColumns4,
     kRows4,
     kRows4,
     true,
     kNarrow,
     {8, 64},
     {64, 12},
     {8, 12}},
    {"uneven rows", 5, "{devices=[5,1]<=[5]}", "{devices=[1,5]<=[5]}", "{devices=[1,5]<=[5]}",
     false},
    {"a whole sum", 4, kColumns4, kRows4, "{replicated}", false, kLong, {8, 64}, {64, 12}, {8, 12}},
    {"nothing moves", 4, kRows4, "{replicated}", kRows4, false},
    {"a batch's rows",
     4,
     "{devices=[2,2,1]<=[4]}",
     "{devices=[2,2,1]<=[4]}",
     "{devices=[2,1,2]<=[4]}",
     true,
     kBatch,
     {2, 24, 16},
     {2, 12, 16},
     {2, 24, 12}},
    {"a batch",
     2,
     "{devices=[2,1,1]<=[2]}",
     "{replicated}",
     "{replicated}",
     false,
     kBatch,
     {2, 24, 16},
     {2, 12, 16},
     {2, 24, 12}},
};

HostArray iota(const Dims& dims) {
  HostArray array(DType::kI32, dims);
  for (int64_t i = 0; i < element_count(dims); ++i) {
    array.mutable_as<int32_t>()[i] = static_cast<int32_t>(i % 7 - 3);
  }
  return array;
}

Layout layout_of(const Case& test, Rings rings) {
  Layout layout;
  layout.partitions = test.partitions;
  layout.parameters = {tiles(test.left), tiles(test.right)};
  layout.results = {tiles(test.result)};
  layout.schedule.rings = rings;
  return layout;
}

std::unique_ptr<ir::Module> read(const char* text) {
  auto module = stablehlo::read_program(text == nullptr ? kProduct : text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  return *std::move(module);
}

void check_values(const Case& test, const ir::Module& module, const Layout& layout) {
  const std::vector<HostArray> arguments = {iota(test.left_dims), iota(test.right_dims)};
  const auto expected = reference::evaluate(*read(test.text), arguments);
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  std::vector<std::vector<HostArray>> parts(static_cast<size_t>(test.partitions));
  for (size_t i = 0; i < 2; ++i) {
    const auto boxes = boxes_of(*layout.parameters[i], test.partitions, arguments[i].dims());
    const Dims& local = module.entry()->type.elements()[i].dims();
    for (size_t p = 0; p < parts.size(); ++p) {
      HostArray part(DType::kI32, local);
      std::fill_n(part.mutable_as<int32_t>(), element_count(local), -77777);
      for_each(boxes[p], local, arguments[i].dims(), [&](int64_t at, int64_t in) {
        part.mutable_as<int32_t>()[at] = arguments[i].as<int32_t>()[in];
      });
      parts[p].push_back(std::move(part));
    }
  }
  const auto results = reference::evaluate_devices(module, std::move(parts), {1, test.partitions});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const auto boxes = boxes_of(*layout.results[0], test.partitions, test.result_dims);
  for (size_t p = 0; p < results->size(); ++p) {
    const HostArray& part = (*results)[p][0];
    for_each(boxes[p], part.dims(), test.result_dims, [&](int64_t at, int64_t in) {
      ASSERT_EQ(part.as<int32_t>()[at], (*expected)[0].as<int32_t>()[in]) << p;
    });
  }
}

TEST(Rings, GiveTheSameAndSendAsMuch) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(fmt::format("{} over {}", test.name, test.partitions));
    std::map<Rings, double> bytes;
    for (const Rings rings : {Rings::kNever, Rings::kByCost, Rings::kAlways}) {
      const auto module = read(test.text);
      Layout layout = layout_of(test, rings);
      const Status status = to_one_device(*module, layout);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const Status verified = ir::verify(*module);
      ASSERT_TRUE(verified.ok()) << verified.to_string();
      check_values(test, *module, layout);
      EXPECT_EQ(layout.counts.rings, test.has_ring && rings == Rings::kAlways ? 1 : 0);
      const auto report = report_collectives(*module, {1, test.partitions});
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      bytes[rings] = report->total().bytes;
    }
    EXPECT_EQ(bytes[Rings::kNever], bytes[Rings::kByCost]);
    EXPECT_EQ(bytes[Rings::kNever], bytes[Rings::kAlways]);
  }
}

// Where what a device computes and sends is known: products long enough to hide the transfers.
TEST(Rings, AreMadeWhereTransfersHideBehindProducts) {
  constexpr const char* kText = R"(
func.func public @main(%a: tensor<{0}x{0}xf32>, %b: tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32> {{
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] :
      (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
  return %r : tensor<{0}x{0}xf32>
}})";
  for (const auto& [size, latency, rings] :
       {std::tuple(4096, 5e-6, 1), {256, 5e-6, 0}, {4096, 1.0, 0}}) {
    auto module = stablehlo::read_program(fmt::format(fmt::runtime(kText), size));
    ASSERT_TRUE(module.ok()) << module.status().to_string();
    Layout layout;
    layout.partitions = 4;
    layout.parameters = {tiles(kRows4), tiles(kColumns4)};
    layout.results = {tiles(kColumns4)};
    layout.schedule.link = {100e12, 100e9, latency};
    ASSERT_TRUE(to_one_device(**module, layout).ok());
    EXPECT_EQ(layout.counts.rings, rings) << size;
  }
}

}  // namespace
}  // namespace hekla::spmd
