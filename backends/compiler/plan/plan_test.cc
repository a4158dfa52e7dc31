// SPDX-License-Identifier: Apache-2.0
// What the planner promises, on graphs of a few lines: which operations share a kernel, which
// temporaries share bytes, who takes the memory of a donated argument. Numbers are the business of
// tests/compiler.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/compiler/plan/cut.h"
#include "backends/compiler/plan/planner.h"
#include "backends/compiler/plan/testing/plan_of_text.h"
#include "backends/compiler/plan/visit.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::plan {
namespace {

using Names = std::vector<std::string>;
using Space = Slice::Space;

// f32 [64,128], and a sum over dimension 0 or 1 of such a value.
constexpr char kT[] = "tensor<64x128xf32>";

std::string op(const std::string& result, const std::string& name, const std::string& operands) {
  return "  %" + result + " = stablehlo." + name + " " + operands + " : " + kT + "\n";
}

std::string sum(const std::string& result, const std::string& operand, int dimension) {
  return "  %" + result + "_0 = stablehlo.constant dense<0.0> : tensor<f32>\n  %" + result +
         " = stablehlo.reduce(%" + operand + " init: %" + result +
         "_0) applies stablehlo.add across dimensions = [" + std::to_string(dimension) + "] : (" +
         kT + ", tensor<f32>) -> tensor<" + (dimension == 0 ? "128" : "64") + "xf32>\n";
}

std::string function(const std::string& arguments, const std::string& body,
                     const std::string& results, const std::string& types) {
  return "func.func @main(" + arguments + ") -> (" + types + ") {\n" + body + "  return " +
         results + " : " + types + "\n}\n";
}

std::string x_and(const std::string& more = "") {
  return std::string("%x: ") + kT + (more.empty() ? "" : ", ") + more;
}

// Names of the kernels that run, in order, those in loops and row groups too.
Names kernels_of(const LaunchPlan& plan) {
  Names names;
  for_each_step(plan.steps, [&](const Step& step) {
    if (const auto* run = std::get_if<KernelStep>(&step.what)) {
      names.push_back(plan.kernels[static_cast<size_t>(run->kernel)].name);
    }
  });
  return names;
}

template <typename What>
int count_steps(const Steps& steps) {
  int count = 0;
  for (const Step& step : steps) count += std::holds_alternative<What>(step.what) ? 1 : 0;
  return count;
}

const KernelStep& kernel_step(const LaunchPlan& plan, size_t at) {
  return std::get<KernelStep>(plan.steps.at(at).what);
}

// ---- fusion

TEST(Fusion, ElementwiseChainsAreOneKernelWithoutTemporaries) {
  const LaunchPlan plan = plan_of_text(function(
      x_and("%y: tensor<64x128xf32>"),
      op("a", "add", "%x, %y") + op("b", "tanh", "%a") + op("c", "multiply", "%b, %x"), "%c", kT));
  EXPECT_EQ(kernels_of(plan), (Names{"multiply"}));
  EXPECT_EQ(plan.arena_bytes(), 0);
  // %x is read once, however often it is used.
  EXPECT_EQ(kernel_step(plan, 0).operands.size(), 3u);
}

TEST(Fusion, SwitchedOffEveryOperationStoresItsResult) {
  PlanOptions options;
  options.fuse = false;
  const LaunchPlan plan = plan_of_text(
      function(x_and(), op("a", "negate", "%x") + op("b", "tanh", "%a"), "%b", kT), options);
  EXPECT_EQ(kernels_of(plan), (Names{"negate", "tanh"}));
  EXPECT_EQ(plan.arena_bytes(), 64 * 128 * 4);
}

TEST(Fusion, ResultsOverTheSameElementsAreOneKernel) {
  const LaunchPlan plan =
      plan_of_text(function(x_and(), op("a", "sine", "%x") + op("b", "cosine", "%x"), "%a, %b",
                            std::string(kT) + ", " + kT));
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(kernel_step(plan, 0).operands.size(), 3u);  // one is read, two are written
}

TEST(Fusion, AReductionComputesWhatItAloneReads) {
  const LaunchPlan plan = plan_of_text(
      function(x_and(), op("a", "tanh", "%x") + sum("r", "a", 1), "%r", "tensor<64xf32>"));
  EXPECT_EQ(kernels_of(plan), (Names{"reduce"}));
  EXPECT_EQ(plan.arena_bytes(), 0);
}

TEST(Fusion, AnExpensiveValueOfTwoReadersIsStoredOnce) {
  const LaunchPlan plan =
      plan_of_text(function(x_and(), op("a", "tanh", "%x") + sum("r", "a", 1) + sum("s", "a", 0),
                            "%r, %s", "tensor<64xf32>, tensor<128xf32>"));
  EXPECT_EQ(kernels_of(plan), (Names{"tanh", "reduce", "reduce"}));
  EXPECT_EQ(plan.arena_bytes(), 64 * 128 * 4);
}

TEST(Fusion, ACheapValueIsComputedAgainByEachReader) {
  const LaunchPlan plan =
      plan_of_text(function(x_and(), op("a", "negate", "%x") + sum("r", "a", 1) + sum("s", "a", 0),
                            "%r, %s", "tensor<64xf32>, tensor<128xf32>"));
  EXPECT_EQ(kernels_of(plan), (Names{"reduce", "reduce"}));
  EXPECT_EQ(plan.arena_bytes(), 0);
}

// Each of 64 numbers would be computed 128 times; the broadcast itself costs nothing.
TEST(Fusion, AnExpensiveValueIsNotRepeatedByABroadcast) {
  const auto with = [&](const std::string& before, const std::string& broadcast) {
    return plan_of_text(function("%x: tensor<64xf32>, %y: tensor<64x128xf32>",
                                 before + "  %b = stablehlo.broadcast_in_dim " + broadcast +
                                     ", dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>\n" +
                                     op("c", "add", "%b, %y"),
                                 "%c", kT));
  };
  EXPECT_EQ(kernels_of(with("", "%x")), (Names{"add"}));
  EXPECT_EQ(kernels_of(with("  %a = stablehlo.tanh %x : tensor<64xf32>\n", "%a")),
            (Names{"tanh", "add"}));
}

TEST(Fusion, MovementIsPartOfTheKernelThatReadsIt) {
  const LaunchPlan plan = plan_of_text(
      function(x_and(),
               "  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<64x128xf32>) -> "
               "tensor<128x64xf32>\n  %a = stablehlo.negate %t : tensor<128x64xf32>\n",
               "%a", "tensor<128x64xf32>"));
  EXPECT_EQ(kernels_of(plan), (Names{"negate"}));
}

constexpr char kDot[] =
    " = stablehlo.dot_general %l, %w, contracting_dims = [1] x [0] : (tensor<64x128xf32>, "
    "tensor<128x32xf32>) -> tensor<64x32xf32>\n";

TEST(Fusion, SaysHowSortsAndScansAreDone) {
  const auto decided = [](const std::string& operations, const std::string& result) {
    return decisions_string(
        plan_of_text("module { func.func public @main(%x: tensor<3x5000xf32>) -> " + result +
                     " {\n" + operations + " return %r : " + result + "\n } }")
            .decisions);
  };
  const std::string compare =
      "({\n ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n %c = stablehlo.compare LT, %a, %b : "
      "(tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %c : tensor<i1>\n }) ";
  const auto sorted = [&](const char* name) {
    return " %" + std::string(name) + " = \"stablehlo.sort\"(%x) " + compare +
           "{dimension = 1 : i64} : (tensor<3x5000xf32>) -> tensor<3x5000xf32>\n";
  };
  EXPECT_NE(
      decided(sorted("r"), "tensor<3x5000xf32>")
          .find("first elements of parts, then merges: 5000 elements of a line are wanted, "
                "more than 16\n  digits of keys, by teams of points: the device has no memory of "
                "teams\n  sorted blocks, then merges: taken"),
      std::string::npos);
  EXPECT_NE(decided(sorted("s") + " %r = stablehlo.slice %s [0:3, 0:4] : (tensor<3x5000xf32>) -> "
                                  "tensor<3x4xf32>\n",
                    "tensor<3x4xf32>")
                .find("first elements of parts, then merges: taken"),
            std::string::npos);
  const auto summed = [&](int64_t window) {
    const std::string w = std::to_string(window), low = std::to_string(window - 1);
    return decided(
        " %z = stablehlo.constant dense<0.0> : tensor<f32>\n %r = "
        "\"stablehlo.reduce_window\"(%x, %z) ({\n ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n %c = "
        "stablehlo.add %a, %b : tensor<f32>\n stablehlo.return %c : tensor<f32>\n }) "
        "{window_dimensions = array<i64: 1, " +
            w + ">, padding = dense<[[0, 0], [" + low +
            ", 0]]> : tensor<2x2xi64>} : (tensor<3x5000xf32>, tensor<f32>) -> tensor<3x5000xf32>\n",
        "tensor<3x5000xf32>");
  };
  EXPECT_NE(summed(5000).find("blocks of lines: taken"), std::string::npos) << summed(5000);
  EXPECT_NE(summed(3).find("blocks of lines: windows of 3 elements, not more than"),
            std::string::npos)
      << summed(3);
}

// The ways to do a scatter, each with its reason: limits and values.
TEST(Fusion, SaysHowAScatterIsDone) {
  const auto decided = [](const char* updates, bool in_order) {
    DeviceTraits traits;
    traits.scatters_in_order = in_order;
    const std::string u = std::string(updates) + "x", x = "tensor<1000xf32>";
    return decisions_string(
        plan_of_text("module { func.func public @main(%x: " + x + ", %i: tensor<" + u +
                         "1xi32>, %u: tensor<" + u + "f32>) -> " + x +
                         " {\n %r = \"stablehlo.scatter\"(%x, %i, %u) ({\n ^bb0(%a: "
                         "tensor<f32>, %b: tensor<f32>):\n %s = stablehlo.add %a, %b : "
                         "tensor<f32>\n stablehlo.return %s : tensor<f32>\n }) "
                         "{scatter_dimension_numbers = "
                         "#stablehlo.scatter<inserted_window_dims = [0], "
                         "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : "
                         "(" +
                         x + ", tensor<" + u + "1xi32>, tensor<" + u + "f32>) -> " + x +
                         "\n return %r : " + x + "\n } }",
                     {}, traits)
            .decisions);
  };
  EXPECT_NE(decided("5000", true).find("updates in order: taken"), std::string::npos)
      << decided("5000", true);
  EXPECT_NE(decided("5000", false)
                .find("updates in order: the device sorts updates\n"
                      "  updates sorted by place: taken"),
            std::string::npos)
      << decided("5000", false);
  EXPECT_NE(decided("7", false)
                .find("updates sorted by place: 1000 elements that look through 7 "
                      "updates, in all no more than 131072\n"
                      "  each element looks through the updates: taken"),
            std::string::npos)
      << decided("7", false);
}

TEST(Fusion, AContractionTakesItsEpilogueButNoPrologue) {
  const std::string after = "  %l = stablehlo.negate %x : tensor<64x128xf32>\n  %p" +
                            std::string(kDot) + "  %r = stablehlo.tanh %p : tensor<64x32xf32>\n";
  const LaunchPlan plan =
      plan_of_text(function(x_and("%w: tensor<128x32xf32>"), after, "%r", "tensor<64x32xf32>"));
  const Names names = kernels_of(plan);
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "tanh");  // with the sums in it
  EXPECT_LE(names.size(), 2u);
  // Expensive operands would be computed for each column.
  const std::string before =
      "  %l = stablehlo.tanh %x : tensor<64x128xf32>\n  %r" + std::string(kDot);
  EXPECT_EQ(kernels_of(plan_of_text(
                function(x_and("%w: tensor<128x32xf32>"), before, "%r", "tensor<64x32xf32>"))),
            (Names{"tanh", "dot_general"}));
}

