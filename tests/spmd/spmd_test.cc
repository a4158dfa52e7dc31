// SPDX-License-Identifier: Apache-2.0
// Shardings may be anything: the values are those of the program on one device. What is not a
// partition's own is garbage on the way in and not looked at on the way out.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "backends/compiler/spmd/cut.h"
#include "backends/compiler/spmd/one_device.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/testing/random_sharding.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/spmd/boxes.h"

namespace hekla::spmd {
namespace {

using sharding::Box;
using sharding::HloSharding;

constexpr int32_t kGarbage = -77777;

std::string type_text(const Dims& dims) {
  std::string text = "tensor<";
  for (int64_t n : dims) text += fmt::format("{}x", n);
  return text + "i32>";
}

HostArray iota(const Dims& dims) {
  HostArray array(DType::kI32, dims);
  for (int64_t i = 0; i < element_count(dims); ++i) {
    array.mutable_as<int32_t>()[i] = static_cast<int32_t>(i);
  }
  return array;
}

HostArray part_of(const HostArray& whole, const Box& box, const Dims& local) {
  HostArray part(DType::kI32, local);
  std::fill_n(part.mutable_as<int32_t>(), element_count(local), kGarbage);
  for_each(box, local, whole.dims(), [&](int64_t at, int64_t in) {
    part.mutable_as<int32_t>()[at] = whole.as<int32_t>()[in];
  });
  return part;
}

struct Case {
  std::string text;  // one parameter and one result of `shape`
  Dims shape;
  Layout layout;
  std::function<int32_t(int32_t)> expected;  // of an element that the parameter holds
};

// Empty, or what is wrong.
std::string run(const Case& test) {
  auto module = stablehlo::read_program(test.text);
  if (!module.ok()) return module.status().to_string();
  Layout layout = test.layout;
  if (const Status status = to_one_device(**module, layout); !status.ok()) {
    return status.to_string();
  }
  if (const Status status = ir::verify(**module); !status.ok()) return status.to_string();
  const int64_t partitions = layout.partitions;
  const auto in = boxes_of(*layout.parameters[0], partitions, test.shape);
  const auto out = boxes_of(*layout.results[0], partitions, test.shape);
  const HostArray whole = iota(test.shape);
  std::vector<std::vector<HostArray>> arguments;
  for (int64_t device = 0; device < layout.replicas * partitions; ++device) {
    const Dims& local = (*module)->entry()->type.elements()[0].dims();
    arguments.push_back({part_of(whole, in[static_cast<size_t>(device % partitions)], local)});
  }
  const auto results =
      reference::evaluate_devices(**module, std::move(arguments), {layout.replicas, partitions});
  if (!results.ok()) return results.status().to_string();
  std::string wrong;
  for (size_t device = 0; device < results->size(); ++device) {
    const HostArray& part = (*results)[device][0];
    for_each(out[device % static_cast<size_t>(partitions)], part.dims(), test.shape,
             [&](int64_t at, int64_t i) {
               const int32_t given = part.as<int32_t>()[at];
               const int32_t expected = test.expected(whole.as<int32_t>()[i]);
               if (given != expected && wrong.empty()) {
                 wrong = fmt::format("device {}, element {}: {} and not {}", device, i, given,
                                     expected);
               }
             });
  }
  return wrong;
}

std::string function(const Dims& shape, const std::string& body) {
  return fmt::format("func.func public @main(%a: {0}) -> {0} {{\n{1}\n  return %r : {0}\n}}",
                     type_text(shape), body);
}

// The same blocks in another order of devices, four of them twice: nobody gathers.
TEST(Spmd, AnotherOrderOfDevicesIsAPermutation) {
  Case test;
  test.shape = {4, 5};
  test.layout.partitions = 8;
  test.layout.parameters = {
      *sharding::parse_hlo_sharding("{devices=[2,2,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}")};
  test.layout.results = {
      *sharding::parse_hlo_sharding("{devices=[2,2,2]7,0,1,3,2,6,5,4 last_tile_dim_replicate}")};
  test.text = fmt::format("func.func public @main(%a: {0}) -> {0} {{ return %a : {0} }}",
                          type_text(test.shape));
  test.expected = [](int32_t x) { return x; };
  EXPECT_EQ(run(test), "");
  auto module = stablehlo::read_program(test.text);
  ASSERT_TRUE(module.ok());
  Layout layout = test.layout;
  ASSERT_TRUE(to_one_device(**module, layout).ok());
  std::map<ir::OpCode, int> collectives;
  ir::walk((*module)->entry()->body(), [&](const ir::Operation& op) {
    if (ir::is_collective(op.code())) ++collectives[op.code()];
  });
  EXPECT_EQ(collectives, (std::map<ir::OpCode, int>{{ir::OpCode::kCollectivePermute, 1}}));
}

TEST(Spmd, AnyShardingBecomesAnyOther) {
  std::mt19937_64 random(7);
  const auto sample = [&](int64_t partitions) {
    for (;;) {
      auto drawn = sharding::testing::random_sample(random, /*with_sub_axes=*/true,
                                                    /*with_manual=*/false);
      drawn.sharding.unreduced.clear();
      const int64_t count = device_count(drawn.mesh);
      if (partitions == 0 ? count >= 2 && count <= 12 : count == partitions) return drawn;
    }
  };
  int cut = 0, uneven = 0;
  for (int i = 0; i < 150; ++i) {
    const auto from = sample(0);
    const int64_t partitions = device_count(from.mesh);
    auto to = sample(partitions);
    while (to.shape.size() != from.shape.size()) to = sample(partitions);
    Case test;
    test.shape = from.shape;
    test.layout.partitions = partitions;
    test.layout.replicas = i % 10 == 0 ? 2 : 1;
    const auto hlo_from = to_hlo(from.sharding, from.mesh, from.shape.size());
    const auto hlo_to = to_hlo(to.sharding, to.mesh, to.shape.size());
    ASSERT_TRUE(hlo_from.ok() && hlo_to.ok());
    test.layout.parameters = {*hlo_from};
    test.layout.results = {*hlo_to};
    const std::string type = type_text(test.shape);
    test.text =
        function(test.shape, fmt::format("  %n = stablehlo.negate %a : {0}\n"
                                         "  %o = stablehlo.constant dense<3> : tensor<i32>\n"
                                         "  %b = stablehlo.broadcast_in_dim %o, dims = [] : "
                                         "(tensor<i32>) -> {0}\n"
                                         "  %r = stablehlo.add %n, %b : {0}",
                                         type));
    test.expected = [](int32_t x) { return 3 - x; };
    const auto parts = cut_of(*hlo_from, partitions, test.shape.size(), "a");
    ASSERT_TRUE(parts.ok()) << parts.status().to_string();
    cut += !parts->is_whole();
    uneven += !parts->is_even(test.shape);
    EXPECT_EQ(run(test), "") << "case " << i << ", " << type << ": " << to_text(*hlo_from) << " to "
                             << to_text(*hlo_to) << ", " << partitions << " partitions";
  }
  EXPECT_GT(cut, 50);
  EXPECT_GT(uneven, 20);
}

std::unique_ptr<ir::Module> read(const std::string& text) {
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  return *std::move(module);
}

int count(const ir::Module& module, ir::OpCode code) {
  int found = 0;
  ir::walk(module.entry()->body(), [&](const ir::Operation& op) { found += op.code() == code; });
  return found;
}

TEST(Spmd, ElementwiseOperationsOnEqualPartsMoveNothing) {
  const auto module = read(function({8, 3}, R"(  %b = stablehlo.multiply %a, %a : tensor<8x3xi32>
  %c = stablehlo.constant dense<2> : tensor<8x3xi32>
  %r = stablehlo.add %b, %c : tensor<8x3xi32>)"));
  Layout layout;
  layout.partitions = 4;
  layout.parameters = {tiles("{devices=[4,1]<=[4]}")};
  layout.results.resize(1);
  ASSERT_TRUE(to_one_device(*module, layout).ok());
  EXPECT_EQ(count(*module, ir::OpCode::kAllGather), 0);
  EXPECT_EQ(to_text(*layout.results[0]), "{devices=[4,1]<=[4]}");
  EXPECT_EQ(module->entry()->type.to_string(), "(tensor<2x3xi32>) -> tensor<2x3xi32>");
}

TEST(Spmd, WhatIsLeftOpenIsCutEvenlyOrNotAtAll) {
  Layout layout;
  layout.partitions = 4;
  layout.parameters = {tiles("{devices=[4]<=[4]}")};
  layout.results.resize(1);
  const auto module = read(function({7}, "  %r = stablehlo.negate %a : tensor<7xi32>"));
  ASSERT_TRUE(to_one_device(*module, layout).ok());
  EXPECT_EQ(to_text(*layout.results[0]), "{replicated}");
  EXPECT_EQ(module->entry()->type.to_string(), "(tensor<2xi32>) -> tensor<7xi32>");
}

// The parameter comes as the manual computation wants it, its result goes as it is.
constexpr char kManual[] = R"(module {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%a: tensor<8x4xi32> {jax.buffer_donor = true}) -> tensor<8x4xi32> {
    %r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {"y"}]>]
        out_shardings=[<@mesh, [{"x"}, {"y"}]>] manual_axes={"x", "y"} (%b: tensor<4x2xi32>) {
      %c = stablehlo.negate %b : tensor<4x2xi32>
      sdy.return %c : tensor<4x2xi32>
    } : (tensor<8x4xi32>) -> tensor<8x4xi32>
    return %r : tensor<8x4xi32>
  }
})";

