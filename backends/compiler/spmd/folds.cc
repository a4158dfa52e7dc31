// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/folds.h"

#include <algorithm>
#include <cstring>

#include "backends/compiler/passes/only_operation.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

template <typename T>
bool is_equal(const HostArray& scalar, T value) {
  return std::memcmp(scalar.data(), &value, sizeof(T)) == 0;
}

bool is_one(const HostArray& scalar) {
  switch (scalar.dtype()) {
    case DType::kF64:
      return is_equal(scalar, 1.0);
    case DType::kF32:
      return is_equal(scalar, 1.0F);
    case DType::kF16:
      return is_equal<uint16_t>(scalar, 0x3c00);
    case DType::kBF16:
      return is_equal<uint16_t>(scalar, 0x3f80);
    case DType::kI32:
    case DType::kUI32:
      return is_equal<uint32_t>(scalar, 1);
    case DType::kI64:
    case DType::kUI64:
      return is_equal<uint64_t>(scalar, 1);
    default:
      return false;
  }
}

bool is_zero(const HostArray& scalar) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(scalar.data());
  return std::all_of(bytes, bytes + dtype_bytes(scalar.dtype()),
                     [](unsigned char byte) { return byte == 0; });
}

// Whether folding the value changes nothing.
bool changes_nothing(const ir::Value& value, OpCode code) {
  const ir::Value* source = &value;
  for (const ir::Operation* op = source->defining_op();
       op != nullptr && (op->code() == OpCode::kBroadcastInDim || op->code() == OpCode::kReshape);
       op = source->defining_op()) {
    source = op->operand(0);
  }
  const ir::DenseValue* constant = ir::constant_value(*source);
  if (constant == nullptr || constant->values.size() != 1) return false;
  if (code == OpCode::kMultiply) return is_one(constant->values);
  return is_zero(constant->values);
}

}  // namespace

bool is_idempotent(OpCode code) {
  return code == OpCode::kMaximum || code == OpCode::kMinimum || code == OpCode::kAnd ||
         code == OpCode::kOr;
}

ir::Value* neutral(ir::GraphBuilder& g, OpCode code, DType dtype, const Dims& dims) {
  if (code == OpCode::kMultiply) return g.constant(dtype, dims, 1);
  if (code == OpCode::kAnd) return g.integer_constant(dtype, dims, -1);
  if (code != OpCode::kAdd) return g.constant(dtype, dims, 0);
  // 0 + -0 is 0: the negative zero leaves both alone.
  if (is_complex(dtype)) {
    ir::Value* zero = g.constant(complex_part(dtype), dims, -0.0);
    return g.make(OpCode::kComplex, {zero, zero});
  }
  return g.constant(dtype, dims, is_float(dtype) ? -0.0 : 0.0);
}

std::optional<RunningFold> running_fold(const ir::Operation& op, size_t d, int64_t size) {
  if (op.code() != OpCode::kReduceWindow || op.result_count() != 1 || size == 0) {
    return std::nullopt;
  }
  const auto at = [&](std::string_view name) {
    const std::vector<int64_t> list = ir::int_list(op, name);
    return d < list.size() ? list[d] : 1;
  };
  const auto padding = ir::padding_of(op);
  if (at("window_dimensions") != size || at("window_strides") != 1 || at("window_dilations") != 1 ||
      at("base_dilations") != 1 || d >= padding.size()) {
    return std::nullopt;
  }
  const bool is_forward = padding[d][0] == size - 1 && padding[d][1] == 0;
  const bool is_reversed = padding[d][0] == 0 && padding[d][1] == size - 1;
  const std::optional<OpCode> code = passes::only_operation(op.region(0));
  if (!code || is_forward == is_reversed) return std::nullopt;
  if (!is_idempotent(*code) && !changes_nothing(*op.operand(1), *code)) return std::nullopt;
  return RunningFold{*code, is_reversed};
}

}  // namespace hekla::spmd
