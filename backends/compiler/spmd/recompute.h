// SPDX-License-Identifier: Apache-2.0
// OpRecomputer: operations that give the same bits in any parts, computed once more in other parts
// than they were. Users of one array that want it in several ways then share what their operands
// are sent for, and constraints behind a chain of such operations act on its beginning.
//
// One object a program; one thread.
#pragma once

#include <optional>
#include <unordered_map>

#include "backends/compiler/spmd/local_op.h"
#include "backends/compiler/spmd/versions.h"

namespace hekla::spmd {

// Whether `op` is one: elementwise, or moving elements.
bool may_recompute(const ir::Operation& op);

// The rule by the shapes of the program over all partitions: values may have those of parts.
std::optional<sharding::ShardingRule> rule_in_whole(ir::Operation& op, const Versions& versions);

class OpRecomputer : public Recomputer {
 public:
  OpRecomputer(LocalOps& local_ops, const Versions& versions, const PrimeMesh& mesh)
      : local_ops_(local_ops), versions_(versions), mesh_(mesh) {}

  double bytes(ir::Operation& op, const Tiling& tiling) override;
  Status compute(ir::Operation& op, const Tiling& tiling, ir::Block& block) override;
  // Of operations computed so far.
  int64_t count() const { return count_; }

 private:
  const std::optional<sharding::ShardingRule>& rule_of(ir::Operation& op);
  std::optional<OpCut> cut_for(const ir::Operation& op, const sharding::ShardingRule& rule,
                               const Tiling& tiling) const;

  LocalOps& local_ops_;
  const Versions& versions_;
  const PrimeMesh& mesh_;
  int64_t count_ = 0;
  std::unordered_map<const ir::Operation*, std::optional<sharding::ShardingRule>> rules_;
};

}  // namespace hekla::spmd