TEST(Fusion, ContractionsStandAloneWhereTheBackEndHasCodeForThem) {
  DeviceTraits traits;
  traits.has_contractions = true;
  const std::string body = "  %l = stablehlo.tanh %x : tensor<64x128xf32>\n  %p" +
                           std::string(kDot) + "  %r = stablehlo.tanh %p : tensor<64x32xf32>\n";
  const LaunchPlan plan = plan_of_text(
      function(x_and("%w: tensor<128x32xf32>"), body, "%r", "tensor<64x32xf32>"), {}, traits);
  EXPECT_EQ(count_steps<ContractionStep>(plan.steps), 1);
  EXPECT_EQ(kernels_of(plan), (Names{"tanh", "tanh"}));
}

TEST(Fusion, NothingIsComputedThatNobodyReads) {
  const LaunchPlan plan =
      plan_of_text(function(x_and(), op("a", "tanh", "%x") + op("b", "negate", "%x"), "%b", kT));
  EXPECT_EQ(kernels_of(plan), (Names{"negate"}));
}

// ---- memory

// Four values, each stored because the next one's transpose is a kernel that reads it all over.
LaunchPlan plan_of_stages(const PlanOptions& options, const DeviceTraits& traits = {}) {
  std::string body, last = "x";
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    body += "  %t" + n + " = stablehlo.transpose %" + last +
            ", dims = [1, 0] : (tensor<64x64xf32>)" + " -> tensor<64x64xf32>\n  %s" + n +
            " = stablehlo.dot_general %t" + n + ", %" + last +
            ", contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> " +
            "tensor<64x64xf32>\n";
    last = "s" + n;
  }
  return plan_of_text(function("%x: tensor<64x64xf32>", body, "%" + last, "tensor<64x64xf32>"),
                      options, traits);
}

