// SPDX-License-Identifier: Apache-2.0
// Lowering: a LaunchProgram's steps as what is recorded; pure.
//
// Copies and fills become dispatches of their kernels (their addresses change with each launch, so
// vkCmdCopyBuffer cannot be recorded once). Host steps split the program into parts. Each dispatch
// gets its place in the launch's argument table and, where the hazard tracker finds one, a barrier.
#pragma once

#include <vector>

#include "backends/vulkan/launch/hazards.h"
#include "backends/vulkan/launch/kernel_abi.h"
#include "backends/vulkan/launch/steps.h"

namespace hekla::vulkan {

struct LoweredDispatch {
  size_t pipeline = 0;                       // kernels of the program, then copy, fill, loop gate
  size_t first_entry = 0;                    // in the table
  KernelPush push;                           // without the table's address
  std::array<uint32_t, 3> grid = {1, 1, 1};  // for vkCmdDispatch
  bool has_barrier_before = false;
  // Bytes into the loop state where vkCmdDispatchIndirect finds the grid; -1: `grid` counts.
  int64_t indirect_offset = -1;
};

// A run of dispatches that is one submission, or one host step.
struct LoweredPart {
  std::vector<LoweredDispatch> dispatches;
  int64_t barrier_count = 0;
  const HostStep* host = nullptr;  // borrowed from the program
  std::vector<size_t> next = {};   // parts, by the host step's choice; empty: the next one
  // How often it is submitted.
  int64_t repeats = 1;
  // Bytes into the loop state of the word that, when not zero after the part has passed, makes it
  // run again; -1: none.
  int64_t flag_offset = -1;
};

struct LoweredProgram {
  std::vector<LoweredPart> parts;
  std::vector<Slice> table;  // one entry per operand of each dispatch
  // What the loop state begins with: per conditional loop what loop_gate.comp says.
  std::vector<uint32_t> loop_state;
  // More than one submission, so other launches may run in between.
  bool is_split() const {
    return parts.size() > 1 ||
           (parts.size() == 1 && (parts[0].repeats > 1 || parts[0].flag_offset >= 0));
  }
  int64_t dispatch_count = 0;
  int64_t barrier_count = 0;
  int64_t host_step_count = 0;
};

// Of a loop with a trip count; longer ones are submitted in pieces.
inline constexpr int64_t kMaxInlineDispatches = 16384;
// Of a loop with a condition, per submission.
inline constexpr int64_t kDispatchesPerChunk = 256;
inline constexpr int64_t kMaxTurnsPerChunk = 64;

struct LoweringOptions {
  std::array<uint32_t, 3> max_group_count = {65535, 65535, 65535};
  // Proves the barriers with the second algorithm; quadratic in the steps between two barriers.
  bool check_barriers = false;
  // A barrier in front of every dispatch: if a wrong result goes away, the tracker is guilty.
  bool all_barriers = false;
};

// `is_copied` per output: its aliased input was not donated, so it is copied first. The program was
// checked and outlives the result. INTERNAL: the checker found a missing barrier.
Result<LoweredProgram> lower_program(const LaunchProgram& program,
                                     const std::vector<bool>& is_copied,
                                     const LoweringOptions& options);

}  // namespace hekla::vulkan
