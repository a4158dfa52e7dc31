// SPDX-License-Identifier: Apache-2.0
// rotate_loops: carried buffers of counted loops rotate instead of being copied. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

// A body that ends with copies of what it made to the carried buffers is unrolled, each iteration
// writing what the next one reads, so that after the last one every value is where the first
// expects it. Iterations that are left over run, with their copies, before the loop. Loops whose
// trip count is not known, or whose bodies are long, stay. Between elide_copies and assign_arenas.
void rotate_loops(LaunchPlan& plan);

}  // namespace hekla::plan