LaunchPlan plan_of_stages(bool reuse) {
  PlanOptions options;
  options.reuse_memory = reuse;
  return plan_of_stages(options);
}

TEST(Memory, TemporariesThatAreNeverAliveTogetherShareBytes) {
  constexpr int64_t kBytes = 64 * 64 * 4;
  const LaunchPlan with = plan_of_stages(true), without = plan_of_stages(false);
  // Three products in between: the second is made while the first is alive, the third is not.
  EXPECT_EQ(with.arena_bytes(), 2 * kBytes);
  EXPECT_EQ(without.arena_bytes(), 3 * kBytes);
}

TEST(Memory, TemporariesAreInSeveralArenasWhereTheDeviceHasNoSuchPieceOfMemory) {
  constexpr int64_t kBytes = 64 * 64 * 4;
  const auto arenas = [](int64_t option, int64_t device) {
    PlanOptions options;
    options.arena_limit_bytes = option;
    DeviceTraits traits;
    traits.max_arena_bytes = device;
    return plan_of_stages(options, traits).arenas;
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(arenas(0, 2 * kBytes), (Sizes{2 * kBytes}));
  EXPECT_EQ(arenas(0, 2 * kBytes - 1), (Sizes{kBytes, kBytes}));
  EXPECT_EQ(arenas(kBytes, 0), (Sizes{kBytes, kBytes}));
  EXPECT_EQ(arenas(kBytes, 2 * kBytes), (Sizes{kBytes, kBytes}));
  EXPECT_EQ(arenas(2 * kBytes, kBytes), (Sizes{kBytes, kBytes}));
  EXPECT_EQ(arenas(1, 1), (Sizes{kBytes, kBytes}));
}

TEST(Memory, WhatFitsIntoNoBufferIsRefusedByName) {
  const auto planned = [](const std::string& text, int64_t most) {
    DeviceTraits traits;
    traits.max_buffer_bytes = most;
    auto module = stablehlo::read_program(text);
    if (!module.ok()) die_of_bad_result(module.status());
    return make_plan(**module, {}, traits).status();
  };
  constexpr int64_t kBytes = 64 * 128 * 4;
  const std::string text =
      function("%x: tensor<64x1xf32>, %y: tensor<1x128xf32>",
               "  %p = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : "
               "(tensor<64x1xf32>, tensor<1x128xf32>) -> tensor<64x128xf32>\n" +
                   sum("s", "p", 0) + sum("t", "p", 1),
               "%s, %t", "tensor<128xf32>, tensor<64xf32>");
  EXPECT_TRUE(planned(text, kBytes).ok());
  EXPECT_TRUE(planned(text, 0).ok());
  const Status refused = planned(text, kBytes - 1);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("stablehlo.dot_general: its result of type tensor<64x128xf32> "
                                   "takes 32768 bytes, more than the largest buffer of the "
                                   "device, 32767 bytes"),
            std::string::npos)
      << refused.message();
  // What is given and returned.
  const std::string same = function(x_and(), op("a", "negate", "%x"), "%a", kT);
  EXPECT_NE(planned(same, 100).message().find("argument 0 of type tensor<64x128xf32> takes"),
            std::string::npos)
      << planned(same, 100).message();
  const std::string made =
      function("", "  %a = stablehlo.iota dim = 0 : tensor<64x128xf32>\n", "%a", kT);
  EXPECT_NE(planned(made, 100).message().find("stablehlo.iota: its result of type"),
            std::string::npos)
      << planned(made, 100).message();
}

