// SPDX-License-Identifier: Apache-2.0
// Manual computations: regions in which some axes of the mesh are the program's own business. Their
// arrays are parts by those axes; the axes that are left free cut them further as anywhere else.
//
// Of this folder alone. Pure functions; any thread.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

// How an array outside lies where a manual computation begins or ends.
struct ManualBorder {
  sharding::HloSharding own;  // by the manual axes alone
  sharding::HloSharding all;  // by the free axes that the program names, too
  std::vector<bool> open;     // by dimension: whether free axes may be appended
};

// Of operand or result k, `name` being "in_shardings" or "out_shardings". INVALID_ARGUMENT: the
// operation says nothing of it or names no mesh; UNIMPLEMENTED: arrays on one partition alone.
Result<ManualBorder> manual_border(const ir::Operation& op, const char* name, size_t k, size_t rank,
                                   const ir::Module& module);

// A manual computation in the terms of the mesh.
struct Manual {
  Axes axes;                    // nothing inside may be cut by them
  std::vector<Tiling> in, out;  // what they cut of operand and result k; of no rank where those are
                                // no arrays of known shape
};
using Manuals = std::unordered_map<const ir::Operation*, Manual>;

// None where the mesh has no words for it: the body is not cut any further then.
Result<std::optional<Manual>> manual_of(const ir::Operation& op, const PrimeMesh& mesh,
                                        const ir::Module& module);

// The tiling of the array outside whose parts inside lie as `inside` says; and back, none where
// `outside` does not begin with `border`.
Tiling joined_tiling(const Tiling& border, const Tiling& inside);
std::optional<Tiling> tiling_inside(const Tiling& border, const Tiling& outside);

}  // namespace hekla::spmd
