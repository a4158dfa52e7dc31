// SPDX-License-Identifier: Apache-2.0
// Which loops get a kernel of their own, on devices that are made up: nothing runs. That they give
// the right bits show tests/jax/test_loops.py and random programs.
#include "backends/vulkan/plugin/persistent_loops.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/plugin/compile.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/loop_text.h"

namespace hekla::vulkan {
namespace {

Target target(bool is_cpu) {
  Target made;
  made.device = "a device";
  made.is_cpu = is_cpu;
  made.int64 = made.storage_8 = made.storage_16 = true;
  made.subgroup_size = is_cpu ? 8 : 32;
  made.max_workgroup_invocations = made.max_workgroup_size_x = 1024;
  made.max_shared_memory_bytes = 48 << 10;
  if (is_cpu) made.max_loop_iterations = 65'535;
  return made;
}

std::shared_ptr<const LaunchProgram> compiled(
    const std::string& text, const Target& target,
    plan::PersistentLoops wanted = plan::PersistentLoops::kWherePays) {
  pjrt::CompileRequest request;
  auto module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  request.module = *std::move(module);
  request.options.plan.persistent_loops = wanted;
  auto program = compile_program(request, target, int64_t{1} << 30);
  if (!program.ok()) die_of_bad_result(program.status());
  for (const DeviceLoopKernel& loop : (*program)->loops) {
    EXPECT_EQ(validate(loop.code.code.words).message(), "");
    EXPECT_EQ(loop.operands.size(), loop.is_written.size());
  }
  return *program;
}

// Why the loop whose title begins so is not run by one workgroup; empty: it is.
std::string refusal(const LaunchProgram& program, std::string_view title) {
  for (const plan::Decision& each : program.decisions) {
    if (each.operation.starts_with(title)) return each.implementations[0].refusal;
  }
  return "there is no such loop";
}

// `trips` iterations over %x of `n` numbers, of which the body makes %y.
std::string counted(int n, int trips, const std::string& body) {
  const std::string array = "tensor<" + std::to_string(n) + "xf32>";
  return "func.func public @main(%a: " + array + ") -> " + array + " {\n" +
         stablehlo::testing::counted_loop(
             {.trips = trips, .type = array, .initial = "a", .carried = "x", .next = "y"},
             body + "\n") +
         "  return %r#1 : " + array + "\n}";
}

// What others of the array hold: an iteration is no business of each point alone.
std::string turned(int n) {
  const std::string array = "tensor<" + std::to_string(n) + "xf32>";
  return "    %v = stablehlo.reverse %x, dims = [0] : " + array +
         "\n    %y = stablehlo.tanh %v : " + array;
}

TEST(PersistentLoops, LoopsOfSmallKernelsAre) {
  for (const bool is_cpu : {false, true}) {
    const auto program = compiled(counted(20, 100, turned(20)), target(is_cpu));
    ASSERT_EQ(program->loops.size(), 1u) << refusal(*program, "repeat");
    const DeviceLoopKernel& loop = program->loops[0];
    EXPECT_EQ(loop.code.workgroup_size, is_cpu ? 8u : 32u);
    EXPECT_EQ(loop.code.groups, (std::array<uint32_t, 3>{1, 1, 1}));
    // The kernels in it are dispatched by nobody.
    const std::vector<bool> is_dispatched = dispatched_kernels(*program);
    EXPECT_TRUE(std::ranges::none_of(is_dispatched, [](bool is) { return is; }));
    // llvmpipe ends loops after 65,535 ends of bodies.
    EXPECT_EQ(loop.most_iterations < 65'535, is_cpu);
    EXPECT_TRUE(compiled(counted(20, 100, turned(20)), target(is_cpu), plan::PersistentLoops::kNone)
                    ->loops.empty());
  }
}

TEST(PersistentLoops, MuchWorkIsForAllWorkgroups) {
  const auto large = compiled(counted(1 << 20, 100, turned(1 << 20)), target(false));
  EXPECT_TRUE(large->loops.empty());
  EXPECT_NE(refusal(*large, "repeat").find("more than"), std::string::npos)
      << refusal(*large, "repeat");
  // However few kernels it is: who runs the inner loop is asked again.
  const auto endless = compiled(counted(20, 3, R"(
    %z1 = stablehlo.constant dense<0> : tensor<i32>
    %w:2 = stablehlo.while(%k = %z1, %v = %x) : tensor<i32>, tensor<20xf32> cond {
      %t1 = stablehlo.constant dense<2000000000> : tensor<i32>
      %c1 = stablehlo.compare LT, %k, %t1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c1 : tensor<i1>
    } do {
      %l = stablehlo.add %k, %one : tensor<i32>
      %u = stablehlo.reverse %v, dims = [0] : tensor<20xf32>
      %s = stablehlo.sine %u : tensor<20xf32>
      stablehlo.return %l, %s : tensor<i32>, tensor<20xf32>
    }
    %y = stablehlo.add %w#1, %x : tensor<20xf32>)"),
                                target(false));
  EXPECT_NE(refusal(*endless, "repeat").find("or more in an iteration"), std::string::npos)
      << refusal(*endless, "repeat");
  // Asked for it runs anyway.
  EXPECT_EQ(compiled(counted(1 << 16, 100, turned(1 << 16)), target(false),
                     plan::PersistentLoops::kWherePossible)
                ->loops.size(),
            1u);
}

TEST(PersistentLoops, DrawsAreThoseOfASeed) {
  size_t found = 0;
  constexpr uint64_t kSeeds = 30;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    pjrt::CompileRequest request;
    request.module = stablehlo::read_program(counted(20, 100, turned(20))).value();
    request.options.schedule_seed = seed;
    const auto program = compile_program(request, target(false), int64_t{1} << 30);
    ASSERT_TRUE(program.ok());
    const auto again = compile_program(request, target(false), int64_t{1} << 30);
    ASSERT_EQ((*program)->loops.size(), (*again)->loops.size());
    if ((*program)->loops.empty()) continue;
    ++found;
    EXPECT_EQ((*program)->loops[0].code.code.words, (*again)->loops[0].code.code.words);
  }
  EXPECT_GT(found, 0u);
  EXPECT_LT(found, kSeeds);
}

// The inner loop ends when data say it: a dispatch may end in any iteration of either, and the next
// one goes on there.
TEST(PersistentLoops, SearchesWithinAreResumed) {
  const auto program = compiled(counted(20, 100, R"(
    %y = stablehlo.while(%w = %x) : tensor<20xf32> cond {
      %z0 = stablehlo.constant dense<0.0> : tensor<f32>
      %m = stablehlo.reduce(%w init: %z0) applies stablehlo.maximum across dimensions = [0] : (tensor<20xf32>, tensor<f32>) -> tensor<f32>
      %l = stablehlo.constant dense<50.0> : tensor<f32>
      %c = stablehlo.compare LT, %m, %l : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %v = stablehlo.reverse %w, dims = [0] : tensor<20xf32>
      %u = stablehlo.add %v, %w : tensor<20xf32>
      stablehlo.return %u : tensor<20xf32>
    })"),
                                target(false));
  ASSERT_EQ(program->loops.size(), 1u) << refusal(*program, "repeat");
  // Two iterations of the outer loop stand in its body, so that arrays alternate; a word for where
  // to go on, and one for the iteration.
  const DeviceLoopKernel& loop = program->loops[0];
  EXPECT_TRUE(std::holds_alternative<plan::RepeatStep>(loop.step->what));
  EXPECT_EQ(loop.state_words, 2);
  const std::vector<bool> is_dispatched = dispatched_kernels(*program);
  EXPECT_TRUE(std::ranges::none_of(is_dispatched, [](bool is) { return is; }));
}

// A reduction is one of teams on this GPU: they meet in memory of the workgroup.
TEST(PersistentLoops, TeamsAreInThem) {
  const std::string body = R"(
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<500xf32>, tensor<f32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %m, dims = [] : (tensor<f32>) -> tensor<500xf32>
    %y = stablehlo.subtract %b, %x : tensor<500xf32>)";
  const auto program = compiled(counted(500, 100, body), target(false));
  EXPECT_TRUE(std::ranges::any_of(program->kernels, [](const DeviceKernel& kernel) {
    return kernel.schedule.starts_with("teams");
  }));
  EXPECT_EQ(program->loops.size(), 1u) << refusal(*program, "repeat");
  Target small = target(false);
  small.max_shared_memory_bytes = 1024;
  const auto refused = compiled(counted(500, 100, body), small);
  EXPECT_TRUE(refused->loops.empty());
}

}  // namespace
}  // namespace hekla::vulkan