TEST(Memory, WhatAStepWritesOverlapsNothingThatItReads) {
  const LaunchPlan plan = plan_of_stages(true);
  ASSERT_GE(plan.steps.size(), 4u);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const KernelStep& step = kernel_step(plan, i);
    const kernel::Kernel& kernel = plan.kernels[static_cast<size_t>(step.kernel)];
    for (size_t w = 0; w < step.operands.size(); ++w) {
      if (!kernel.operands[w].is_written) continue;
      const Slice& out = step.operands[w];
      for (size_t r = 0; r < step.operands.size(); ++r) {
        const Slice& in = step.operands[r];
        if (r == w || in.space != out.space || in.index != out.index) continue;
        EXPECT_TRUE(in.offset + in.bytes <= out.offset || out.offset + out.bytes <= in.offset)
            << to_string(plan);
      }
    }
  }
}

TEST(Memory, BuffersStartAtMultiplesOfTheAlignment) {
  // 33 numbers of four bytes are no multiple of it.
  const LaunchPlan plan = plan_of_text(function(
      "%x: tensor<33xf32>, %w: tensor<33x33xf32>",
      "  %a = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0] : (tensor<33xf32>, "
      "tensor<33x33xf32>) -> tensor<33xf32>\n"
      "  %b = stablehlo.dot_general %a, %w, contracting_dims = [0] x [0] : (tensor<33xf32>, "
      "tensor<33x33xf32>) -> tensor<33xf32>\n"
      "  %c = stablehlo.dot_general %a, %w, contracting_dims = [0] x [1] : (tensor<33xf32>, "
      "tensor<33x33xf32>) -> tensor<33xf32>\n"
      "  %d = stablehlo.dot_general %b, %c, contracting_dims = [0] x [0] : (tensor<33xf32>, "
      "tensor<33xf32>) -> tensor<f32>\n",
      "%d", "tensor<f32>"));
  int seen = 0;
  for (const Step& step : plan.steps) {
    for (const Slice& slice : std::get<KernelStep>(step.what).operands) {
      if (slice.space != Space::kArena) continue;
      ++seen;
      EXPECT_EQ(slice.offset % 64, 0) << to_string(plan);
    }
  }
  EXPECT_GE(seen, 4);
}