TEST(Spmd, OpenEndsOfManualComputationsAreCutAsTheyAre) {
  const auto module = read(kManual);
  Layout layout;
  layout.partitions = 4;
  layout.parameters.resize(1);
  layout.results.resize(1);
  ASSERT_TRUE(to_one_device(*module, layout).ok());
  EXPECT_EQ(count(*module, ir::OpCode::kAllGather), 0);
  EXPECT_EQ(count(*module, ir::OpCode::kDynamicSlice), 0);
  EXPECT_EQ(count(*module, ir::OpCode::kSdyManualComputation), 0);
  EXPECT_EQ(to_text(*layout.parameters[0]), "{devices=[2,2]<=[4]}");
  EXPECT_EQ(to_text(*layout.results[0]), "{devices=[2,2]<=[4]}");
  // Otherwise they are moved, and the values are the same.
  for (const char* other : {"{replicated}", "{devices=[4,1]<=[2,2]T(1,0)}"}) {
    Case test;
    test.text = kManual;
    test.shape = {8, 4};
    test.layout.partitions = 4;
    test.layout.parameters = {tiles(other)};
    test.layout.results = {tiles(other)};
    test.expected = [](int32_t x) { return -x; };
    EXPECT_EQ(run(test), "") << other;
  }
}

TEST(Spmd, ResultsThatAreLeftOpenAreCutAsTheirConstraintsSay) {
  for (const char* constraint :
       {"sdy.sharding_constraint %b <@mesh, [{\"x\", ?}, {}]> : tensor<8x4xi32>",
        "stablehlo.custom_call @Sharding(%b) {mhlo.sharding = \"{devices=[2,1]<=[2]}\"} : "
        "(tensor<8x4xi32>) -> tensor<8x4xi32>"}) {
    for (const bool is_called : {false, true}) {
      const std::string name = is_called ? "private @inner" : "public @main";
      std::string text = fmt::format(R"(module {{
  sdy.mesh @mesh = <["x"=2]>
  func.func {}(%a: tensor<8x4xi32>) -> tensor<8x4xi32> {{
    %b = stablehlo.reverse %a, dims = [0] : tensor<8x4xi32>
    %c = {}
    %d = stablehlo.negate %c : tensor<8x4xi32>
    return %d : tensor<8x4xi32>
  }}
)",
                                     name, constraint);
      if (is_called) {
        text += R"(  func.func public @main(%a: tensor<8x4xi32>) -> tensor<8x4xi32> {
    %b = func.call @inner(%a) : (tensor<8x4xi32>) -> tensor<8x4xi32>
    return %b : tensor<8x4xi32>
  }
)";
      }
      const auto module = read(text + "}");
      Layout layout;
      layout.partitions = 2;
      layout.parameters.resize(1);
      layout.results.resize(1);
      ASSERT_TRUE(to_one_device(*module, layout).ok()) << text;
      EXPECT_EQ(to_text(*layout.parameters[0]), "{devices=[2,1]<=[2]}");
      EXPECT_EQ(to_text(*layout.results[0]), "{devices=[2,1]<=[2]}") << text;
      EXPECT_EQ(count(*module, ir::OpCode::kCustomCall), 0);
      EXPECT_EQ(count(*module, ir::OpCode::kAllGather), 0);
    }
  }
}

