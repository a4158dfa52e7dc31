// SPDX-License-Identifier: Apache-2.0
// Lowering: a launch plan's steps as what is recorded; pure.
//
// Copies become dispatches of their kernel (their addresses change with each launch, so
// vkCmdCopyBuffer cannot be recorded once). What needs the host splits the plan into parts, the
// loops and branches around it too, which the host then decides. Each dispatch gets its offset in
// the launch's argument table and, where the hazard tracker finds one, a barrier.
//
// Control flow on the device: the steps between two decisions are a block. The dispatches of all
// blocks but the first take their grids from the loop state (vkCmdDispatchIndirect), and these are
// zero unless the block is the current one. A block ends with a gate
// (shaders/memory/loop_gate.comp), which looks at a condition, a selector or a counter, empties the
// grids of its block and fills those of the next. So a recording may hold any number of iterations
// of any loops, one in another: what is not the current block does nothing, and when they do not
// suffice the recording is simply submitted again. The state's first word of a part tells which
// block is current.
#pragma once

#include <optional>
#include <vector>

#include "backends/vulkan/launch/hazards.h"
#include "backends/vulkan/launch/host_part.h"
#include "backends/vulkan/launch/kernel_abi.h"
#include "backends/vulkan/launch/launch_program.h"

namespace hekla::vulkan {

// The pipelines of a program: its kernels by number, then these.
inline size_t contraction_pipeline(const LaunchProgram& program, size_t number) {
  return program.kernels.size() + number;
}
inline size_t copy_pipeline(const LaunchProgram& program) {
  return program.kernels.size() + program.contractions.size();
}
inline size_t gate_pipeline(const LaunchProgram& program) { return copy_pipeline(program) + 1; }
inline size_t loop_pipeline(const LaunchProgram& program, size_t number) {
  return gate_pipeline(program) + 1 + number;
}

// Whose address an entry of the argument table is; nullopt: the launch's loop state.
using TableEntry = std::optional<plan::Slice>;

struct LoweredDispatch {
  size_t pipeline = 0;
  size_t first_entry = 0;                    // in the table
  KernelPush push;                           // without the table's address
  std::array<uint32_t, 3> grid = {1, 1, 1};  // for vkCmdDispatch
  bool has_barrier_before = false;
  // Bytes into the loop state where vkCmdDispatchIndirect finds the grid; -1: `grid` counts.
  int64_t indirect_offset = -1;
  // Of the plan; of a gate the one before it, null in front of all.
  const plan::Step* step = nullptr;
};

// What goes into one command buffer.
struct LoweredRecording {
  std::vector<LoweredDispatch> dispatches;
  int64_t barrier_count = 0;
  int64_t repeats = 1;  // in a row, in one submission
  int64_t loop = -1;    // into LoweredProgram::loops, which says how often instead
};

// A loop whose iterations the device decides, recorded as pieces of several iterations.
struct LoweredLoop {
  int64_t iterations_per_piece = 1;
  int64_t first_pieces = 1;  // of a first submission, when no launch is there to learn from
  int64_t max_pieces = 1;    // of any submission
  // Bytes into the loop state of a word that counts iterations; -1 when an iteration may take
  // several pieces.
  int64_t iterations_offset = -1;
};

// One submission, again until the device comes to the end of its blocks; or something of the host.
struct LoweredPart {
  std::vector<LoweredRecording> recordings;
  std::optional<HostPart> host;
  std::vector<size_t> next = {};  // parts, by the host's choice; empty: the one after this
  // Bytes into the loop state of the word with the current block; -1: a part without decisions.
  int64_t block_offset = -1;
  uint32_t end_block = 0;
  std::vector<size_t> recording_of_block;  // the first that holds some of it
};

struct LoweredProgram {
  std::vector<LoweredPart> parts;
  std::vector<TableEntry> table;  // one per operand of each dispatch
  std::vector<LoweredLoop> loops;
  std::vector<uint32_t> loop_state;  // what it begins with, and is again after each launch
  // Possibly more than one submission, so other launches may run in between.
  bool is_split() const {
    return parts.size() > 1 || (parts.size() == 1 && parts[0].block_offset >= 0);
  }
  int64_t dispatch_count = 0;  // recorded, repeats not counted
  int64_t barrier_count = 0;
  int64_t host_step_count = 0;
  size_t host_counter_count = 0;  // see HostPart
};

// Of one command buffer, where it may be cut; and of a counted loop that stands in another one.
inline constexpr int64_t kMaxDispatchesPerRecording = 1024;
// Watchdogs limit what may be submitted at once; a GPU's dispatch takes microseconds.
inline constexpr int64_t kMaxDispatchesPerSubmission = 65536;
// Of a piece of a loop whose iterations the device decides.
inline constexpr int64_t kDispatchesPerPiece = 256;
inline constexpr int64_t kMaxIterationsPerPiece = 64;

struct LoweringOptions {
  std::array<uint32_t, 3> max_group_count = {65535, 65535, 65535};
  // Proves the barriers with the second algorithm; quadratic in the steps between two barriers.
  bool check_barriers = false;
  // A barrier in front of every dispatch: if a wrong result goes away, the tracker is guilty.
  bool all_barriers = false;
  int64_t max_dispatches_per_submission = kMaxDispatchesPerSubmission;
};

// `is_shared` per output: it has the memory of the input that output_input names. The program was
// checked and outlives the result. INTERNAL: the checker found a missing barrier.
Result<LoweredProgram> lower_program(const LaunchProgram& program,
                                     const std::vector<bool>& is_shared,
                                     const LoweringOptions& options);

}  // namespace hekla::vulkan
