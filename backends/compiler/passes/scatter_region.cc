// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/scatter_region.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/compiler/passes/only_operation.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

bool is_element(const ir::Value* value) {
  return value->type().is_static_tensor() && value->type().rank() == 0 &&
         value->type().quantization() == nullptr;
}

// Values around the region may be among the operands: a map may use them as the scatter did.
bool is_elementwise(const ir::Block& block) {
  return std::ranges::all_of(block.operations(), [&](const auto& op) {
    return (op.get() == block.terminator() || op->code() == OpCode::kConstant ||
            ir::is_elementwise(op->code())) &&
           std::ranges::all_of(op->operands(), is_element);
  });
}

}  // namespace

ScatterRegion scatter_region_of(const ir::Operation& scatter) {
  using Kind = ScatterRegion::Kind;
  const ir::Block& block = scatter.region(0).front();
  const ir::Operation& end = *block.terminator();
  if (scatter.region(0).blocks().size() != 1 || block.argument_count() != 2 ||
      end.operand_count() != 1) {
    return {};
  }
  if (end.operand(0) == block.argument(1)) return {Kind::kSet};
  const ir::Operation* reducer = folding_operation(block);
  if (reducer != nullptr &&
      (ir::is_commutative_reducer(reducer->code()) || reducer->code() == OpCode::kSubtract)) {
    return {Kind::kReduce, reducer};
  }
  const bool keeps_type = end.operand(0)->type().dtype() == scatter.result()->type().dtype();
  return {keeps_type && is_elementwise(block) ? Kind::kMap : Kind::kOther};
}

ir::Value* apply_scatter_region(ir::GraphBuilder& g, const ir::Operation& scatter,
                                ir::Value* before, ir::Value* update) {
  const ScatterRegion region = scatter_region_of(scatter);
  if (region.kind == ScatterRegion::Kind::kSet) return update;
  if (region.kind == ScatterRegion::Kind::kReduce) {
    const bool forward = region.reducer->operand(0)->index() == 0;
    return g.make(region.reducer->code(),
                  forward ? std::vector{before, update} : std::vector{update, before},
                  region.reducer->attributes());
  }
  std::vector<int64_t> dims(before->type().dims().size());
  std::iota(dims.begin(), dims.end(), int64_t{0});
  ir::AttributeMap attributes;
  attributes.set("dimensions", ir::i64_array(std::move(dims)));
  auto map = std::make_unique<ir::Operation>(OpCode::kMap, std::vector{before, update},
                                             std::vector{before->type()}, std::move(attributes),
                                             scatter.location());
  ir::ValueMap known;
  ir::clone_region(scatter.region(0), map->add_region(), known);
  return g.block().insert_before(&scatter, std::move(map))->result();
}

}  // namespace hekla::passes
