// SPDX-License-Identifier: Apache-2.0
// The code that a launch plan needs: of loops, and of each kernel as a whole, in blocks of rows, or
// both. Pure.
#pragma once

#include <utility>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/plan_options.h"
#include "backends/cpu/execute/persistent_loops.h"
#include "backends/cpu/execute/row_blocks.h"
#include "backends/cpu/jit/kernel_compiler.h"

namespace hekla::cpu {

// Per kernel: whether some step gives one memory as an operand that is read and as one that is
// written, also once an output has taken the memory of its donated input.
std::vector<bool> kernels_in_place(const plan::LaunchPlan& plan);

struct RequestList {
  std::vector<KernelRequest> requests;  // the first ones are the plan's kernels in their order
  std::vector<std::pair<const plan::RowsStep*, RowBlocks>> blocks;  // groups that run in blocks
  FoundLoops loops;

  // The request for a kernel in such blocks; the number of requests when there is none.
  size_t find(int32_t kernel, const RowBlocks& wanted) const;
};

// `plan` outlives the list. `loops` and `schedule_seed`: see find_persistent_loops and plan_kernel.
RequestList list_requests(const plan::LaunchPlan& plan, int vector_bits,
                          plan::PersistentLoops loops = plan::PersistentLoops::kWherePays,
                          uint64_t schedule_seed = 0);

}  // namespace hekla::cpu
