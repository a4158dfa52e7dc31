// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: unary, binary, select, clamp.
#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

bool is_int(DType t) { return is_integer(t); }
bool is_int_or_bool(DType t) { return is_integer(t) || t == DType::kI1; }
bool is_float_or_complex(DType t) { return is_float(t) || is_complex(t); }
bool is_number(DType t) { return t != DType::kInvalid; }

struct DTypeRule {
  bool (*accepts)(DType);
  const char* wanted;
};

DTypeRule rule_of(OpCode code) {
  switch (code) {
    case OpCode::kAnd:
    case OpCode::kOr:
    case OpCode::kXor:
    case OpCode::kNot:
      return {is_int_or_bool, "integers or i1"};
    case OpCode::kPopcnt:
    case OpCode::kCountLeadingZeros:
    case OpCode::kShiftLeft:
    case OpCode::kShiftRightArithmetic:
    case OpCode::kShiftRightLogical:
      return {is_int, "integers"};
    case OpCode::kCeil:
    case OpCode::kFloor:
    case OpCode::kRoundNearestAfz:
    case OpCode::kRoundNearestEven:
    case OpCode::kReducePrecision:
    case OpCode::kIsFinite:
      return {is_float, "floats"};
    case OpCode::kAtan2:
    case OpCode::kCbrt:
    case OpCode::kCosine:
    case OpCode::kExponential:
    case OpCode::kExponentialMinusOne:
    case OpCode::kLog:
    case OpCode::kLogPlusOne:
    case OpCode::kLogistic:
    case OpCode::kRsqrt:
    case OpCode::kSine:
    case OpCode::kSqrt:
    case OpCode::kTan:
    case OpCode::kTanh:
    case OpCode::kReal:
    case OpCode::kImag:
      return {is_float_or_complex, "floats or complex numbers"};
    default:
      return {is_number, "any"};
  }
}

Status check_accuracy(const Operation& op) {
  const auto* accuracy = op.attribute("result_accuracy").get<ResultAccuracy>();
  if (accuracy == nullptr) return ok_status();
  if (accuracy->atol < 0 || accuracy->rtol < 0 || accuracy->ulps < 0) {
    return op_error(op, "result_accuracy has a negative tolerance");
  }
  const bool is_zero = accuracy->atol == 0 && accuracy->rtol == 0 && accuracy->ulps == 0;
  if (!is_zero && accuracy->mode != "TOLERANCE") {
    return op_error(op, "result_accuracy has tolerances with the mode {}", accuracy->mode);
  }
  return ok_status();
}

Result<Types> infer_unary(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_RETURN_IF_ERROR(check_accuracy(op));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  if (op.result_count() != 1) return op_error(op, "has one result, not {}", op.result_count());
  const DTypeRule rule = rule_of(op.code());
  if (!is_quantized(x) && !rule.accepts(x.dtype())) {
    return op_error(op, "takes {}, not {}", rule.wanted, x.to_string());
  }
  switch (op.code()) {
    case OpCode::kAbs:
    case OpCode::kReal:
    case OpCode::kImag:
      if (!is_complex(x.dtype())) return Types{x};
      return Types{Type::tensor(Type::scalar(complex_part(x.dtype())), x.dims(), x.bounds())};
    case OpCode::kIsFinite:
      return Types{Type::tensor(Type::scalar(DType::kI1), x.dims(), x.bounds())};
    case OpCode::kConvert:
    case OpCode::kUniformQuantize:
    case OpCode::kUniformDequantize: {
      // The declared element type decides; the shape is the operand's.
      const Type& declared = op.result()->type();
      if (!declared.is_tensor()) return op_error(op, "the result must be a ranked tensor");
      return Types{Type::tensor(declared.element(), x.dims(), x.bounds())};
    }
    case OpCode::kReducePrecision: {
      HEKLA_ASSIGN_OR_RETURN(int64_t exponent, int_value(op, "exponent_bits"));
      HEKLA_ASSIGN_OR_RETURN(int64_t mantissa, int_value(op, "mantissa_bits"));
      if (exponent < 1 || mantissa < 0) {
        return op_error(op, "format e{}m{} needs at least one exponent bit and no negative count",
                        exponent, mantissa);
      }
      return Types{x};
    }
    default:
      return Types{x};
  }
}

Result<Types> infer_binary(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Type a, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type b, tensor_operand(op, 1));
  if (!shapes_agree(a.dims(), b.dims())) {
    return op_error(op, "operands differ in shape: {} and {}", a.to_string(), b.to_string());
  }
  const bool any_quantized = is_quantized(a) || is_quantized(b);
  if (!any_quantized && !same_element(a, b)) {
    return op_error(op, "operands differ in element type: {} and {}", a.to_string(), b.to_string());
  }
  const DTypeRule rule = rule_of(op.code());
  if (!any_quantized && !rule.accepts(a.dtype())) {
    return op_error(op, "takes {}, not {}", rule.wanted, a.to_string());
  }
  Dims dims = merged(a.dims(), b.dims());
  if (op.code() == OpCode::kCompare) {
    const EnumValue* direction = op.attribute("comparison_direction").get<EnumValue>();
    if (direction == nullptr) return op_error(op, "has no comparison_direction");
    return Types{Type::tensor(Type::scalar(DType::kI1), dims, a.bounds())};
  }
  if (op.code() == OpCode::kComplex) {
    const DType result = complex_of(a.dtype());
    if (result == DType::kInvalid) {
      return op_error(op, "takes f32 or f64, not {}", a.to_string());
    }
    return Types{Type::tensor(Type::scalar(result), dims, a.bounds())};
  }
  if (any_quantized && op.result_count() == 1 && op.result()->type().is_tensor()) {
    return Types{Type::tensor(op.result()->type().element(), dims, a.bounds())};
  }
  return Types{Type::tensor(a.element(), dims, a.bounds())};
}

Result<Types> infer_select(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 3));
  HEKLA_ASSIGN_OR_RETURN(Type p, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type a, tensor_operand(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type b, tensor_operand(op, 2));
  if (p.dtype() != DType::kI1) return op_error(op, "the predicate is {}, not i1", p.to_string());
  if (!are_compatible(a, b)) {
    return op_error(op, "on_true and on_false differ: {} and {}", a.to_string(), b.to_string());
  }
  if (p.rank() != 0 && !shapes_agree(p.dims(), a.dims())) {
    return op_error(op, "the predicate {} fits neither a scalar nor {}", p.to_string(),
                    a.to_string());
  }
  return Types{Type::tensor(a.element(), merged(a.dims(), b.dims()), a.bounds())};
}

Result<Types> infer_clamp(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 3));
  HEKLA_ASSIGN_OR_RETURN(Type low, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type high, tensor_operand(op, 2));
  for (const Type& limit : {low, high}) {
    if (!same_element(limit, x) || (limit.rank() != 0 && !shapes_agree(limit.dims(), x.dims()))) {
      return op_error(op, "a limit {} fits neither a scalar nor the operand {}", limit.to_string(),
                      x.to_string());
    }
  }
  return Types{x};
}

}  // namespace

Outcome infer_elementwise(const Operation& op) {
  if (is_elementwise_unary(op.code())) return {true, infer_unary(op)};
  if (is_elementwise_binary(op.code())) return {true, infer_binary(op)};
  if (op.code() == OpCode::kSelect) return {true, infer_select(op)};
  if (op.code() == OpCode::kClamp) return {true, infer_clamp(op)};
  return not_handled();
}

}  // namespace hekla::ir::infer
