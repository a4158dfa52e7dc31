// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/lowering.h"

#include <gtest/gtest.h>

namespace hekla::vulkan {
namespace {

using Space = Slice::Space;

LaunchProgram program() {
  LaunchProgram p;
  p.name = "test";
  p.input_bytes = {100, 64};
  p.outputs = {{100, 0}, {8, -1}};
  p.arena_bytes = 1000;
  p.constants.resize(1, std::vector<std::byte>(16));
  p.kernels.resize(1);
  return p;
}

Slice arena(int64_t offset, int64_t bytes) { return {Space::kArena, 0, offset, bytes}; }

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

TEST(CheckProgram, NamesStepAndReason) {
  const auto problem = [](auto change) {
    LaunchProgram p = program();
    change(p);
    return check_program(p);
  };
  EXPECT_TRUE(check_program(program()).ok());
  const auto expect = [&](auto change, const char* part) {
    const Status status = problem(change);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  const auto dispatch = [](LaunchProgram& p, Slice slice, bool is_written) {
    p.steps = {DispatchStep{0, {slice}, {is_written}, {1, 1, 1}, {}, "k"}};
  };
  expect([&](auto& p) { dispatch(p, {Space::kInput, 2, 0, 4}, false); }, "in2[0+4]");
  expect([&](auto& p) { dispatch(p, {Space::kInput, 0, 98, 4}, false); }, "outside");
  expect([&](auto& p) { dispatch(p, {Space::kInput, 0, INT64_MAX, 4}, false); }, "outside");
  expect([&](auto& p) { dispatch(p, {Space::kInput, 0, 0, 4}, true); }, "may not be written");
  expect([&](auto& p) { dispatch(p, {Space::kConstant, 0, 0, 4}, true); }, "may not be written");
  expect([&](auto& p) { p.steps = {DispatchStep{1}}; }, "no kernel 1");
  expect([&](auto& p) { p.steps = {DispatchStep{0, {}, {true}}}; }, "flags");
  expect([&](auto& p) { p.steps = {DispatchStep{0, {}, {}, {1U << 16, 1U << 15, 1}}}; }, "grid");
  expect([&](auto& p) { p.steps = {DispatchStep{0, {}, {}, {~0U, ~0U, ~0U}}}; }, "grid");
  expect(
      [&](auto& p) {
        p.steps = {DispatchStep{0, {}, {}, {1, 1, 1}, std::vector<uint32_t>(27)}};
      },
      "27 push constants");
  expect([&](auto& p) { p.steps = {CopyStep{arena(0, 4), arena(8, 8)}}; }, "a copy of");
  expect([&](auto& p) { p.steps = {CopyStep{arena(0, 8), arena(4, 8)}}; }, "overlap");
  expect([&](auto& p) { p.steps = {HostStep{}}; }, "host step");
  expect([&](auto& p) { p.steps = {LoopStep{"l", {}, 0, arena(0, 4)}}; }, "one byte");
  expect([&](auto& p) { p.steps = {LoopStep{"l", {}, 3, arena(0, 1)}}; }, "3 turns");
  expect(
      [&](auto& p) {
        p.steps = {LoopStep{"l", {DispatchStep{7}}, 3, {}}};
      },
      "step 0 of the loop");
  expect([&](auto& p) { dispatch(p, {Space::kLoopState, 0, 0, 4}, false); }, "not there");
  expect([&](auto& p) { p.outputs[1].alias_input = 1; }, "alias");
  expect([&](auto& p) { p.outputs.push_back({100, 0}); }, "alias");
}

TEST(Lowering, PutsBarriersWhereStepsConflict) {
  LaunchProgram p = program();
  const auto kernel = [](Slice from, Slice to) {
    return DispatchStep{0, {from, to}, {false, true}, {1, 1, 1}, {}, ""};
  };
  p.steps = {kernel({Space::kInput, 1, 0, 64}, arena(0, 64)),
             kernel({Space::kInput, 1, 0, 64}, arena(64, 64)),  // beside the first
             kernel(arena(0, 64), arena(128, 64)),              // after the first
             kernel(arena(64, 64), arena(192, 64)),             // that barrier served it
             kernel(arena(128, 4), {Space::kOutput, 1, 0, 4}),  // after the third
             DispatchStep{0, {}, {}, {4, 0, 1}}};               // nothing to do
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

TEST(Lowering, AnAliasIsOneMemoryAndIsCopiedFirstWhenItMustBe) {
  LaunchProgram p = program();
  // Reads the input, then writes the output that aliases it.
  p.steps = {DispatchStep{0, {{Space::kInput, 0, 0, 100}, arena(0, 100)}, {false, true}},
             DispatchStep{0, {{Space::kOutput, 0, 50, 8}}, {true}}};
  const LoweredProgram donated = *lower_program(p, {true, false}, {});
  EXPECT_EQ(donated.dispatch_count, 2);
  EXPECT_TRUE(donated.parts[0].recordings[0].dispatches[1].has_barrier_before);
  const LoweredProgram copied = *lower_program(p, {false, false}, {});
  EXPECT_EQ(copied.dispatch_count, 3);
  EXPECT_EQ(copied.parts[0].recordings[0].dispatches[0].pipeline, 1u);  // the copy kernel
  EXPECT_TRUE(copied.parts[0].recordings[0].dispatches[1].has_barrier_before);
}

TEST(Lowering, HostStepsSplitAndBytesWidenToWords) {
  LaunchProgram p = program();
  HostStep host;
  host.run = [](const HostCall&) { return ok_status(); };
  p.steps = {FillStep{arena(0, 5), 1}, FillStep{arena(5, 3), 2}, host, FillStep{arena(8, 4), 3},
             FillStep{arena(12, 4), 4}};
  const LoweredProgram lowered = *lower_program(p, {true, false}, {});
  ASSERT_EQ(lowered.parts.size(), 3u);
  EXPECT_TRUE(
      lowered.parts[0].recordings[0].dispatches[1].has_barrier_before);  // one word in common
  EXPECT_NE(lowered.parts[1].host, nullptr);
  EXPECT_FALSE(lowered.parts[2].recordings[0].dispatches[1].has_barrier_before);
}

}  // namespace
}  // namespace hekla::vulkan