TEST(Spmd, ConstraintsInRegionsSayNothingOutside) {
  Case test;
  test.text = R"(module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: tensor<8xi32>) -> tensor<8xi32> {
    %t = stablehlo.constant dense<true> : tensor<i1>
    %n = "stablehlo.if"(%t) ({
      %c = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<8xi32>
      %d = stablehlo.negate %c : tensor<8xi32>
      stablehlo.return %d : tensor<8xi32>
    }, {
      stablehlo.return %a : tensor<8xi32>
    }) : (tensor<i1>) -> tensor<8xi32>
    %b = stablehlo.add %a, %a : tensor<8xi32>
    %r = stablehlo.subtract %b, %n : tensor<8xi32>
    return %r : tensor<8xi32>
  }
})";
  test.shape = {8};
  test.layout.partitions = 2;
  test.layout.parameters = {HloSharding()};
  test.layout.results = {tiles("{devices=[2]<=[2]}")};
  test.expected = [](int32_t x) { return 3 * x; };
  EXPECT_EQ(run(test), "");
}

// Sums of parts that are added to each other are summed over partitions once.
TEST(Spmd, SumsOfSumsAreSummedOnce) {
  Case test;
  constexpr const char* kSum = R"(
  %{} = stablehlo.reduce({} init: %z) applies stablehlo.add across dimensions = [1] :
      (tensor<8x8xi32>, tensor<i32>) -> tensor<8xi32>)";
  test.text =
      function({8, 8}, fmt::format(R"(  %z = stablehlo.constant dense<5> : tensor<i32>
  %b = stablehlo.multiply %a, %a : tensor<8x8xi32>{}{}
  %n = stablehlo.negate %t : tensor<8xi32>
  %u = stablehlo.subtract %s, %n : tensor<8xi32>
  %v = stablehlo.multiply %u, %u : tensor<8xi32>
  %r = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<8xi32>) -> tensor<8x8xi32>)",
                                   fmt::format(kSum, "s", "%a"), fmt::format(kSum, "t", "%b")));
  test.shape = {8, 8};
  test.layout.partitions = 4;
  test.layout.parameters = {tiles("{devices=[1,4]<=[4]}")};
  test.expected = [](int32_t x) {
    int32_t sum = 10;
    for (int32_t i = x / 8 * 8; i < x / 8 * 8 + 8; ++i) sum += i + i * i;
    return sum * sum;
  };
  for (const auto& [result, reduces, scatters] :
       {std::tuple("{replicated}", 1, 0), std::tuple("{devices=[4,1]<=[4]}", 0, 1)}) {
    test.layout.results = {tiles(result)};
    EXPECT_EQ(run(test), "") << result;
    const auto module = read(test.text);
    Layout layout = test.layout;
    ASSERT_TRUE(to_one_device(*module, layout).ok());
    EXPECT_EQ(count(*module, ir::OpCode::kAllReduce), reduces) << result;
    EXPECT_EQ(count(*module, ir::OpCode::kReduceScatter), scatters) << result;
  }
}

