// SPDX-License-Identifier: Apache-2.0
// Propagation: from the shardings that a program gives some of its arrays to one for each of them.
//
// Pure; one thread a call.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/compiler/spmd/manual.h"
#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// What the program says of an array. Dimensions without a word are closed.
struct Given {
  Tiling tiling;
  std::vector<bool> open;         // by dimension: axes may be appended; may be shorter
  std::vector<int64_t> priority;  // by dimension, 0 first; may be shorter
  Axes replicated;                // axes that may not cut the array any further
};

using Tilings = std::unordered_map<const ir::Value*, Tiling>;

// A tiling for every array of known shape in `block` and in the regions of its operations that are
// control flow (while, case, if), such that given dimensions begin with what was given and closed
// ones are just that. Values that are not in the result are replicated. What is inferred cuts
// evenly; what cuts unevenly is passed on only where dimensions are the same on both sides.
//
// The custom call `hekla.constraint` (one operand, one result of the same type) is where a sharding
// may change: its result is in `given`. Operations that have no rule (rules.h) and are not control
// flow pass nothing on; results of theirs may be in `given`. Regions of reductions, sorts and
// scatters are not entered. Manual computations are where `manuals` has them: what cuts an array
// outside beyond the manual axes cuts it inside, and the other way round, if both are open.
Tilings propagate(const ir::Block& block, const PrimeMesh& mesh,
                  const std::unordered_map<const ir::Value*, Given>& given,
                  const Manuals& manuals = {});

}  // namespace hekla::spmd
