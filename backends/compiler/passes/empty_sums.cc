// SPDX-License-Identifier: Apache-2.0
// Reductions over no elements are what they begin with.
#include <algorithm>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

bool is_any_zero(const ir::Value& array, const std::vector<int64_t>& dimensions) {
  return std::any_of(dimensions.begin(), dimensions.end(),
                     [&](int64_t d) { return array.type().dims()[static_cast<size_t>(d)] == 0; });
}

// Result i of a fold over nothing, in front of `op`.
ir::Value* beginning_of(ir::Operation& op, size_t i, ir::Value* scalar) {
  ir::AttributeMap attributes;
  attributes.set("broadcast_dimensions", ir::IntArrayValue{DType::kI64, {}});
  auto made = std::make_unique<ir::Operation>(
      OpCode::kBroadcastInDim, std::vector<ir::Value*>{scalar},
      std::vector<ir::Type>{op.result(i)->type()}, std::move(attributes), op.location());
  return op.block()->insert_before(&op, std::move(made))->result();
}

bool is_empty_reduction(const ir::Operation& op) {
  return op.code() == OpCode::kReduce && has_plain_types(op) &&
         is_any_zero(*op.operand(0), ir::int_list(op, "dimensions"));
}

void fold_block(ir::Block& block) {
  std::vector<ir::Operation*> order;
  for (const auto& op : block.operations()) order.push_back(op.get());
  for (ir::Operation* op : order) {
    for (size_t r = 0; r < op->region_count(); ++r) {
      for (const auto& inner : op->region(r).blocks()) fold_block(*inner);
    }
    if (!is_empty_reduction(*op)) continue;
    for (size_t i = 0; i < op->result_count(); ++i) {
      op->result(i)->replace_all_uses_with(
          beginning_of(*op, i, op->operand(op->result_count() + i)));
    }
    block.erase(op);
  }
}

}  // namespace

void fold_empty_sums(ir::Module& module) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) fold_block(*block);
  }
}

}  // namespace hekla::passes
