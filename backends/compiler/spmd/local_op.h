// SPDX-License-Identifier: Apache-2.0
// Local operations: an operation on arrays that are cut becomes the same on their parts, with
// attributes of the parts' sizes, and collectives behind it where parts of a sum are summed.
//
// One object a program; one thread. Errors are the builder's.
#pragma once

#include <vector>

#include "backends/compiler/spmd/op_cut.h"
#include "backends/compiler/spmd/reshard.h"
#include "backends/compiler/spmd/versions.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// Whether `op` can be computed in parts of a factor of its rule; `is_even`: parts of equal size.
bool may_cut(const ir::Operation& op, const sharding::ShardingRule& rule, int64_t factor,
             bool is_even);

class LocalOps {
 public:
  LocalOps(Resharder& resharder, Versions& versions, const PrimeMesh& mesh)
      : resharder_(resharder), versions_(versions), mesh_(mesh) {}

  // Appends what computes `op`, which stands in no block, in parts as `cut` says. Its results are
  // known by `versions` afterwards, as near to `wanted` as costs nothing more. Regions move from
  // `op` to what is made.
  Status compute(ir::Operation& op, const sharding::ShardingRule& rule, const OpCut& cut,
                 const std::vector<Tiling>& wanted, ir::Block& block);

 private:
  struct Job;  // one call of compute

  void adapt_attributes(Job& job) const;
  void shift_indices(Job& job);
  void finish(Job& job);

  Resharder& resharder_;
  Versions& versions_;
  const PrimeMesh& mesh_;
};

}  // namespace hekla::spmd