int count_collectives(const ir::Module& module) {
  int found = 0;
  ir::walk(module.entry()->body(),
           [&](const ir::Operation& op) { found += ir::is_collective(op.code()); });
  return found;
}

// Two constraints want what is made of one array in other parts: the array moves, once.
TEST(Spmd, WhatIsMadeOfOneArrayIsComputedOnceMoreWhereThatMovesLess) {
  constexpr char kOther[] = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}";
  const auto constraint = [&](char to, char from) {
    return fmt::format(
        "  %{} = stablehlo.custom_call @Sharding(%{}) {{mhlo.sharding = \"{}\"}} : "
        "(tensor<16x6xi32>) -> tensor<16x6xi32>\n",
        to, from, kOther);
  };
  Case test;
  test.shape = {16, 6};
  test.text = function({16, 6},
                       "  %b = stablehlo.negate %a : tensor<16x6xi32>\n" + constraint('p', 'b') +
                           "  %t = stablehlo.reshape %a : (tensor<16x6xi32>) -> "
                           "tensor<8x2x6xi32>\n"
                           "  %m = stablehlo.multiply %t, %t : tensor<8x2x6xi32>\n"
                           "  %c = stablehlo.reshape %m : (tensor<8x2x6xi32>) -> "
                           "tensor<16x6xi32>\n" +
                           constraint('q', 'c') + "  %r = stablehlo.add %p, %q : tensor<16x6xi32>");
  test.layout.partitions = 8;
  test.layout.parameters = {tiles("{devices=[8,1]<=[8]}")};
  test.layout.results = {tiles(kOther)};
  test.expected = [](int32_t x) { return x * x - x; };
  std::map<bool, int> collectives;
  for (const bool recompute : {false, true}) {
    test.layout.schedule.recompute = recompute;
    EXPECT_EQ(run(test), "") << recompute;
    const auto module = read(test.text);
    Layout layout = test.layout;
    ASSERT_TRUE(to_one_device(*module, layout).ok());
    collectives[recompute] = count_collectives(*module);
    EXPECT_EQ(layout.counts.recomputed > 0, recompute);
  }
  EXPECT_GT(collectives[true], 0);
  EXPECT_EQ(collectives[false], 2 * collectives[true]);
}

