// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/rule_builder.h"
#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

RuleBuilder::RuleBuilder(const ir::Operation& op) : op_(op) {
  for (const ir::Value* operand : op.operands()) {
    rule_.operands.emplace_back(operand->type().dims().size());
  }
  for (size_t i = 0; i < op.result_count(); ++i) {
    rule_.results.emplace_back(op.result(i)->type().dims().size());
  }
}

int64_t RuleBuilder::factor(int64_t size, FactorKind kind) {
  const auto number = static_cast<int64_t>(rule_.factor_sizes.size());
  rule_.factor_sizes.push_back(size);
  if (kind == FactorKind::kReduction) rule_.reduction.push_back(number);
  if (kind == FactorKind::kPermutation) rule_.permutation.push_back(number);
  if (kind == FactorKind::kReplication) rule_.need_replication.push_back(number);
  return number;
}

ShardingRule RuleBuilder::rule() {
  const auto fill = [&](ShardingRule::Tensor& dimensions, const Dims& dims) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!dimensions[d].empty()) continue;
      dimensions[d] = {
          factor(dims[d], dims[d] == 1 ? FactorKind::kPass : FactorKind::kReplication)};
    }
  };
  for (size_t i = 0; i < op_.operand_count(); ++i) {
    fill(rule_.operands[i], op_.operand(i)->type().dims());
  }
  for (size_t i = 0; i < op_.result_count(); ++i) {
    fill(rule_.results[i], op_.result(i)->type().dims());
  }
  return std::move(rule_);
}

namespace {

ShardingRule dynamic_slice(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims& from = op.operand(0)->type().dims();
  const Dims& to = op.result()->type().dims();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != to[d]) {
      // Whoever has the elements gives them to a sum, the others nothing.
      const int64_t picked = b.factor(from[d], FactorKind::kReduction);
      b.operand(0, d, {picked});
      b.block(picked);
      continue;
    }
    const int64_t factor = b.factor(from[d]);
    b.operand(0, d, {factor});
    b.result(0, d, {factor});
  }
  return b.rule();
}

ShardingRule dynamic_update_slice(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims& whole = op.operand(0)->type().dims();
  const Dims& update = op.operand(1)->type().dims();
  for (size_t d = 0; d < whole.size(); ++d) {
    const int64_t factor = b.factor(whole[d]);
    b.operand(0, d, {factor});
    b.result(0, d, {factor});
    if (whole[d] == update[d]) b.operand(1, d, {factor});
  }
  return b.rule();
}

// The dimensions of an array that are not in a list, ascending.
std::vector<size_t> others(size_t rank, const std::vector<int64_t>& list) {
  std::vector<size_t> found;
  for (size_t d = 0; d < rank; ++d) {
    if (!contains(list, static_cast<int64_t>(d))) found.push_back(d);
  }
  return found;
}

ShardingRule gather(const ir::Operation& op) {
  const auto* n = op.attribute("dimension_numbers").get<ir::GatherDimensionNumbers>();
  RuleBuilder b(op);
  const Dims& operand = op.operand(0)->type().dims();
  const Dims& indices = op.operand(1)->type().dims();
  const Dims& result = op.result()->type().dims();
  const std::vector<int64_t> sizes = ir::int_list(op, "slice_sizes");
  // Indices and the result's dimensions that are no offsets correspond in order.
  const std::vector<size_t> of_result = others(result.size(), n->offset_dims);
  const std::vector<size_t> of_indices = others(indices.size(), {n->index_vector_dim});
  for (size_t i = 0; i < of_indices.size() && i < of_result.size(); ++i) {
    const int64_t factor = b.factor(indices[of_indices[i]]);
    b.operand(1, of_indices[i], {factor});
    b.result(0, of_result[i], {factor});
  }
  for (size_t i = 0; i < n->operand_batching_dims.size(); ++i) {
    b.operand(0, static_cast<size_t>(n->operand_batching_dims[i]),
              b.operand(1, static_cast<size_t>(n->start_indices_batching_dims[i])));
  }
  size_t offset = 0;
  for (size_t d = 0; d < operand.size(); ++d) {
    const auto k = static_cast<int64_t>(d);
    if (contains(n->operand_batching_dims, k)) continue;
    if (contains(n->collapsed_slice_dims, k)) {
      if (contains(n->start_index_map, k)) {
        b.operand(0, d, {b.factor(operand[d], FactorKind::kReduction)});
      }
      continue;
    }
    const auto place = static_cast<size_t>(n->offset_dims[offset++]);
    if (sizes[d] != operand[d]) continue;
    const int64_t factor = b.factor(operand[d]);
    b.operand(0, d, {factor});
    b.result(0, place, {factor});
  }
  return b.rule();
}

ShardingRule scatter(const ir::Operation& op) {
  const auto* n = op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
  RuleBuilder b(op);
  const size_t count = op.result_count();
  const Dims& operand = op.operand(0)->type().dims();
  const Dims& indices = op.operand(count)->type().dims();
  const Dims& updates = op.operand(count + 1)->type().dims();
  const auto set_updates = [&](size_t d, const RuleBuilder::Dimension& factors) {
    for (size_t i = 0; i < count; ++i) b.operand(count + 1 + i, d, factors);
  };
  const auto set_whole = [&](size_t d, const RuleBuilder::Dimension& factors) {
    for (size_t i = 0; i < count; ++i) {
      b.operand(i, d, factors);
      b.result(i, d, factors);
    }
  };
  const std::vector<size_t> of_updates = others(updates.size(), n->update_window_dims);
  const std::vector<size_t> of_indices = others(indices.size(), {n->index_vector_dim});
  for (size_t i = 0; i < of_indices.size() && i < of_updates.size(); ++i) {
    const size_t d = of_indices[i];
    const auto batch = std::find(n->scatter_indices_batching_dims.begin(),
                                 n->scatter_indices_batching_dims.end(), static_cast<int64_t>(d));
    const bool is_batch = batch != n->scatter_indices_batching_dims.end();
    // Every update goes into the operand: parts of them make parts of a sum.
    const int64_t factor =
        b.factor(indices[d], is_batch ? FactorKind::kPass : FactorKind::kReduction);
    b.operand(count, d, {factor});
    set_updates(of_updates[i], {factor});
    if (is_batch) {
      set_whole(static_cast<size_t>(n->input_batching_dims[static_cast<size_t>(
                    batch - n->scatter_indices_batching_dims.begin())]),
                {factor});
    }
  }
  size_t window = 0;
  for (size_t d = 0; d < operand.size(); ++d) {
    const auto k = static_cast<int64_t>(d);
    if (contains(n->input_batching_dims, k)) continue;
    const bool is_inserted = contains(n->inserted_window_dims, k);
    if (is_inserted) {
      if (contains(n->scatter_dims_to_operand_dims, k)) set_whole(d, {b.factor(operand[d])});
      continue;
    }
    const auto place = static_cast<size_t>(n->update_window_dims[window++]);
    if (updates[place] != operand[d]) continue;
    const int64_t factor = b.factor(operand[d]);
    set_whole(d, {factor});
    set_updates(place, {factor});
  }
  return b.rule();
}

}  // namespace

ShardingRule rule_of_indexing(const ir::Operation& op) {
  switch (op.code()) {
    case OpCode::kDynamicSlice:
      return dynamic_slice(op);
    case OpCode::kDynamicUpdateSlice:
      return dynamic_update_slice(op);
    case OpCode::kGather:
      return gather(op);
    default:
      return scatter(op);
  }
}

}  // namespace hekla::spmd
