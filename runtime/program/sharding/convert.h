// SPDX-License-Identifier: Apache-2.0
// Shardings of Shardy's form as HloShardings, and back.
//
// HloShardings say where a tensor is and nothing else: open dimensions, priorities, axes that
// propagation must leave alone, and names of axes have no equivalent, and are given up on the way
// there. Everything else survives in both directions. Pure; any thread. Errors are
// INVALID_ARGUMENT: what `check` refuses, and what one form cannot say, in words.
#pragma once

#include <span>

#include "runtime/base/status.h"
#include "runtime/program/sharding/hlo_sharding.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::sharding {

// In canonical form. Within a manual computation `manual` are its axes, which the tensor's
// dimensions may not use. `mesh` is what the sharding's mesh stands for.
Result<HloSharding> to_hlo(const TensorSharding& sharding, const Mesh& mesh, size_t rank,
                           const ManualAxes& manual = {});

struct ShardingOnMesh {
  TensorSharding sharding;  // canonical, dimensions closed; `mesh` inline
  ManualAxes manual;        // the axes that the sharding calls manual
};
// Against a mesh of as many partitions: each tile dimension must be cut by axes and sub-axes of it.
// A maximal sharding gets its own mesh.
Result<ShardingOnMesh> from_hlo(const HloSharding& sharding, const Mesh& mesh, size_t rank);

// The coarsest mesh, of axes "axis_0", "axis_1" ..., against which all these shardings can be read:
// the common refinement of their iotas. One with an explicit list of another order gives the mesh
// its device ids. Tuples count by their elements, shardings without tiles do not. Errors:
// shardings of several numbers of partitions, and orders that have no common refinement.
Result<Mesh> common_mesh(std::span<const HloSharding> shardings, int64_t partitions);

}  // namespace hekla::sharding
