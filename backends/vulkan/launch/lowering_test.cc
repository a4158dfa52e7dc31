// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/lowering.h"

#include <gtest/gtest.h>

#include <array>
#include <span>

#include "backends/compiler/kernel/builder.h"

namespace hekla::vulkan {
namespace {

using plan::CopyStep;
using plan::KernelStep;
using plan::Slice;
using Space = Slice::Space;

Slice arena(int64_t offset, int64_t bytes) { return {Space::kArena, 0, offset, bytes}; }

// Memory of each kind, and kernels of 64, 4 and 100 bytes that read one slice and write another.
plan::LaunchPlan plan_of(plan::Steps steps) {
  plan::LaunchPlan plan;
  for (const int64_t bytes : {64, 4, 100}) {
    plan.kernels.emplace_back().operands = {{bytes, true, false}, {bytes, false, true}};
  }
  plan.input_bytes = {100, 64};
  plan.output_bytes = {100, 8};
  plan.output_input = {0, -1};
  plan.arenas = {1000};
  plan.constants.emplace_back(DType::kI32, Dims{4});
  plan.steps = std::move(steps);
  return plan;
}

LaunchProgram program(plan::LaunchPlan plan) {
  LaunchProgram p;
  p.name = "test";
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    DeviceKernel& kernel = p.kernels.emplace_back();
    kernel.code.words = {1};
    kernel.groups = {1, 1, 1};
  }
  p.plan = std::make_shared<const plan::LaunchPlan>(std::move(plan));
  return p;
}
LaunchProgram program(plan::Steps steps) { return program(plan_of(std::move(steps))); }

TEST(FoldGrid, CoversEveryGroupWithinTheLimits) {
  const std::array<uint32_t, 3> limits = {100, 50, 40};
  const std::vector<std::array<uint32_t, 3>> grids = {
      {1, 1, 1},  {100, 50, 40},   {101, 1, 1}, {5000, 1, 1},   {5001, 1, 1},
      {1, 51, 1}, {199'999, 1, 1}, {7, 60, 41}, {200'000, 1, 1}};
  for (const auto& grid : grids) {
    const std::array<uint32_t, 3> folded = fold_grid(grid, limits);
    uint64_t wanted = 1;
    uint64_t got = 1;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LE(folded[i], limits[i]);
      wanted *= grid[i];
      got *= folded[i];
    }
    EXPECT_GE(got, wanted);
    EXPECT_LT(got, 2 * wanted);
  }
  EXPECT_EQ(fold_grid({100, 50, 40}, limits), (std::array<uint32_t, 3>{100, 50, 40}));
}

