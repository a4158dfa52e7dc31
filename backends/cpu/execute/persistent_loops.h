// SPDX-License-Identifier: Apache-2.0
// Which loops of a launch plan run as one function each (codegen/emit_loop.h): those whose
// iterations take hardly longer than calling their kernels. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/plan_options.h"
#include "backends/cpu/jit/kernel_compiler.h"

namespace hekla::cpu {

struct FoundLoops {
  std::vector<LoopRequest> loops;
  std::vector<plan::Decision> decisions;  // of all loops that were looked at

  bool contains(const plan::Step& step) const;
};

// Outer loops before those inside: of kernels that one thread runs as a whole, copies, loops and
// branches. `in_place`: see kernels_in_place. `keep_apart`: steps that have a way of their own. A
// `schedule_seed` that is not 0 draws the kernels' schedules, and whether there are any loops
// unless `wanted` says it. `plan` outlives the result.
FoundLoops find_persistent_loops(const plan::LaunchPlan& plan, const std::vector<bool>& in_place,
                                 const std::vector<const plan::RowsStep*>& keep_apart,
                                 int vector_bits, plan::PersistentLoops wanted,
                                 uint64_t schedule_seed);

}  // namespace hekla::cpu
