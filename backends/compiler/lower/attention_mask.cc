// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/attention_mask.h"

#include <cmath>
#include <cstring>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

namespace {

// Masks have numbers no greater than this in place of logits.
constexpr double kLeastMasked = -1e30;
// Operations of a mask that are looked at.
constexpr int kMostMaskDepth = 24;
// Integers that do not wrap when a few are added.
constexpr int64_t kMostInteger = int64_t{1} << 26;

// The element that all of a value are: a constant, or one spread.
const ir::DenseValue* splat(const ir::Value& value) {
  const ir::Operation* op = value.defining_op();
  while (op != nullptr &&
         (op->code() == OpCode::kBroadcastInDim || op->code() == OpCode::kReshape)) {
    op = op->operand(0)->defining_op();
  }
  if (op == nullptr || op->code() != OpCode::kConstant) return nullptr;
  const auto* dense = op->attribute("value").get<ir::DenseValue>();
  return dense != nullptr && dense->values.size() == 1 ? dense : nullptr;
}

std::optional<double> float_splat(const ir::Value& value) {
  const ir::DenseValue* dense = splat(value);
  if (dense == nullptr || dense->values.dtype() != DType::kF32) return std::nullopt;
  float element = 0;
  std::memcpy(&element, dense->values.data(), sizeof(element));
  return element;
}

bool is_signed_index(const ir::Value& value) {
  return value.type().is_static_tensor() &&
         (value.type().dtype() == DType::kI32 || value.type().dtype() == DType::kI64);
}

std::optional<int64_t> integer_splat(const ir::Value& value) {
  const ir::DenseValue* dense = splat(value);
  if (dense == nullptr || !is_signed_index(value) || dense->values.dtype() != value.type().dtype())
    return std::nullopt;
  int64_t element = 0;
  if (value.type().dtype() == DType::kI64) {
    std::memcpy(&element, dense->values.data(), sizeof(element));
  } else {
    int32_t narrow = 0;
    std::memcpy(&narrow, dense->values.data(), sizeof(narrow));
    element = narrow;
  }
  if (element < -kMostInteger || element > kMostInteger) return std::nullopt;
  return element;
}

// Through operations that only move elements.
void strip(const ir::Value*& value, WeightDims& dims) {
  while (const ir::Operation* op = value->defining_op()) {
    const auto moved = through_movement(*op, dims, false);
    if (!moved) return;
    value = op->operand(0);
    dims = *moved;
  }
}

}  // namespace

std::optional<LogitMask> find_logit_mask(const ir::Value& logits, const WeightDims& dims) {
  const ir::Value* value = &logits;
  LogitMask found;
  found.dims = dims;
  strip(value, found.dims);
  const ir::Operation* op = value->defining_op();
  if (op == nullptr || op->code() != OpCode::kSelect ||
      op->operand(0)->type().dims() != value->type().dims()) {
    return std::nullopt;
  }
  found.mask = op->operand(0);
  for (const size_t operand : {size_t{2}, size_t{1}}) {
    const auto low = float_splat(*op->operand(operand));
    if (!low || !(*low <= kLeastMasked)) continue;
    found.low = *low;
    found.present = operand == 2;
    return found;
  }
  return std::nullopt;
}