TEST(Memory, ALoopUpdatesWhatItCarriesInPlace) {
  const std::string body = R"(
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<10> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<64x128xf32>
    cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %t = stablehlo.tanh %c : tensor<64x128xf32>
      stablehlo.return %j, %t : tensor<i32>, tensor<64x128xf32>
    }
)";
  const LaunchPlan plan =
      plan_of_text(function(x_and(), body, "%r#1", kT), {}, with_loops_as_steps());
  ASSERT_EQ(plan.steps.size(), 2u) << to_string(plan);
  EXPECT_TRUE(std::holds_alternative<CopyStep>(plan.steps[0].what));
  const auto& loop = std::get<RepeatStep>(plan.steps[1].what);
  EXPECT_EQ(loop.count, 10);
  ASSERT_EQ(loop.body.size(), 1u) << to_string(plan);
  const auto& step = std::get<KernelStep>(loop.body[0].what);
  ASSERT_EQ(step.operands.size(), 2u);
  EXPECT_EQ(step.operands[0], step.operands[1]);
  EXPECT_EQ(step.operands[0].space, Space::kOutput);
}

// Nobody sees the product that each iteration takes of the one before: it takes no step, though
// only the host could compute it.
TEST(Plan, ACarriedValueWithoutUsersTakesNoStep) {
  const std::string body = R"(  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<10> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %c = %x, %d = %m) : tensor<i32>, tensor<64x128xf32>, tensor<4x4xf32>
    cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %t = stablehlo.tanh %c : tensor<64x128xf32>
      %e = "stablehlo.einsum"(%d, %m) {einsum_config = "ab,bc->ac"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      stablehlo.return %j, %t, %e : tensor<i32>, tensor<64x128xf32>, tensor<4x4xf32>
    }
)";
  const std::string text = function(x_and("%m: tensor<4x4xf32>"), body, "%r#1", kT);
  const LaunchPlan plan = plan_of_text(text, {}, with_loops_as_steps());
  ASSERT_EQ(plan.steps.size(), 2u) << to_string(plan);
  const auto& loop = std::get<RepeatStep>(plan.steps[1].what);
  ASSERT_EQ(loop.body.size(), 1u) << to_string(plan);
  EXPECT_TRUE(std::holds_alternative<KernelStep>(loop.body[0].what));
  EXPECT_EQ(kernels_of(plan_of_text(text)), (Names{"while"}));  // all iterations
}

