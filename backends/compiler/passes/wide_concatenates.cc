// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Value;

// The operands that have elements, and in the place of a concatenate along the same dimension that
// nothing else uses, its operands.
void collect(const ir::Operation& op, int64_t dimension, std::vector<Value*>& parts) {
  for (Value* operand : op.operands()) {
    ir::Operation* made = operand->defining_op();
    if (made != nullptr && made->code() == OpCode::kConcatenate && made->block() == op.block() &&
        operand->users().size() == 1 && has_plain_types(*made) &&
        ir::int_value(*made, "dimension") == dimension) {
      collect(*made, dimension, parts);
    } else if (element_count(operand->type().dims()) > 0) {
      parts.push_back(operand);
    }
  }
}

bool is_wide(const ir::Operation& op, size_t dimension, size_t parts,
             const WideConcatenateLimits& limits) {
  const Dims& dims = op.result()->type().dims();
  if (parts < 2) return false;
  if (dims[dimension] > std::numeric_limits<int32_t>::max()) return false;  // starts are i32
  const int64_t points = element_count(dims);
  const auto count = static_cast<int64_t>(parts);
  int64_t runs = count;
  for (size_t d = 0; d < dimension; ++d) runs *= dims[d];
  const bool is_long = points / runs >= limits.least_run;
  return count >= (is_long ? limits.least_operands : limits.least_operands_of_short_runs) &&
         points >= (limits.least_work + count - 1) / count;
}

}  // namespace

Status write_wide_concatenates(ir::Module& module, const WideConcatenateLimits& limits) {
  std::vector<ir::Operation*> found = operations_of(module, [](const ir::Operation& op) {
    return op.code() == OpCode::kConcatenate && has_plain_types(op);
  });
  // Users first: they take in the operands of those that they alone use, which then are no one's.
  std::reverse(found.begin(), found.end());
  for (ir::Operation* op : found) {
    if (op->result()->users().empty()) continue;
    const int64_t dimension = ir::int_value(*op, "dimension");
    const auto along = static_cast<size_t>(dimension);
    std::vector<Value*> parts;
    collect(*op, dimension, parts);
    if (!is_wide(*op, along, parts.size(), limits)) continue;
    GraphBuilder g(*op->block(), op, op->location());
    const ir::Type& type = op->result()->type();
    Value* whole = g.broadcast(g.constant(HostArray(type.dtype(), {})), type.dims(), {});
    Value* const zero = g.integer_constant(DType::kI32, {}, 0);
    std::vector<Value*> starts(type.dims().size(), zero);
    int64_t at = 0;
    for (Value* part : parts) {
      starts[along] = g.integer_constant(DType::kI32, {}, at);
      whole = g.dynamic_update_slice(whole, part, starts);
      at += part->type().dims()[along];
    }
    HEKLA_RETURN_IF_ERROR(g.status());
    op->result()->replace_all_uses_with(whole);
    op->block()->erase(op);
  }
  return ok_status();
}

}  // namespace hekla::passes
