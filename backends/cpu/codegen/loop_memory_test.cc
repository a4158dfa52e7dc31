// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/loop_memory.h"

#include <gtest/gtest.h>

namespace hekla::cpu {
namespace {

using plan::CopyStep;
using plan::Slice;
using Space = plan::Slice::Space;

Slice arena(int64_t offset, int64_t bytes) { return {Space::kArena, 0, offset, bytes}; }

struct Made {
  plan::LaunchPlan plan;
  LoopMemory memory() const { return LoopMemory(plan.steps[0], plan); }
};

Made loop_of(std::vector<CopyStep> copies) {
  Made made;
  made.plan.input_bytes = {64, 64};
  made.plan.output_bytes = {64, 64};
  made.plan.output_input = {1, -1};
  plan::RepeatStep loop{3, {}};
  for (const CopyStep& copy : copies) loop.body.push_back({copy});
  made.plan.steps = {{loop}};
  return made;
}

TEST(LoopMemory, SlicesThatOverlapAreOneRegion) {
  const Made made = loop_of(
      {{arena(0, 8), arena(16, 8)}, {arena(4, 8), arena(24, 8)}, {arena(8, 8), arena(128, 4)}});
  const LoopMemory memory = made.memory();
  EXPECT_EQ(memory.bases().size(), 1u);
  // Through the one between them, but not for touching.
  EXPECT_EQ(memory.region_of(arena(0, 8)), memory.region_of(arena(8, 8)));
  EXPECT_NE(memory.region_of(arena(16, 8)), memory.region_of(arena(24, 8)));
  EXPECT_NE(memory.region_of(arena(8, 8)), memory.region_of(arena(16, 8)));
  EXPECT_EQ(memory.region_count(), 4u);
}

TEST(LoopMemory, AnOutputMayBeTheInputThatItTakes) {
  const Slice input{Space::kInput, 1, 8, 8}, output{Space::kOutput, 0, 12, 8};
  const Slice other_input{Space::kInput, 0, 8, 8}, other_output{Space::kOutput, 1, 8, 8};
  const Made made = loop_of({{input, output}, {other_input, other_output}});
  const LoopMemory memory = made.memory();
  EXPECT_EQ(memory.bases().size(), 4u);
  EXPECT_NE(memory.base_of(input), memory.base_of(output));
  EXPECT_EQ(memory.region_of(input), memory.region_of(output));
  EXPECT_NE(memory.region_of(other_input), memory.region_of(other_output));
  EXPECT_NE(memory.region_of(other_input), memory.region_of(input));
}

TEST(LoopMemory, OneBufferIsNotAnother) {
  const Slice second{Space::kArena, 1, 0, 8}, constant{Space::kConstant, 0, 0, 8};
  const Made made = loop_of({{arena(0, 8), second}, {constant, arena(32, 8)}});
  const LoopMemory memory = made.memory();
  EXPECT_EQ(memory.bases().size(), 3u);
  EXPECT_EQ(memory.region_count(), 4u);
  EXPECT_NE(memory.region_of(arena(0, 8)), memory.region_of(second));
}

}  // namespace
}  // namespace hekla::cpu
