// SPDX-License-Identifier: Apache-2.0
// Cumulative reductions by teams (team.h). The points of one scan a block of a line together: their
// elements go through shared memory, so that both the order of memory and that of the reduction are
// right, and what points have is scanned by exchanges. A team goes on from block to block where
// there are lines enough to do side by side; else totals of blocks are scanned in the same way, and
// each block is run through once more from what stands before it. The order of reductions depends
// on shapes, types, the reducer and the teams that the device has room for. Of this folder alone;
// pure, on one thread.
#pragma once

#include <functional>
#include <vector>

#include "backends/compiler/lower/team.h"

namespace hekla::lower {

// Lines of `size` elements along the middle of [outer, size, inner]. The functions are called in
// kernels whose first and third dimensions are the outer and the inner one.
struct TeamScan {
  LoweredSequence& sequence;
  const InMemory& in_memory;
  const LowerOptions& options;
  int64_t outer = 1, size = 1, inner = 1;
  std::vector<DType> dtypes;
  // Of neighbours, in their order.
  std::function<Elements(KernelMaker& k, const Elements& before, const Elements& after)> reduce;
  std::function<Elements(KernelMaker& k, Value i)> load;
  // What the elements up to `i` are reduced to; `i` too.
  std::function<void(KernelMaker& k, Value i, const Elements& elements)> store;
  int64_t largest = 1;  // an index that `load` computes
};

// Empty: the device has teams, the lines lie along memory and the reducer is short.
kernel::Refusal why_no_team_scan(const TeamScan& scan);
Status scan_by_teams(const TeamScan& scan);

}  // namespace hekla::lower
