// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/recompute.h"

#include <limits>
#include <utility>

#include "backends/compiler/spmd/rules.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

bool may_recompute(const ir::Operation& op) {
  if (op.result_count() != 1 || op.region_count() != 0) return false;
  if (ir::is_elementwise(op.code())) return true;
  switch (op.code()) {
    case OpCode::kBitcastConvert:
    case OpCode::kBroadcastInDim:
    case OpCode::kConcatenate:
    case OpCode::kPad:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return true;
    default:
      return false;
  }
}

std::optional<ShardingRule> rule_in_whole(ir::Operation& op, const Versions& versions) {
  std::vector<std::pair<ir::Value*, ir::Type>> local;
  for (ir::Value* operand : op.operands()) {
    const ir::Type& whole = versions.type(operand);
    if (operand->type() == whole) continue;
    local.emplace_back(operand, operand->type());
    operand->set_type(whole);
  }
  std::optional<ShardingRule> rule = rule_of(op);
  for (auto& [value, type] : local) value->set_type(std::move(type));
  return rule;
}

const std::optional<ShardingRule>& OpRecomputer::rule_of(ir::Operation& op) {
  const auto [found, is_new] = rules_.try_emplace(&op);
  if (is_new) found->second = rule_in_whole(op, versions_);
  return found->second;
}

std::optional<OpCut> OpRecomputer::cut_for(const ir::Operation& op, const ShardingRule& rule,
                                           const Tiling& tiling) const {
  CutProblem problem{mesh_, rule, {}, {}, {}, {}, {}};
  problem.results.push_back({op.result()->type(), {tiling}});
  problem.may_cut = [&](int64_t factor, bool is_even) {
    return may_cut(op, rule, factor, is_even);
  };
  return cut_of_result(problem);
}

double OpRecomputer::bytes(ir::Operation& op, const Tiling& tiling) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::optional<ShardingRule>& rule = rule_of(op);
  if (!rule) return kNever;
  const std::optional<OpCut> cut = cut_for(op, *rule, tiling);
  if (!cut) return kNever;
  double bytes = 0;
  for (size_t i = 0; i < op.operand_count(); ++i) {
    bytes += local_ops_.operand_bytes(op, *rule, *cut, i);
  }
  return bytes;
}

Status OpRecomputer::compute(ir::Operation& op, const Tiling& tiling, ir::Block& block) {
  ++count_;
  const std::optional<ShardingRule>& rule = rule_of(op);
  return local_ops_.compute(op, *rule, *cut_for(op, *rule, tiling), {tiling}, block);
}

}  // namespace hekla::spmd
