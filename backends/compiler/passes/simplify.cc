// SPDX-License-Identifier: Apache-2.0
// Operations that change nothing, or that move elements which are all equal. They cost no kernel
// where they fuse, but they stand between operations that then do not.
#include <algorithm>
#include <numeric>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

// A constant of equal elements; null otherwise.
const ir::DenseValue* splat_of(const ir::Value& value) {
  const ir::DenseValue* dense = ir::constant_value(value);
  return dense == nullptr || dense->values.size() != 1 ? nullptr : dense;
}

bool all_zero(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 0; });
}

bool is_iota(const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// The operand whose elements the result has, all of them at their places; null when there is none.
// Operand and result have one type.
ir::Value* unchanged(const ir::Operation& op) {
  const auto same_type = [&](size_t i) {
    return i < op.operand_count() && op.operand(i)->type() == op.result()->type();
  };
  switch (op.code()) {
    case OpCode::kConvert:
    case OpCode::kReshape:
    case OpCode::kSlice:         // full: the strides of a whole dimension are 1
    case OpCode::kDynamicSlice:  // full: the start is clamped to 0
    case OpCode::kBitcastConvert:
      return same_type(0) ? op.operand(0) : nullptr;
    case OpCode::kTranspose:
      return same_type(0) && is_iota(ir::int_list(op, "permutation")) ? op.operand(0) : nullptr;
    case OpCode::kBroadcastInDim:
      return same_type(0) && is_iota(ir::int_list(op, "broadcast_dimensions")) ? op.operand(0)
                                                                               : nullptr;
    case OpCode::kReverse: {
      if (!same_type(0)) return nullptr;
      const auto& dims = op.result()->type().dims();
      const std::vector<int64_t> reversed = ir::int_list(op, "dimensions");
      const bool is_short = std::all_of(reversed.begin(), reversed.end(), [&](int64_t d) {
        return dims[static_cast<size_t>(d)] <= 1;
      });
      return is_short ? op.operand(0) : nullptr;
    }
    case OpCode::kConcatenate:
      for (size_t i = 0; i < op.operand_count(); ++i) {
        if (same_type(i)) return op.operand(i);  // the others have no elements
      }
      return nullptr;
    case OpCode::kPad:
      return same_type(0) && all_zero(ir::int_list(op, "edge_padding_low")) &&
                     all_zero(ir::int_list(op, "edge_padding_high")) &&
                     all_zero(ir::int_list(op, "interior_padding"))
                 ? op.operand(0)
                 : nullptr;
    case OpCode::kDynamicUpdateSlice:
      return same_type(1) ? op.operand(1) : nullptr;
    case OpCode::kSelect: {
      if (op.operand(1) == op.operand(2)) return op.operand(1);
      const ir::DenseValue* which = splat_of(*op.operand(0));
      if (which == nullptr) return nullptr;
      return op.operand(*which->values.data() != std::byte{0} ? 1 : 2);
    }
    default:
      return nullptr;
  }
}

// Whether every element of the result is an element of one of the first `count` operands.
bool only_moves(const ir::Operation& op, size_t& count) {
  count = 1;
  switch (op.code()) {
    case OpCode::kBroadcast:
    case OpCode::kBroadcastInDim:
    case OpCode::kDynamicSlice:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return true;
    case OpCode::kConcatenate:
      count = op.operand_count();
      return true;
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kPad:
      count = 2;
      return true;
    default:
      return false;
  }
}

// The constant that the result is because all that goes into it is one splat.
std::unique_ptr<ir::Operation> as_splat(const ir::Operation& op) {
  size_t count = 0;
  if (op.result_count() != 1 || !only_moves(op, count)) return nullptr;
  const ir::Type type = op.result()->type();
  if (!type.is_static_tensor() || type.quantization() != nullptr ||
      element_count(type.dims()) == 0) {
    return nullptr;
  }
  const ir::DenseValue* first = splat_of(*op.operand(0));
  if (first == nullptr) return nullptr;
  for (size_t i = 1; i < count; ++i) {
    const ir::DenseValue* other = splat_of(*op.operand(i));
    if (other == nullptr || !std::ranges::equal(first->values.bytes(), other->values.bytes())) {
      return nullptr;
    }
  }
  ir::AttributeMap attributes;
  attributes.set("value", ir::make_dense(type, first->values.with_shape(type.dtype(), {})));
  return std::make_unique<ir::Operation>(OpCode::kConstant, std::vector<ir::Value*>{},
                                         std::vector<ir::Type>{type}, std::move(attributes),
                                         op.location());
}

// Sees through an operand of the same kind: reshape of reshape, transpose of transpose, broadcast
// of broadcast. What is skipped dies when nobody else needs it.
void skip_operand(ir::Operation& op) {
  if (op.operand_count() != 1) return;
  const ir::Operation* before = op.operand(0)->defining_op();
  if (before == nullptr || before->code() != op.code() || !op.operand(0)->type().is_tensor() ||
      op.result()->type().quantization() != nullptr) {
    return;
  }
  const char* name = nullptr;
  switch (op.code()) {
    case OpCode::kReshape:
      op.set_operand(0, before->operand(0));
      return;
    case OpCode::kTranspose:
      name = "permutation";
      break;
    case OpCode::kBroadcastInDim:
      name = "broadcast_dimensions";
      break;
    default:
      return;
  }
  // Dimension d of the first operand is inner[d] of the second for a broadcast; for a transpose
  // dimension d of the result is outer[d] of its operand.
  const std::vector<int64_t> inner = ir::int_list(*before, name);
  const std::vector<int64_t> outer = ir::int_list(op, name);
  std::vector<int64_t> both;
  const bool is_transpose = op.code() == OpCode::kTranspose;
  for (int64_t d : is_transpose ? outer : inner) {
    both.push_back((is_transpose ? inner : outer)[static_cast<size_t>(d)]);
  }
  op.attributes().set(name, ir::IntArrayValue{DType::kI64, std::move(both)});
  op.set_operand(0, before->operand(0));
}

// A slice that lies in one operand of a concatenate is a slice of that operand: what unrolled loops
// stack for their gradients is taken apart again like this.
void slice_one_part(ir::Operation& op) {
  while (op.code() == OpCode::kSlice) {
    const ir::Operation* joined = op.operand(0)->defining_op();
    if (joined == nullptr || joined->code() != OpCode::kConcatenate ||
        !op.result()->type().is_static_tensor() || element_count(op.result()->type().dims()) == 0) {
      return;
    }
    const auto d = static_cast<size_t>(ir::int_value(*joined, "dimension"));
    std::vector<int64_t> start = ir::int_list(op, "start_indices");
    std::vector<int64_t> limit = ir::int_list(op, "limit_indices");
    const std::vector<int64_t> strides = ir::int_list(op, "strides");
    const int64_t steps = op.result()->type().dims()[d] - 1;
    const int64_t last = start[d] + steps * (strides.empty() ? 1 : strides[d]);
    int64_t begin = 0;
    size_t part = 0;
    int64_t size = 0;
    for (;; ++part, begin += size) {
      const ir::Type& type = joined->operand(part)->type();
      if (!type.is_static_tensor()) return;
      size = type.dims()[d];
      if (start[d] < begin + size) break;
    }
    if (last >= begin + size) return;  // it reaches into the next one
    start[d] -= begin;
    limit[d] = std::min(limit[d] - begin, size);
    op.attributes().set("start_indices", ir::i64_array(std::move(start)));
    op.attributes().set("limit_indices", ir::i64_array(std::move(limit)));
    op.set_operand(0, joined->operand(part));
  }
}

void simplify_block(ir::Block& block) {
  std::vector<ir::Operation*> order;
  for (const auto& op : block.operations()) order.push_back(op.get());
  for (ir::Operation* op : order) {
    for (size_t i = 0; i < op->region_count(); ++i) {
      for (const auto& inner : op->region(i).blocks()) simplify_block(*inner);
    }
    if (op->result_count() != 1) continue;
    skip_operand(*op);
    slice_one_part(*op);
    ir::Value* instead = unchanged(*op);
    if (instead == nullptr) {
      if (std::unique_ptr<ir::Operation> constant = as_splat(*op)) {
        instead = block.insert_before(op, std::move(constant))->result();
      }
    }
    if (instead == nullptr) continue;
    op->result()->replace_all_uses_with(instead);
    block.erase(op);
  }
}

}  // namespace

void simplify(ir::Module& module) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) simplify_block(*block);
  }
}

}  // namespace hekla::passes
