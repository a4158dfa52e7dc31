// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/math/element.h"

#include <array>

#include "backends/compiler/kernel/math/functions.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

std::optional<Element> element_of(const std::optional<Num>& x) {
  if (!x) return std::nullopt;
  return Element{x->v};
}

std::optional<Element> unary_bool(OpCode code, Num x) {
  switch (code) {
    case OpCode::kNot:
      return Element{logical_not(x).v};
    case OpCode::kAbs:
    case OpCode::kSign:
    case OpCode::kReal:
      return Element{x.v};
    default:
      return std::nullopt;
  }
}

std::optional<Element> binary_bool(OpCode code, Num x, Num y) {
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kOr:
    case OpCode::kMaximum:
      return Element{(x | y).v};
    case OpCode::kMultiply:
    case OpCode::kAnd:
    case OpCode::kMinimum:
      return Element{(x & y).v};
    case OpCode::kXor:
    case OpCode::kSubtract:
      return Element{(x ^ y).v};
    default:
      return std::nullopt;
  }
}

// Whether the results for operands of the dtype are in the dtype without rounding.
bool stays_in_format(OpCode code, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return true;
  switch (code) {
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kReal:
      return true;
    // The smaller formats may lack signs of zero or the next whole number.
    case OpCode::kAbs:
    case OpCode::kNegate:
    case OpCode::kCeil:
    case OpCode::kFloor:
    case OpCode::kRoundNearestEven:
    case OpCode::kRoundNearestAfz:
    case OpCode::kSign:
    case OpCode::kImag:
      return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kTF32;
    default:
      return false;
  }
}

Num logical_and(Num x, Num y) { return x & y; }
Num logical_or(Num x, Num y) { return x | y; }

// Floats as integers that order like them by sign and magnitude.
Num total_order_key(DType dtype, Num x) {
  const FloatLayout f = layout(x.type());
  Num bits = bits_of(x);
  if (float_format(dtype).specials == FloatFormat::Specials::kUnsignedZero) {
    // The one NaN of these formats is written with a sign bit: it is below all others.
    bits = select(is_nan(x), bits.integer(-1), bits);
  }
  return select(less_s(bits, 0), bits ^ ~f.sign_mask, bits);
}

struct Order {
  Num less, greater, equal;
};

Value directed(Direction direction, const Order& order) {
  switch (direction) {
    case Direction::kEq:
      return order.equal.v;
    case Direction::kNe:
      return logical_not(order.equal).v;
    case Direction::kGe:
      return logical_or(order.greater, order.equal).v;
    case Direction::kGt:
      return order.greater.v;
    case Direction::kLe:
      return logical_or(order.less, order.equal).v;
    case Direction::kLt:
      break;
  }
  return order.less.v;
}

Value compare_values(Direction direction, Num x, Num y, Op less, Op less_equal) {
  switch (direction) {
    case Direction::kEq:
      return equal(x, y).v;
    case Direction::kNe:
      return not_equal(x, y).v;
    case Direction::kGe:
      return binary(less_equal, y, x).v;
    case Direction::kGt:
      return binary(less, y, x).v;
    case Direction::kLe:
      return binary(less_equal, x, y).v;
    case Direction::kLt:
      break;
  }
  return binary(less, x, y).v;
}

Num complex_less(Builder& b, const Element& x, const Element& y) {
  const Num xr(b, x.re), xi(b, x.im), yr(b, y.re), yi(b, y.im);
  return logical_or(xr < yr, logical_and(equal(xr, yr), xi < yi));
}

}  // namespace

std::optional<Element> unary(Builder& b, OpCode code, DType dtype, const Element& x) {
  if (is_complex(dtype)) return unary_complex(b, code, dtype, x);
  const Num value(b, x.re);
  if (dtype == DType::kI1) return unary_bool(code, value);
  if (is_integer(dtype)) return element_of(unary_integer(code, dtype, value));
  if (!is_float(dtype)) return std::nullopt;
  if (code == OpCode::kIsFinite) return Element{is_finite(value).v};
  const std::optional<Num> result = unary_float(code, value);
  if (!result || stays_in_format(code, dtype)) return element_of(result);
  return Element{round_to_dtype(b, dtype, result->v)};
}

std::optional<Element> binary(Builder& b, OpCode code, DType dtype, const Element& x,
                              const Element& y) {
  if (code == OpCode::kComplex) {
    if (complex_of(dtype) == DType::kInvalid) return std::nullopt;
    return Element{x.re, y.re};
  }
  if (is_complex(dtype)) return binary_complex(b, code, x, y);
  const Num p(b, x.re), q(b, y.re);
  if (dtype == DType::kI1) return binary_bool(code, p, q);
  if (is_integer(dtype)) return element_of(binary_integer(code, dtype, p, q));
  if (!is_float(dtype)) return std::nullopt;
  const std::optional<Num> result = binary_float(code, p, q);
  if (!result || stays_in_format(code, dtype)) return element_of(result);
  return Element{round_to_dtype(b, dtype, result->v)};
}

std::optional<Direction> direction_from_name(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Direction>(i);
  }
  return std::nullopt;
}

Value compare(Builder& b, Direction direction, bool total_order, DType dtype, const Element& x,
              const Element& y) {
  const Num p(b, x.re), q(b, y.re);
  if (is_complex(dtype)) {
    const Num same = logical_and(equal(p, q), equal(Num(b, x.im), Num(b, y.im)));
    return directed(direction, {complex_less(b, x, y), complex_less(b, y, x), same});
  }
  if (dtype == DType::kI1) {
    return directed(direction,
                    {logical_and(logical_not(p), q), logical_and(p, logical_not(q)), equal(p, q)});
  }
  if (is_float(dtype)) {
    if (!total_order) return compare_values(direction, p, q, Op::kLt, Op::kLe);
    return compare_values(direction, total_order_key(dtype, p), total_order_key(dtype, q), Op::kLtS,
                          Op::kLeS);
  }
  return is_signed_integer(dtype) ? compare_values(direction, p, q, Op::kLtS, Op::kLeS)
                                  : compare_values(direction, p, q, Op::kLtU, Op::kLeU);
}

Element select(Builder& b, Value predicate, const Element& on_true, const Element& on_false) {
  Element result{b.select(predicate, on_true.re, on_false.re)};
  if (on_true.im != kNoValue) result.im = b.select(predicate, on_true.im, on_false.im);
  return result;
}

std::optional<Element> clamp(Builder& b, DType dtype, const Element& low, const Element& x,
                             const Element& high) {
  const std::optional<Element> cut = binary(b, OpCode::kMaximum, dtype, x, low);
  if (!cut) return std::nullopt;
  return binary(b, OpCode::kMinimum, dtype, *cut, high);
}

}  // namespace hekla::kernel
