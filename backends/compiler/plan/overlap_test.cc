// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/overlap.h"

#include <gtest/gtest.h>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/plan/check.h"
#include "backends/compiler/plan/planner.h"
#include "backends/compiler/plan/visit.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/loop_text.h"

namespace hekla::plan {
namespace {

using Names = std::vector<std::string>;

std::string all_reduce(const std::string& result, const std::string& operand) {
  return R"(  %)" + result + R"( = "stablehlo.all_reduce"(%)" + operand +
         R"() <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) : (tensor<256xf32>) -> tensor<256xf32>
)";
}

std::string step_of(const std::string& result, const std::string& name,
                    const std::string& operand) {
  return "  %" + result + " = stablehlo." + name + " %" + operand + " : tensor<256xf32>\n";
}

LaunchPlan planned(const std::string& body, const std::string& results, int count,
                   const PlanOptions& options = {}, const std::string& attributes = "") {
  std::string types;
  for (int i = 0; i < count; ++i) types += std::string(i == 0 ? "" : ", ") + "tensor<256xf32>";
  const std::string text = "func.func @main(%x: tensor<256xf32>" + attributes +
                           ", %y: tensor<256xf32>) -> (" + types + ") {\n" + body + "  return " +
                           results + " : " + types + "\n}\n";
  auto module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  passes::rewrite_asynchronous(**module);
  auto plan = make_plan(**module, options);
  if (!plan.ok()) die_of_bad_result(plan.status());
  const Status sound = check(*plan);
  EXPECT_TRUE(sound.ok()) << sound.to_string() << to_string(*plan);
  return *std::move(plan);
}

// What each step is: "start 0", "done 0", the name of a kernel, "copy".
Names names_of(const LaunchPlan& plan) {
  Names names;
  for (const Step& step : plan.steps) {
    const auto* run = std::get_if<KernelStep>(&step.what);
    const auto* start = std::get_if<StartStep>(&step.what);
    names.push_back(run != nullptr     ? plan.kernels[static_cast<size_t>(run->kernel)].name
                    : start != nullptr ? "start " + std::to_string(start->number)
                                       : to_string(step, plan));
  }
  return names;
}

constexpr PlanOptions kNoOverlap{.overlap_collectives = false};

TEST(Overlap, ComputeRunsBesideACollective) {
  const std::string body = step_of("a", "negate", "x") + all_reduce("r", "a") +
                           step_of("b", "tanh", "y") + step_of("c", "exponential", "r");
  EXPECT_EQ(names_of(planned(body, "%b, %c", 2)),
            (Names{"negate", "start 0", "tanh", "done 0", "exponential"}));
  EXPECT_EQ(names_of(planned(body, "%b, %c", 2, kNoOverlap)),
            (Names{"negate", "start 0", "done 0", "tanh", "exponential"}));
}

TEST(Overlap, StartsGoUpToWhatTheyReadAndKeepTheirOrder) {
  // As a backward pass has it: all sums at the end, the last gradient's operand was made first.
  const std::string body = step_of("late", "negate", "x") + step_of("early", "tanh", "late") +
                           all_reduce("r0", "early") + all_reduce("r1", "late") +
                           all_reduce("r2", "early");
  EXPECT_EQ(
      names_of(planned(body, "%r0, %r1, %r2, %early", 4, {.fuse = false})),
      (Names{"negate", "start 1", "tanh", "start 0", "start 2", "done 0", "done 1", "done 2"}));
}

TEST(Overlap, StartsKeepTheOrderOfTheProgramWhereOthersMayHaveAnother) {
  const std::string body = step_of("late", "negate", "x") + step_of("early", "tanh", "late") +
                           all_reduce("r0", "early") + all_reduce("r1", "late") +
                           step_of("last", "exponential", "y");
  EXPECT_EQ(names_of(planned(body, "%r0, %r1, %last", 3,
                             {.fuse = false, .keeps_collective_order = true})),
            (Names{"negate", "tanh", "start 0", "start 1", "exponential", "done 0", "done 1"}));
}

TEST(Overlap, ASynchronousAndAnAsynchronousFormGiveOnePlan) {
  const std::string start = R"(  %f = "stablehlo.async_start"(%a) ({
    ^bb0(%p: tensor<256xf32>):
)" + all_reduce("q", "p") + R"(      stablehlo.return %q : tensor<256xf32>
    }) : (tensor<256xf32>) -> !stablehlo.future<tensor<256xf32>>
)";
  const std::string done =
      "  %r = \"stablehlo.async_done\"(%f) : (!stablehlo.future<tensor<256xf32>>) -> "
      "tensor<256xf32>\n";
  const std::string a = step_of("a", "negate", "x"), b = step_of("b", "tanh", "y");
  const std::string c = step_of("c", "exponential", "r");
  for (const PlanOptions& options : {PlanOptions{}, kNoOverlap}) {
    EXPECT_EQ(to_string(planned(a + start + b + done + c, "%b, %c", 2, options)),
              to_string(planned(a + all_reduce("r", "a") + b + c, "%b, %c", 2, options)));
  }
}