TEST(CheckProgram, NamesProgramAndReason) {
  EXPECT_TRUE(check_program(program(plan::Steps{})).ok());
  const auto expect = [&](const LaunchProgram& p, StatusCode code, const char* part) {
    const Status status = check_program(p);
    EXPECT_EQ(status.code(), code) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  expect(program({{KernelStep{3, {}}}}), StatusCode::kInternal, "no kernel 3");
  expect(program({{CopyStep{arena(0, 8), arena(4, 8)}}}), StatusCode::kInternal, "overlap");
  expect(program({{plan::RepeatStep{2, {{plan::ContractionStep{}}}}}}), StatusCode::kInternal,
         "there is no contraction 0");
  LaunchProgram p = program(plan::Steps{});
  p.kernels[0].groups = {1U << 16, 1U << 15, 1};
  expect(p, StatusCode::kInternal, "grid of 65536 x 32768 x 1");
  p.kernels[0].groups = {~0U, ~0U, ~0U};
  expect(p, StatusCode::kInternal, "grid");
  p.kernels[0].groups = {~0U, ~0U, 0};
  EXPECT_TRUE(check_program(p).ok());
  p.kernels.pop_back();
  expect(p, StatusCode::kInternal, "2 kernels for the 3");
}

// Which no plan for Vulkan has: its traits say so.
TEST(Lowering, TransformsAreAnErrorAlsoInLoops) {
  plan::TransformStep transform;
  transform.transform.size = transform.transform.from_size = transform.transform.to_size = 4;
  transform.transform.radices = {4};
  transform.from = arena(0, 32);
  transform.roots = {Space::kConstant, 0, 0, 8};
  transform.to = arena(32, 32);
  for (const plan::Steps& steps :
       {plan::Steps{{transform}}, {{plan::RepeatStep{2, {{transform}}}}}}) {
    const LaunchProgram p = program(steps);
    ASSERT_TRUE(check_program(p).ok()) << check_program(p).to_string();
    const Result<LoweredProgram> lowered = lower_program(p, {false, false}, {});
    EXPECT_EQ(lowered.status().code(), StatusCode::kInternal);
    EXPECT_NE(lowered.status().message().find("no code for transform 1 x 4 x 1 f32"),
              std::string::npos)
        << lowered.status().message();
  }
}

TEST(Lowering, PutsBarriersWhereStepsConflict) {
  const auto kernel = [](Slice from, Slice to) {
    return plan::Step{KernelStep{from.bytes == 64 ? 0 : 1, {from, to}}};
  };
  LaunchProgram p = program({
      kernel({Space::kInput, 1, 0, 64}, arena(0, 64)),
      kernel({Space::kInput, 1, 0, 64}, arena(64, 64)),                // beside the first
      kernel(arena(0, 64), arena(128, 64)),                            // after the first
      kernel(arena(64, 64), arena(192, 64)),                           // that barrier served it
      kernel(arena(128, 4), {Space::kOutput, 1, 0, 4}),                // after the third
      {KernelStep{2, {{Space::kInput, 0, 0, 100}, arena(300, 100)}}},  // nothing to do
  });
  p.kernels[2].groups = {4, 0, 1};
  LoweringOptions options;
  options.check_barriers = true;
  const LoweredProgram lowered = *lower_program(p, {true, false}, options);
  ASSERT_EQ(lowered.parts.size(), 1u);
  std::vector<bool> barriers;
  for (const LoweredDispatch& d : lowered.parts[0].recordings[0].dispatches) {
    barriers.push_back(d.has_barrier_before);
  }
  EXPECT_EQ(barriers, (std::vector<bool>{false, false, true, false, true}));
  EXPECT_EQ(lowered.barrier_count, 2);
  EXPECT_EQ(lowered.table.size(), 10u);
  options.all_barriers = true;
  EXPECT_EQ((*lower_program(p, {true, false}, options)).barrier_count, 4);
}

TEST(Lowering, ArenasAreMemoryOfTheirOwn) {
  const auto kernel = [](Slice from, Slice to) {
    return plan::Step{KernelStep{from.bytes == 64 ? 0 : 1, {from, to}}};
  };
  const Slice other{Space::kArena, 1, 0, 64};
  plan::LaunchPlan plan = plan_of({
      kernel({Space::kInput, 1, 0, 64}, arena(0, 64)),
      kernel({Space::kInput, 1, 0, 64}, other),  // beside the first
      kernel(other, arena(64, 64)),              // after the second
      kernel(arena(0, 64), other),               // after the third, which read what it writes
  });
  plan.arenas = {1000, 64};
  LoweringOptions options;
  options.check_barriers = true;
  const LoweredProgram lowered = *lower_program(program(std::move(plan)), {true, false}, options);
  std::vector<bool> barriers;
  for (const LoweredDispatch& d : lowered.parts[0].recordings[0].dispatches) {
    barriers.push_back(d.has_barrier_before);
  }
  EXPECT_EQ(barriers, (std::vector<bool>{false, false, true, true}));
}

TEST(Lowering, AnOutputInAnInputsMemoryIsOneWithIt) {
  // Reads the input, copies it to the output that may take its memory, and writes a part of that.
  const LaunchProgram p = program({
      {KernelStep{2, {{Space::kInput, 0, 0, 100}, arena(0, 100)}}},
      {CopyStep{{Space::kInput, 0, 0, 100}, {Space::kOutput, 0, 0, 100}}},
      {KernelStep{1, {arena(0, 4), {Space::kOutput, 0, 52, 4}}}},
  });
  const LoweredProgram donated = *lower_program(p, {true, false}, {});
  EXPECT_EQ(donated.dispatch_count, 2);
  EXPECT_TRUE(donated.parts[0].recordings[0].dispatches[1].has_barrier_before);
  const LoweredProgram copied = *lower_program(p, {false, false}, {});
  EXPECT_EQ(copied.dispatch_count, 3);
  EXPECT_EQ(copied.parts[0].recordings[0].dispatches[1].pipeline, copy_pipeline(p));
  EXPECT_TRUE(copied.parts[0].recordings[0].dispatches[2].has_barrier_before);
}

TEST(Lowering, HostStepsSplitAndBytesWidenToWords) {
  const auto copy = [](int64_t to, int64_t bytes) {
    return plan::Step{CopyStep{{Space::kConstant, 0, 0, bytes}, arena(to, bytes)}};
  };
  const LaunchProgram p =
      program({copy(0, 5), copy(5, 3), {plan::HostStep{}}, copy(8, 4), copy(12, 4)});
  const LoweredProgram lowered = *lower_program(p, {true, false}, {});
  ASSERT_EQ(lowered.parts.size(), 3u);
  EXPECT_TRUE(
      lowered.parts[0].recordings[0].dispatches[1].has_barrier_before);  // one word in common
  EXPECT_TRUE(lowered.parts[1].host.has_value());
  EXPECT_FALSE(lowered.parts[2].recordings[0].dispatches[1].has_barrier_before);
}

// What needs the host is decided there; what does not, even around it, is the device's.
TEST(Lowering, LoopsAroundStepsOfTheHostAreItsOwn) {
  using Kind = HostPart::Kind;
  const plan::Step host = {plan::HostStep{}};
  const plan::Step kernel = {KernelStep{1, {arena(0, 4), arena(4, 4)}}};
  const auto kinds = [](const LaunchProgram& p) {
    std::vector<int> all;  // -1: the device
    const LoweredProgram lowered = *lower_program(p, {false, false}, {});
    for (const LoweredPart& part : lowered.parts) {
      all.push_back(part.host ? static_cast<int>(part.host->kind) : -1);
    }
    return all;
  };
  const auto of = [](std::initializer_list<int> all) { return std::vector<int>(all); };
  const int run = static_cast<int>(Kind::kRun), choose = static_cast<int>(Kind::kChoose);
  const int start = static_cast<int>(Kind::kStartCount), count = static_cast<int>(Kind::kCount);
  const int go = static_cast<int>(Kind::kGo);
  EXPECT_EQ(kinds(program({{plan::RepeatStep{3, {kernel}}}})), of({-1}));
  EXPECT_EQ(kinds(program({{plan::RepeatStep{3, {kernel, host}}}, kernel})),
            of({start, count, -1, run, go, -1}));
  const LaunchProgram loop = program({{plan::WhileStep{{kernel}, arena(8, 1), {host}}}});
  EXPECT_EQ(kinds(loop), of({-1, choose, run, go}));
  const LoweredProgram lowered = *lower_program(loop, {false, false}, {});
  EXPECT_EQ(lowered.parts[1].next, (std::vector<size_t>{2, 4}));
  EXPECT_EQ(lowered.parts[3].next, (std::vector<size_t>{0}));
  EXPECT_EQ(kinds(program({{plan::BranchStep{arena(8, 4), {{kernel}, {host}, {}}}}, kernel})),
            of({choose, -1, go, run, go, go, -1}));
  LaunchProgram interpreted = program({{plan::RowsStep{1, {kernel, kernel}, 4, {}}}});
  interpreted.kernels[1].code.words.clear();
  EXPECT_EQ(kinds(interpreted), of({run, run}));
}

// (1 + 2^-30)^2 - 1 has a last bit that the product alone has no room for.
TEST(RunHostPart, RoundsMultiplyAddsAsTheDeviceDoes) {
  using kernel::ScalarType;
  plan::LaunchPlan plan;
  kernel::Kernel& k = plan.kernels.emplace_back();
  k.grid = {1};
  k.operands = {{8, true, false}, {8, false, true}};
  kernel::Builder b(1, ScalarType::kI32);
  const kernel::Value x = b.load(ScalarType::kF64, {0, 8}, b.grid_index(0));
  b.store({1, 8}, b.grid_index(0), b.fma(x, x, b.real(ScalarType::kF64, -1)));
  k.body = b.finish();
  plan.input_bytes = {8};
  plan.output_bytes = {8};
  plan.output_input = {-1};
  plan.steps = {{KernelStep{0, {{Space::kInput, 0, 0, 8}, {Space::kOutput, 0, 0, 8}}}}};
  LaunchProgram p = program(std::move(plan));
  HostPart part{HostPart::Kind::kRun, p.plan->steps.data()};
  for (const kernel::Fma fma : {kernel::Fma::kFused, kernel::Fma::kSplit}) {
    p.fma = {kernel::Fma::kFused, fma};
    double in = 1 + 0x1p-30, out = 0;
    const std::array memory = {std::as_writable_bytes(std::span(&in, 1)),
                               std::as_writable_bytes(std::span(&out, 1))};
    ASSERT_TRUE(run_host_part(part, p, memory, {}).ok());
    EXPECT_EQ(out, 0x1p-29 + (fma == kernel::Fma::kFused ? 0x1p-60 : 0));
  }
}

}  // namespace
}  // namespace hekla::vulkan
