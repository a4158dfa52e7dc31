// SPDX-License-Identifier: Apache-2.0
// RuleBuilder: the rule of an operation, dimension by dimension. Of this folder alone.
//
// One object a rule; one thread.
#pragma once

#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::spmd {

// What cutting a factor means: nothing more, a sum, an exchange with neighbours; or it may not be
// cut.
enum class FactorKind : uint8_t { kPass, kReduction, kPermutation, kReplication };

class RuleBuilder {
 public:
  using Dimension = sharding::ShardingRule::Dimension;

  // Of arrays of known shape alone.
  explicit RuleBuilder(const ir::Operation& op);

  int64_t factor(int64_t size, FactorKind kind = FactorKind::kPass);
  // The factors of dimension d of operand or result i.
  void operand(size_t i, size_t d, Dimension factors) { rule_.operands[i][d] = std::move(factors); }
  void result(size_t i, size_t d, Dimension factors) { rule_.results[i][d] = std::move(factors); }
  const Dimension& operand(size_t i, size_t d) const { return rule_.operands[i][d]; }
  const Dimension& result(size_t i, size_t d) const { return rule_.results[i][d]; }
  // The factor is not propagated.
  void block(int64_t factor) { rule_.blocked_propagation.push_back(factor); }

  // Dimensions without factors have got one of their own that must be whole.
  sharding::ShardingRule rule();

 private:
  const ir::Operation& op_;
  sharding::ShardingRule rule_;
};

// Of operations that pick or put elements at indices.
sharding::ShardingRule rule_of_indexing(const ir::Operation& op);

}  // namespace hekla::spmd
