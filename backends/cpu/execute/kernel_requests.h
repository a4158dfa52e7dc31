// SPDX-License-Identifier: Apache-2.0
// The code that a launch plan needs: of each kernel as a whole, in blocks of rows, or both. Pure.
#pragma once

#include <utility>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/cpu/execute/row_blocks.h"
#include "backends/cpu/jit/kernel_compiler.h"

namespace hekla::cpu {

// Per kernel: whether some step gives one memory as an operand that is read and as one that is
// written, also once an output has taken the memory of its donated input.
std::vector<bool> kernels_in_place(const plan::LaunchPlan& plan);

struct RequestList {
  std::vector<KernelRequest> requests;  // the first ones are the plan's kernels in their order
  std::vector<std::pair<const plan::RowsStep*, RowBlocks>> blocks;  // groups that run in blocks

  // The request for a kernel in such blocks; the number of requests when there is none.
  size_t find(int32_t kernel, const RowBlocks& wanted) const;
};

// `plan` outlives the list.
RequestList list_requests(const plan::LaunchPlan& plan, int vector_bits);

}  // namespace hekla::cpu