TEST(Overlap, FuturesThatAreNotAwaitedRunToo) {
  const std::string body = R"(  %f = "stablehlo.async_start"(%x) ({
    ^bb0(%p: tensor<256xf32>):
)" + all_reduce("q", "p") + R"(      stablehlo.return %q : tensor<256xf32>
    }) : (tensor<256xf32>) -> !stablehlo.future<tensor<256xf32>>
)" + step_of("b", "tanh", "y");
  EXPECT_EQ(names_of(planned(body, "%b", 1)), (Names{"start 0", "tanh", "done 0"}));
}

TEST(Overlap, MemoryIsAliveAndUntouchedAllThrough) {
  // Temporaries enough to take each other's bytes, and the sum's: none may while it is under way.
  std::string body = step_of("a", "negate", "x") + all_reduce("r", "a");
  std::string last = "y";
  PlanOptions options;
  options.fuse = false;
  for (int i = 0; i < 6; ++i) {
    const std::string next = "t" + std::to_string(i);
    body += step_of(next, i % 2 == 0 ? "tanh" : "negate", last);
    last = next;
  }
  body += "  %c = stablehlo.add %r, %" + last + " : tensor<256xf32>\n";
  const LaunchPlan plan = planned(body, "%c", 1, options);  // and check() proves it
  EXPECT_EQ(names_of(plan).at(1), "start 0");
  EXPECT_EQ(names_of(plan).at(8), "done 0");
  // The operand, the result and two that alternate.
  EXPECT_EQ(plan.arena_bytes(), 4 * 1024);
}

TEST(Overlap, AnInputIsGivenAwayOnlyAfterTheEnd) {
  const std::string body =
      all_reduce("r", "x") + step_of("b", "tanh", "y") + step_of("c", "exponential", "r");
  // %b is made while %x is read; only %c is made after it.
  const LaunchPlan plan = planned(body, "%b, %c", 2, {}, " {jax.buffer_donor = true}");
  EXPECT_EQ(plan.output_input, (std::vector<int32_t>{-1, 0}));
}

// %r#1 is %x after so many iterations of what the body makes of %v.
std::string loop(int iterations, const std::string& body, const std::string& next) {
  return stablehlo::testing::counted_loop({.trips = iterations,
                                           .type = "tensor<256xf32>",
                                           .initial = "x",
                                           .carried = "v",
                                           .next = next},
                                          body);
}

// A loop whose carried value is what a collective makes of it has it in one place.
TEST(Overlap, ACollectiveUpdatesACarriedValueInPlace) {
  const auto copies_inside = [](const LaunchPlan& plan) {
    int64_t loops = 0, copies = 0;
    for_each_step(plan.steps, [&](const Step& step) {
      for_each_list(step, [&](const Steps& inner) {
        ++loops;
        copies += std::ranges::count_if(
            inner, [](const Step& s) { return std::holds_alternative<CopyStep>(s.what); });
      });
    });
    EXPECT_GE(loops, 1) << to_string(plan);
    return copies;
  };
  const std::string permute =
      "    %w = \"stablehlo.collective_permute\"(%v) <{source_target_pairs = dense<[[0, 1], [1, "
      "0]]> : "
      "tensor<2x2xi64>}> : (tensor<256xf32>) -> tensor<256xf32>\n";
  for (const std::string& body : {all_reduce("w", "v"), permute}) {
    for (const PlanOptions& options : {PlanOptions{}, kNoOverlap}) {
      const LaunchPlan plan = planned(loop(50, body, "w"), "%r#1", 1, options);
      EXPECT_EQ(copies_inside(plan), 0) << to_string(plan);
    }
  }
  // Where something else needs the old value meanwhile, it stays where it is.
  const std::string beside = permute + "    %t = stablehlo.tanh %v : tensor<256xf32>\n" +
                             "    %u = stablehlo.add %t, %w : tensor<256xf32>\n";
  const LaunchPlan plan = planned(loop(50, beside, "u"), "%r#1", 1);  // and check() proves it
  EXPECT_LE(copies_inside(plan), 1) << to_string(plan);
}

TEST(Overlap, LoopsAreOneStepAndHaveIntervalsOfTheirOwn) {
  const LaunchPlan plan = planned(
      all_reduce("s", "y") +
          loop(5, all_reduce("w", "v") + "    %u = stablehlo.tanh %w : tensor<256xf32>\n", "u"),
      "%s, %r#1", 2);
  const Names names = names_of(plan);
  EXPECT_EQ(names.front(), "start 0");
  EXPECT_EQ(names.back(), "done 0") << "the loop runs beside the first sum: " << to_string(plan);
  EXPECT_EQ(std::ranges::count_if(names, [](const auto& n) { return n.starts_with("repeat"); }), 1);
  int64_t starts = 0;
  for_each_step(plan.steps, [&](const Step& step) {
    starts += std::holds_alternative<StartStep>(step.what) ? 1 : 0;
  });
  EXPECT_GE(starts, 2);
}

}  // namespace
}  // namespace hekla::plan
