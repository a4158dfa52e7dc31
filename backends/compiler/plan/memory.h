// SPDX-License-Identifier: Apache-2.0
// Memory planning: buffers that are never alive at the same time share bytes of the arena.
//
// Before it, every slice of the arena is a buffer of its own: `index` is its number and `offset` 0.
// After it, `index` is 0 and `offset` a place in one arena. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

// Buffers start at multiples of this.
inline constexpr int64_t kArenaAlignment = 64;

// A buffer is alive from the first step that names it to the last; when a loop names it and
// something outside of the loop does as well, all through the loop. Larger buffers are placed
// first, each at the lowest offset that is free all its life; without `reuse` every buffer has
// bytes of its own.
void assign_arena(LaunchPlan& plan, bool reuse = true);

// Removes copies that are not needed: a value is made where it is to be copied, when nobody needs
// what is there in between. So loops write their carried buffers in place, collectives too, whose
// start and done both stand for the time in between. Run before assign_arena.
void elide_copies(LaunchPlan& plan);

}  // namespace hekla::plan
