// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "backends/compiler/kernel/builder.h"
#include "backends/cpu/execute/kernel_requests.h"
#include "backends/cpu/execute/testing/plans.h"
#include "backends/cpu/threads/thread_pool.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::Kernel;
using kernel::ScalarType;
using kernel::Value;
using plan::CopyStep;
using plan::HostStep;
using plan::KernelStep;
using plan::LaunchPlan;
using plan::Slice;
using Space = plan::Slice::Space;
using testing::arena;
using testing::compiler;
using testing::count_up;

constexpr ScalarType kI32 = ScalarType::kI32;
constexpr ScalarType kF32 = ScalarType::kF32;

Slice input(int32_t index, int64_t bytes) { return {Space::kInput, index, 0, bytes}; }
Slice output(int32_t index, int64_t bytes) { return {Space::kOutput, index, 0, bytes}; }

// y = x * factor + 1 over `count` floats.
Kernel scale(int64_t count, float factor) {
  Builder b(1, kI32);
  const Value x = b.load(kF32, {0, 4}, b.grid_index(0));
  b.store({1, 4}, b.grid_index(0), b.add(b.mul(x, b.real(kF32, factor)), b.real(kF32, 1)));
  Kernel kernel;
  kernel.name = "scale";
  kernel.grid = {count};
  kernel.operands = {{count * 4, true, false, true}, {count * 4, false, true}};
  kernel.body = b.finish();
  return kernel;
}

std::shared_ptr<const Program> compile(LaunchPlan plan) {
  const auto program =
      Program::create(std::make_shared<const LaunchPlan>(std::move(plan)), compiler());
  if (!program.ok()) {
    ADD_FAILURE() << program.status().to_string();
    return nullptr;
  }
  return *program;
}

template <typename T>
const std::byte* data(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
template <typename T>
std::byte* data(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// Two kernels with the arena in between, the result also copied to a second output.
LaunchPlan chain(int64_t count) {
  const int64_t bytes = count * 4;
  LaunchPlan plan;
  plan.kernels = {scale(count, 2), scale(count, 3)};
  plan.input_bytes = {bytes};
  plan.output_bytes = {bytes, bytes};
  plan.output_input = {-1, -1};
  plan.arenas = {bytes};
  plan.steps = {{KernelStep{0, {input(0, bytes), arena(0, bytes)}}},
                {KernelStep{1, {arena(0, bytes), output(0, bytes)}}},
                {CopyStep{output(0, bytes), output(1, bytes)}}};
  return plan;
}

void expect_chain(const Program& program, int64_t count, bool is_parallel) {
  std::vector<float> x(static_cast<size_t>(count));
  std::iota(x.begin(), x.end(), 0.0f);
  std::vector<float> temporary(x.size()), y(x.size()), z(x.size());
  const LaunchMemory memory{{data(x)}, {data(y), data(z)}, {data(temporary)}};
  RunOptions options;
  options.is_parallel = is_parallel;
  const Status status = program.run(memory, options);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], (x[i] * 2 + 1) * 3 + 1) << i;
  EXPECT_EQ(y, z);
}

TEST(Program, RunsKernelsAndCopies) {
  for (const int64_t count : {1, 13, 1000}) {
    const auto program = compile(chain(count));
    ASSERT_NE(program, nullptr);
    expect_chain(*program, count, false);
  }
}

TEST(Program, SplitsLargeStepsOverThePool) {
  constexpr int64_t kCount = 3'000'001;
  const auto program = compile(chain(kCount));
  ASSERT_NE(program, nullptr);
  ThreadPool::process_pool().run([&] { expect_chain(*program, kCount, true); });
}