// ---- cuts

// Planning takes a round for each call: one is enough, for chains and for what reads many values.
TEST(Cuts, NothingIsComputedWithTooMuch) {
  std::string chain, wide, sums = "%x";
  for (int i = 0; i < 100; ++i) {
    chain += op("c" + std::to_string(i), "tanh", i == 0 ? "%x" : "%c" + std::to_string(i - 1));
    wide += op("w" + std::to_string(i), "tanh", "%x") +
            op("n" + std::to_string(i), "negate", "%w" + std::to_string(i)) +
            op("s" + std::to_string(i), "add", sums + ", %n" + std::to_string(i));
    sums = "%s" + std::to_string(i);
  }
  for (const auto& [body, result] :
       {std::pair(chain, std::string("%c99")), std::pair(wide, sums)}) {
    const auto module = stablehlo::read_program(function(x_and(), body, result, kT));
    ASSERT_TRUE(module.ok()) << module.status().message();
    const ir::Block& block = (*module)->entry()->body().front();
    std::vector<const ir::Operation*> inside;
    for (const auto& each : block.operations()) {
      if (each.get() != block.terminator()) inside.push_back(each.get());
    }
    std::unordered_set<const ir::Operation*> cuts;
    add_cuts(inside, 20, cuts);
    EXPECT_LE(cuts.size(), inside.size() / 10);
    for (const ir::Operation* each : inside) {
      std::unordered_set<const ir::Operation*> with{each};
      std::vector<const ir::Operation*> open{each};
      while (!open.empty()) {
        const ir::Operation* one = open.back();
        open.pop_back();
        for (const ir::Value* operand : one->operands()) {
          const ir::Operation* made = operand->defining_op();
          if (made == nullptr || cuts.contains(made) || !with.insert(made).second) continue;
          open.push_back(made);
        }
      }
      EXPECT_LE(with.size(), 20u);
    }
  }
}

// ---- donation

constexpr char kDonated[] = "%x: tensor<64x128xf32> {tf.aliasing_output = 0 : i32}";

TEST(Donation, AnElementwiseUpdateTakesTheArgumentsMemory) {
  const LaunchPlan plan = plan_of_text(function(std::string(kDonated) + ", %y: tensor<64x128xf32>",
                                                op("a", "add", "%x, %y"), "%a", kT));
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{0}));
}

TEST(Donation, WithoutAnAttributeNothingIsTaken) {
  const LaunchPlan plan = plan_of_text(function(x_and(), op("a", "negate", "%x"), "%a", kT));
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{-1}));
}

// A transpose reads elsewhere than it writes.
TEST(Donation, AKernelThatReadsOtherElementsDoesNotTakeIt) {
  const LaunchPlan plan = plan_of_text(function(
      "%x: tensor<64x64xf32> {tf.aliasing_output = 0 : i32}",
      "  %a = stablehlo.transpose %x, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>\n",
      "%a", "tensor<64x64xf32>"));
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{-1}));
}

