// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/linear.h"

#include <algorithm>

#include "backends/compiler/passes/only_operation.h"
#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

// A convert under which sums stay sums.
bool keeps_sums(DType from, DType to) {
  if (is_float(from) || is_complex(from)) return is_float(to) || is_complex(to);
  return is_integer(from) && is_integer(to) && dtype_bits(to) <= dtype_bits(from);
}

bool adds(const ir::Operation& op) {
  return op.result_count() == 1 && op.region_count() == 1 &&
         passes::only_operation(op.region(0)) == OpCode::kAdd;
}

}  // namespace

bool is_zero(const ir::Value& value) {
  if (const ir::DenseValue* dense = ir::constant_value(value)) {
    const auto bytes = dense->values.bytes();
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }
  const ir::Operation* op = value.defining_op();
  return op != nullptr &&
         (op->code() == OpCode::kBroadcastInDim || op->code() == OpCode::kReshape) &&
         is_zero(*op->operand(0));
}

bool keeps_addends(const ir::Operation& op, const std::vector<bool>& has_addends) {
  if (op.result_count() != 1 || op.operand_count() == 0 || has_addends.empty()) return false;
  const auto is_number = [](const ir::Value& value) {
    return value.type().is_static_tensor() && value.type().dtype() != DType::kI1 &&
           value.type().dtype() != DType::kF8E8M0FNU;
  };
  if (!is_number(*op.result())) return false;
  const auto is_addend = [&](size_t i) { return has_addends[i] && is_number(*op.operand(i)); };
  // The first `begin` ones not, of the others each is, or is zeros, up to `end`; the rest is not.
  const auto all_of = [&](size_t begin, size_t end) {
    bool has_any = false;
    for (size_t i = 0; i < op.operand_count(); ++i) {
      const bool may_be = i >= begin && i < end;
      if (!may_be && has_addends[i]) return false;
      if (may_be && !is_addend(i) && !is_zero(*op.operand(i))) return false;
      has_any = has_any || has_addends[i];
    }
    return has_any;
  };
  const auto only_first = [&] { return is_addend(0) && all_of(0, 1); };
  const bool is_integral = is_integer(op.result()->type().dtype());
  switch (op.code()) {
    case OpCode::kAdd:
    case OpCode::kSubtract:
    case OpCode::kComplex:
    case OpCode::kConcatenate:
      return all_of(0, op.operand_count());
    case OpCode::kDynamicUpdateSlice:
      return all_of(0, 2);
    case OpCode::kSelect:
      return all_of(1, 3);
    case OpCode::kMultiply:
    case OpCode::kDot:
    case OpCode::kDotGeneral:
    case OpCode::kConvolution:
      return (is_addend(0) && !has_addends[1]) || (is_addend(1) && !has_addends[0]);
    case OpCode::kDivide:
      return !is_integral && only_first();
    case OpCode::kConvert:
      return only_first() && keeps_sums(op.operand(0)->type().dtype(), op.result()->type().dtype());
    case OpCode::kNegate:
    case OpCode::kReal:
    case OpCode::kImag:
    case OpCode::kBroadcastInDim:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kTranspose:
    case OpCode::kDynamicSlice:
    case OpCode::kGather:
      return only_first();
    case OpCode::kPad:
    case OpCode::kReduce:
      return only_first() && is_zero(*op.operand(1)) && (op.code() == OpCode::kPad || adds(op));
    case OpCode::kScatter:
      return op.operand_count() == 3 && !has_addends[1] && adds(op) &&
             (is_addend(0) || is_zero(*op.operand(0))) &&
             (is_addend(2) || is_zero(*op.operand(2))) && (has_addends[0] || has_addends[2]);
    case OpCode::kCustomCall:
      return is_roll(op) && only_first();
    default:
      return false;
  }
}

bool may_sum_behind(const ir::Operation& op) {
  switch (op.code()) {
    case OpCode::kAdd:
    case OpCode::kSubtract:
    case OpCode::kNegate:
    case OpCode::kReshape:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return true;
    default:
      return false;
  }
}

}  // namespace hekla::spmd