TEST(Program, RunsSeveralLaunchesAtOnce) {
  constexpr int64_t kCount = 100'003;
  const auto program = compile(chain(kCount));
  ASSERT_NE(program, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        ThreadPool::process_pool().run([&] { expect_chain(*program, kCount, true); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Program, LoopsUntilThePredicateFalls) {
  LaunchPlan plan;
  plan.kernels = {count_up(1000)};
  plan.input_bytes = {4};
  plan.output_bytes = {4};
  plan.output_input = {-1};
  plan.arenas = {64};
  plan::WhileStep loop;
  // The kernel updates the output in place.
  loop.condition = {{KernelStep{0, {output(0, 4), output(0, 4), arena(0, 1)}}}};
  loop.predicate = arena(0, 1);
  plan.steps = {{CopyStep{input(0, 4), output(0, 4)}}, {loop}};
  const auto program = compile(plan);
  ASSERT_NE(program, nullptr);
  for (const int32_t start : {0, 998, 5000}) {
    std::vector<int32_t> x{start}, y{0};
    std::vector<std::byte> temporary(64);
    ASSERT_TRUE(program->run({{data(x)}, {data(y)}, {temporary.data()}}, {}).ok());
    EXPECT_EQ(y[0], std::max(start + 1, 1000));
  }
}

TEST(Program, BranchesClampTheirSelector) {
  LaunchPlan plan;
  plan.kernels = {scale(4, 10), scale(4, 20), scale(4, 30)};
  plan.input_bytes = {4, 16};
  plan.output_bytes = {16};
  plan.output_input = {-1};
  plan::BranchStep branch;
  branch.selector = input(0, 4);
  for (int32_t k = 0; k < 3; ++k) {
    branch.branches.push_back({{KernelStep{k, {input(1, 16), output(0, 16)}}}});
  }
  plan.steps = {{branch}};
  const auto program = compile(plan);
  ASSERT_NE(program, nullptr);
  const std::pair<int32_t, float> cases[] = {{0, 11}, {1, 21}, {2, 31}, {3, 31}, {-1, 31}};
  for (const auto& [selector, expected] : cases) {
    std::vector<int32_t> s{selector};
    std::vector<float> x(4, 1.0f), y(4);
    ASSERT_TRUE(program->run({{data(s), data(x)}, {data(y)}, {}}, {}).ok());
    EXPECT_EQ(y, std::vector<float>(4, expected)) << selector;
  }
}

LaunchPlan host_plan() {
  constexpr int64_t kBytes = 12;
  HostStep step;
  step.name = "stablehlo.subtract";
  step.reason = "a test";
  step.program = stablehlo::read_program(R"(
      func.func @main(%x: tensor<3xi32>, %y: tensor<3xi32>) -> tensor<3xi32> {
        %0 = stablehlo.subtract %x, %y : tensor<3xi32>
        return %0 : tensor<3xi32>
      })")
                     .value();
  step.inputs = {input(0, kBytes), input(1, kBytes)};
  step.outputs = {output(0, kBytes)};
  LaunchPlan plan;
  plan.input_bytes = {kBytes, kBytes};
  plan.output_bytes = {kBytes};
  plan.output_input = {-1};
  plan.steps = {{std::move(step)}};
  return plan;
}

TEST(Program, HostStepsRunInTheEvaluatorAndAreCounted) {
  const auto program = compile(host_plan());
  ASSERT_NE(program, nullptr);
  EXPECT_EQ(program->host_step_count(), 1);
  std::vector<int32_t> x{10, 20, 30}, y{1, 2, 3}, z(3);
  ASSERT_TRUE(program->run({{data(x), data(y)}, {data(z)}, {}}, {}).ok());
  EXPECT_EQ(z, (std::vector<int32_t>{9, 18, 27}));
  EXPECT_EQ(program->host_steps_run(), 1);
}

TEST(Program, ErrorsOfHostStepsNameThem) {
  const auto program = compile(host_plan());
  ASSERT_NE(program, nullptr);
  std::vector<int32_t> x{1, 2, 3}, y(x), z(3);
  RunOptions options;
  options.memory_limit_bytes = 8;
  const Status status = program->run({{data(x), data(y)}, {data(z)}, {}}, options);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("stablehlo.subtract"), std::string::npos) << status.message();
}

TEST(KernelRequests, TellsKernelsThatUpdateInPlace) {
  LaunchPlan plan = chain(10);
  EXPECT_EQ(kernels_in_place(plan), (std::vector<bool>{false, false}));
  std::get<KernelStep>(plan.steps[1].what).operands[0] = output(0, 40);
  EXPECT_EQ(kernels_in_place(plan), (std::vector<bool>{false, true}));
  plan = chain(10);
  std::get<KernelStep>(plan.steps[1].what).operands[0] = input(0, 40);
  plan.output_input = {0, -1};
  EXPECT_EQ(kernels_in_place(plan), (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace hekla::cpu