namespace {

std::optional<MaskedWeights> masked_weights(const ir::Value& of, const WeightDims& of_dims,
                                            int& left) {
  const ir::Value* value = &of;
  WeightDims dims = of_dims;
  while (left-- > 0) {
    strip(value, dims);
    const ir::Operation* op = value->defining_op();
    if (op == nullptr) return std::nullopt;
    switch (op->code()) {
      case OpCode::kConvert:
      case OpCode::kNegate:
      case OpCode::kDivide:
        value = op->operand(0);
        continue;
      case OpCode::kMultiply: {
        const auto first = masked_weights(*op->operand(0), dims, left);
        return first ? first : masked_weights(*op->operand(1), dims, left);
      }
      case OpCode::kSelect: {
        // The other one is zero.
        const auto zero = [&](size_t operand) {
          const auto number = float_splat(*op->operand(operand));
          return number && *number == 0;
        };
        if (!zero(1) && !zero(2)) return std::nullopt;
        value = op->operand(zero(2) ? 1 : 2);
        continue;
      }
      case OpCode::kExponential: {
        const ir::Value* shifted = op->operand(0);
        strip(shifted, dims);
        const ir::Operation* subtract = shifted->defining_op();
        if (subtract == nullptr || subtract->code() != OpCode::kSubtract) return std::nullopt;
        const auto mask = find_logit_mask(*subtract->operand(0), dims);
        if (!mask) return std::nullopt;
        return MaskedWeights{*mask, subtract->operand(1), dims};
      }
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<MaskedWeights> find_masked_weights(const ir::Value& value, const WeightDims& dims) {
  int left = kMostMaskDepth;
  return masked_weights(value, dims, left);
}

Value MaskEvaluator::may_be_present(const LogitMask& mask, const BlockRange& range) {
  const Truth made = truth(*mask.mask, mask.dims, range, 0);
  return mask.present ? made.may_be_true : made.may_be_false;
}

MaskEvaluator::Truth MaskEvaluator::truth(const ir::Value& value, const WeightDims& dims,
                                          const BlockRange& range, int depth) {
  Builder& b = k_.b();
  const Truth anything{b.boolean(true), b.boolean(true)};
  const ir::Operation* op = value.defining_op();
  if (op == nullptr || depth > kMostMaskDepth || --left_ < 0 || !value.type().is_static_tensor() ||
      value.type().dtype() != DType::kI1) {
    return anything;
  }
  if (const ir::DenseValue* dense = splat(value)) {
    const bool is_true = static_cast<bool>(dense->values.data()[0]);
    return {b.boolean(is_true), b.boolean(!is_true)};
  }
  if (const auto moved = through_movement(*op, dims, true)) {
    return truth(*op->operand(0), *moved, range, depth + 1);
  }
  const auto operand = [&](size_t i) { return truth(*op->operand(i), dims, range, depth + 1); };
  switch (op->code()) {
    case OpCode::kAnd: {
      const Truth x = operand(0), y = operand(1);
      return {b.bit_and(x.may_be_true, y.may_be_true), b.bit_or(x.may_be_false, y.may_be_false)};
    }
    case OpCode::kOr: {
      const Truth x = operand(0), y = operand(1);
      return {b.bit_or(x.may_be_true, y.may_be_true), b.bit_and(x.may_be_false, y.may_be_false)};
    }
    case OpCode::kNot: {
      const Truth x = operand(0);
      return {x.may_be_false, x.may_be_true};
    }
    case OpCode::kSelect: {
      if (op->operand(0)->type().dims() != value.type().dims()) return anything;
      const Truth condition = operand(0), x = operand(1), y = operand(2);
      return {b.bit_or(b.bit_and(condition.may_be_true, x.may_be_true),
                       b.bit_and(condition.may_be_false, y.may_be_true)),
              b.bit_or(b.bit_and(condition.may_be_true, x.may_be_false),
                       b.bit_and(condition.may_be_false, y.may_be_false))};
    }
    case OpCode::kCompare:
      return compared(*op, dims, range, depth + 1);
    default:
      return anything;
  }
}

MaskEvaluator::Truth MaskEvaluator::compared(const ir::Operation& op, const WeightDims& dims,
                                             const BlockRange& range, int depth) {
  Builder& b = k_.b();
  const Truth anything{b.boolean(true), b.boolean(true)};
  if (!is_signed_index(*op.operand(0))) return anything;
  auto x = interval(*op.operand(0), dims, range, depth);
  auto y = x ? interval(*op.operand(1), dims, range, depth) : std::nullopt;
  if (!x || !y) return anything;
  const std::string direction = ir::text_value(op, "comparison_direction");
  if (direction == "GT" || direction == "GE") std::swap(*x, *y);
  const auto lt = [&](Value p, Value q) { return b.binary(Op::kLtS, p, q); };
  const auto le = [&](Value p, Value q) { return b.logical_not(lt(q, p)); };
  if (direction == "LT" || direction == "GT") return {lt(x->low, y->high), le(y->low, x->high)};
  if (direction == "LE" || direction == "GE") return {le(x->low, y->high), lt(y->low, x->high)};
  const Value meet = b.bit_and(le(x->low, y->high), le(y->low, x->high));
  if (direction == "EQ") return {meet, b.boolean(true)};
  if (direction == "NE") return {b.boolean(true), meet};
  return anything;
}

std::optional<MaskEvaluator::Interval> MaskEvaluator::interval(const ir::Value& value,
                                                               const WeightDims& dims,
                                                               const BlockRange& range, int depth,
                                                               bool is_added_to) {
  if (depth > kMostMaskDepth || !is_signed_index(value)) return std::nullopt;
  Builder& b = k_.b();
  if (const auto number = integer_splat(value)) {
    const Value same = k_.index(*number);
    return Interval{same, same};
  }
  const ir::Operation* op = value.defining_op();
  if (op != nullptr) {
    if (op->code() == OpCode::kIota) {
      const int d = dims[static_cast<size_t>(ir::int_value(*op, "iota_dimension"))];
      if (d == kSingle) return Interval{k_.index(0), k_.index(0)};
      return Interval{range.low[static_cast<size_t>(d)], range.high[static_cast<size_t>(d)]};
    }
    if (const auto moved = through_movement(*op, dims, true)) {
      return interval(*op->operand(0), *moved, range, depth + 1, is_added_to);
    }
    if (op->code() == OpCode::kAdd || op->code() == OpCode::kSubtract) {
      // With a number, so that nothing wraps.
      const auto number = integer_splat(*op->operand(1));
      const auto x =
          number ? interval(*op->operand(0), dims, range, depth + 1, true) : std::nullopt;
      if (x) {
        const Value offset = k_.index(op->code() == OpCode::kAdd ? *number : -*number);
        return Interval{b.add(x->low, offset), b.add(x->high, offset)};
      }
    }
  }
  // One number for the whole team. Sums of it wrap at 32 bits, those of wider indices would not.
  if (value.type().dtype() != DType::kI32 || (is_added_to && b.index_type() == ScalarType::kI64)) {
    return std::nullopt;
  }
  Point point;
  for (const int d : dims) {
    if (d != kSingle && !is_single_(static_cast<size_t>(d))) return std::nullopt;
    point.dims.push_back(d == kSingle ? k_.index(0) : range.low[static_cast<size_t>(d)]);
  }
  Value same = k_.emitter().emit(value, point).re;
  if (b.index_type() == ScalarType::kI64) same = b.convert(Op::kSignExtend, ScalarType::kI64, same);
  return Interval{same, same};
}

}  // namespace hekla::lower