TEST(Donation, AnArgumentThatIsReadLaterIsNotTaken) {
  const LaunchPlan plan = plan_of_text(function(
      std::string(kDonated) + ", %y: tensor<64x128xf32>",
      op("a", "add", "%x, %y") + op("e", "tanh", "%x") + sum("r", "e", 0) +
          "  %q = stablehlo.dot_general %r, %x, contracting_dims = [0] x [1] : (tensor<128xf32>, "
          "tensor<64x128xf32>) -> tensor<64xf32>\n",
      "%a, %q", std::string(kT) + ", tensor<64xf32>"));
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{-1, -1}));
}

TEST(Donation, ADonorGivesItsMemoryToTheOutputOfItsSize) {
  const LaunchPlan plan = plan_of_text(
      function("%x: tensor<64xf32>, %y: tensor<64x128xf32> {jax.buffer_donor = true}",
               "  %b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<64xf32>) -> "
               "tensor<64x128xf32>\n" +
                   op("c", "add", "%b, %y") + "  %d = stablehlo.tanh %x : tensor<64xf32>\n",
               "%d, %c", std::string("tensor<64xf32>, ") + kT));
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{-1, 1}));
}

TEST(Donation, TwoArgumentsDoNotShareOneOutput) {
  const LaunchPlan plan = plan_of_text(
      function(std::string(kDonated) + ", %y: tensor<64x128xf32> {jax.buffer_donor = true}",
               op("a", "add", "%x, %y"), "%a", kT));
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{0}));
}

// ---- row groups

std::string softmax() {
  return function(
      x_and(),
      std::string(
          "  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
          "  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions "
          "= [1] : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>\n"
          "  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<64xf32>) -> "
          "tensor<64x128xf32>\n") +
          op("d", "subtract", "%x, %mb") + op("e", "exponential", "%d") + sum("s", "e", 1) +
          "  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> "
          "tensor<64x128xf32>\n" +
          op("q", "divide", "%e, %sb"),
      "%q", kT);
}

TEST(RowGroups, AChainAlongRowsIsOneStepOfWholeRows) {
  PlanOptions options;
  options.row_groups = RowGroups::kAll;
  const LaunchPlan plan = plan_of_text(softmax(), options);
  ASSERT_EQ(plan.steps.size(), 1u) << to_string(plan);
  const auto& rows = std::get<RowsStep>(plan.steps[0].what);
  EXPECT_EQ(rows.rows, 64);
  EXPECT_EQ(rows.steps.size(), 4u) << to_string(plan);
  // Maximum and sum, and the exponentials in between, are wanted by nobody afterwards.
  EXPECT_FALSE(rows.scratch.empty());
}

TEST(RowGroups, ThereAreNoneForBackEndsThatDoNotRunThem) {
  PlanOptions options;
  options.row_groups = RowGroups::kAll;
  DeviceTraits traits;
  traits.has_row_groups = false;
  const LaunchPlan plan = plan_of_text(softmax(), options, traits);
  EXPECT_EQ(count_steps<RowsStep>(plan.steps), 0);
  EXPECT_EQ(kernels_of(plan).size(), 4u);
}

// A sum down the columns touches all rows.
TEST(RowGroups, AStepAcrossRowsIsNoPartOfThem) {
  PlanOptions options;
  options.row_groups = RowGroups::kAll;
  const LaunchPlan plan =
      plan_of_text(function(x_and(), op("a", "tanh", "%x") + sum("r", "a", 1) + sum("s", "a", 0),
                            "%r, %s", "tensor<64xf32>, tensor<128xf32>"),
                   options);
  int outside = 0;
  for (const Step& step : plan.steps) {
    const auto* run = std::get_if<KernelStep>(&step.what);
    if (run == nullptr) continue;
    for (const Slice& slice : run->operands) {
      outside += slice.space == Space::kOutput && slice.index == 1 ? 1 : 0;
    }
  }
  EXPECT_EQ(outside, 1) << to_string(plan);
}

}  // namespace
}  // namespace hekla::plan
