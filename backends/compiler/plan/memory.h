// SPDX-License-Identifier: Apache-2.0
// Memory planning: buffers that are never alive at the same time share bytes of an arena.
//
// Before it, every slice of an arena is in a buffer of its own: `index` is its number and `offset`
// a place in it. After it, `index` is the arena's and `offset` a place there. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

// Buffers start at multiples of this.
inline constexpr int64_t kArenaAlignment = 64;

// A buffer is alive from the first step that names it to the last; when a loop names it and
// something outside of the loop does as well, all through the loop. Larger buffers are placed
// first, each at the lowest offset that is free all its life; without `reuse` every buffer has
// bytes of its own.
//
// An arena has at most `max_arena_bytes`, 0: no limit, and then there is one. A buffer goes where
// the arenas grow least, and begins another one where none has room; a buffer that is larger than
// the limit is in an arena of its size. RESOURCE_EXHAUSTED: all arenas together have more bytes
// than can be counted.
Status assign_arenas(LaunchPlan& plan, bool reuse = true, int64_t max_arena_bytes = 0);

// Removes copies that are not needed: a value is made where it is to be copied, when nobody needs
// what is there in between. So loops write their carried buffers in place, collectives too, whose
// start and done both stand for the time in between. Run before assign_arenas.
void elide_copies(LaunchPlan& plan);

}  // namespace hekla::plan