// A part without elements of the result looks at nothing.
TEST(Spmd, NothingIsSentForWhatFillsUpBlocks) {
  const auto module = read(
      "func.func public @main(%a: tensor<8x3xi32>) -> tensor<1x3xi32> {\n"
      "  %r = stablehlo.slice %a [1:2, 0:3] : (tensor<8x3xi32>) -> tensor<1x3xi32>\n"
      "  return %r : tensor<1x3xi32>\n}");
  Layout layout;
  layout.partitions = 4;
  layout.parameters = layout.results = {tiles("{devices=[4,1]<=[4]}")};
  ASSERT_TRUE(to_one_device(*module, layout).ok());
  EXPECT_EQ(count_collectives(*module), 0);
}

// What must be whole is cut elsewhere meanwhile, if that moves less than gathering does.
TEST(Spmd, SortsAndTransformsOfCutDimensionsMoveThemToOthers) {
  Case test;
  test.text = function({8, 8}, R"(  %r = "stablehlo.sort"(%a) ({
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %c = stablehlo.compare GT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }) {dimension = 0 : i64, is_stable = true} : (tensor<8x8xi32>) -> tensor<8x8xi32>)");
  test.shape = {8, 8};
  test.layout.partitions = 4;
  test.layout.parameters = test.layout.results = {tiles("{devices=[4,1]<=[4]}")};
  test.expected = [](int32_t x) { return 56 - x + 2 * (x % 8); };
  EXPECT_EQ(run(test), "");
  const auto sort = read(test.text);
  ASSERT_TRUE(to_one_device(*sort, test.layout).ok());
  EXPECT_EQ(count(*sort, ir::OpCode::kAllToAll), 2);
  EXPECT_EQ(count(*sort, ir::OpCode::kAllGather), 0);
  // Nowhere to move to.
  for (const auto& [shape, moves, gathers] : {std::tuple("8x8x3", 2, 0), std::tuple("3x8", 0, 1)}) {
    const std::string type = fmt::format("tensor<{}xcomplex<f32>>", shape);
    const auto transform = read(fmt::format(
        "func.func public @main(%a: {0}) -> {0} {{\n"
        "  %r = \"stablehlo.fft\"(%a) {{fft_type = #stablehlo<fft_type FFT>, fft_length = "
        "array<i64: {1}>}} : ({0}) -> {0}\n  return %r : {0}\n}}",
        type, moves > 0 ? "8, 3" : "8"));
    Layout layout;
    layout.partitions = 4;
    layout.parameters =
        layout.results = {tiles(moves > 0 ? "{devices=[1,4,1]<=[4]}" : "{devices=[1,4]<=[4]}")};
    ASSERT_TRUE(to_one_device(*transform, layout).ok());
    EXPECT_EQ(count(*transform, ir::OpCode::kAllToAll), moves) << shape;
    EXPECT_EQ(count(*transform, ir::OpCode::kAllGather), gathers) << shape;
  }
}

// Dimensions that a reshape tears apart correspond to nothing.
TEST(Spmd, ReshapesOfCutDimensionsThatHaveNoCounterpartAreWhole) {
  for (const char* cut : {"{devices=[1,1,2]<=[2]}", "{devices=[1,7,1]<=[7]}",
                          "{devices=[16,1,1]<=[16]}", "{devices=[4,1,2]<=[8]}", "{replicated}"}) {
    Case test;
    test.text =
        function({16, 7, 16},
                 "  %b = stablehlo.reshape %a : (tensor<16x7x16xi32>) -> tensor<4x8x56xi32>\n"
                 "  %c = stablehlo.negate %b : tensor<4x8x56xi32>\n"
                 "  %r = stablehlo.reshape %c : (tensor<4x8x56xi32>) -> tensor<16x7x16xi32>");
    test.shape = {16, 7, 16};
    test.layout.parameters = test.layout.results = {tiles(cut)};
    test.layout.partitions =
        std::max<int64_t>(2, element_count(test.layout.parameters[0]->tile_dims));
    test.expected = [](int32_t x) { return -x; };
    EXPECT_EQ(run(test), "") << cut;
  }
}

// The array is the sum of what devices hold, on the way in and on the way out.
TEST(Spmd, PartialSumsAreSummedAndMade) {
  for (const char* text : {"{unreduced}", "{devices=[1,4]<=[4] last_tile_dims={unreduced}}",
                           "{devices=[2,2]<=[2,2]T(1,0) last_tile_dims={unreduced}}"}) {
    const HloSharding summed = tiles(text);
    const bool is_cut = summed.kind == HloSharding::Kind::kTiled && summed.tile_dims[0] == 2;
    const auto module = read(function({6}, "  %r = stablehlo.multiply %a, %a : tensor<6xi32>"));
    Layout layout;
    layout.partitions = 4;
    layout.parameters = {summed};
    layout.results = {summed};
    ASSERT_TRUE(to_one_device(*module, layout).ok()) << text;
    EXPECT_EQ(count(*module, ir::OpCode::kAllReduce), 1) << text;
    // Element i is 10 * i in all, unlike addends; partition p holds half p % 2 where it is cut.
    const int64_t size = is_cut ? 3 : 6;
    const int addends = is_cut ? 2 : 4;
    std::vector<std::vector<HostArray>> arguments;
    for (int p = 0; p < 4; ++p) {
      HostArray part(DType::kI32, {size});
      for (int64_t i = 0; i < size; ++i) {
        const int64_t global = is_cut ? p % 2 * 3 + i : i;
        const int addend = is_cut ? p / 2 : p;
        part.mutable_as<int32_t>()[i] = static_cast<int32_t>(
            addend + 1 < addends ? addend + 1 : 10 * global - addends * (addends - 1) / 2);
      }
      arguments.push_back({part});
    }
    const auto results = reference::evaluate_devices(*module, std::move(arguments), {1, 4});
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    std::vector<int32_t> sums(6);
    for (int p = 0; p < 4; ++p) {
      for (int64_t i = 0; i < size; ++i) {
        sums[static_cast<size_t>(is_cut ? p % 2 * 3 + i : i)] +=
            (*results)[static_cast<size_t>(p)][0].as<int32_t>()[i];
      }
    }
    EXPECT_EQ(sums, (std::vector<int32_t>{0, 100, 400, 900, 1600, 2500})) << text;
  }
}

TEST(Spmd, DonatedMemoryGoesToTheResultOnlyIfItsPartsFit) {
  for (const char* result : {"{devices=[2]<=[2]}", "{replicated}"}) {
    const auto module = read(R"(module {
  func.func public @main(%a: tensor<8xi32> {tf.aliasing_output = 0 : i32}) -> tensor<8xi32> {
    %r = stablehlo.negate %a : tensor<8xi32>
    return %r : tensor<8xi32>
  }
})");
    Layout layout;
    layout.partitions = 2;
    layout.parameters = {tiles("{devices=[2]<=[2]}")};
    layout.results = {tiles(result)};
    ASSERT_TRUE(to_one_device(*module, layout).ok());
    const ir::AttributeMap& attributes = module->entry()->argument_attributes[0];
    const bool is_equal = layout.results[0]->kind == HloSharding::Kind::kTiled;
    EXPECT_EQ(attributes.get("tf.aliasing_output").is_absent(), !is_equal);
    EXPECT_EQ(attributes.get("jax.buffer_donor").is_absent(), is_equal);
  }
}

TEST(Spmd, WhatIsNotThereIsRefusedInWords) {
  const std::pair<const char*, const char*> refused[] = {
      {"{maximal device=0}", "arrays on one partition alone"},
      {"{manual}", "says nothing outside"},
  };
  for (const auto& [text, why] : refused) {
    for (const bool is_result : {false, true}) {
      const auto module = read(function({8}, "  %r = stablehlo.negate %a : tensor<8xi32>"));
      Layout layout;
      layout.partitions = 4;
      layout.parameters.resize(1);
      layout.results.resize(1);
      (is_result ? layout.results : layout.parameters)[0] = tiles(text);
      const Status status = to_one_device(*module, layout);
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << text;
      EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
      EXPECT_NE(status.message().find(is_result ? "result 0" : "parameter 0"), std::string::npos);
    }
  }
  const auto border = read(R"(module {
  func.func public @main(%a: tensor<8xi32>) -> tensor<4xi32> {
    %r = stablehlo.custom_call @SPMDFullToShardShape(%a) : (tensor<8xi32>) -> tensor<4xi32>
    return %r : tensor<4xi32>
  }
})");
  Layout two;
  two.partitions = 2;
  two.parameters.resize(1);
  two.results.resize(1);
  EXPECT_NE(to_one_device(*border, two).message().find("no sharding that says how it is cut"),
            std::string::npos);
  // Another number of partitions, another number of dimensions.
  for (const char* text : {"{devices=[2]<=[2]}", "{devices=[2,2]<=[4]}"}) {
    const auto module = read(function({8}, "  %r = stablehlo.negate %a : tensor<8xi32>"));
    Layout layout;
    layout.partitions = 4;
    layout.parameters = {tiles(text)};
    layout.results.resize(1);
    EXPECT_EQ(to_one_device(*module, layout).code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace hekla::spmd
