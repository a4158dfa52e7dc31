// SPDX-License-Identifier: Apache-2.0
// Integers of every width in kI32 and kI64, with StableHLO's edges.
#include "backends/compiler/kernel/math/functions.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

int register_bits(Num x) { return bit_width(x.type()); }

// The bits of the dtype's own width, zero-extended.
Num unextended(DType dtype, Num x) {
  const int bits = dtype_bits(dtype);
  return bits < register_bits(x) && is_signed_integer(dtype) ? x & ((int64_t{1} << bits) - 1) : x;
}

Num from_bool(Num condition, Num like) { return convert(Op::kBoolToInt, like.type(), condition); }

Num less(DType dtype, Num x, Num y) {
  return is_signed_integer(dtype) ? less_s(x, y) : less_u(x, y);
}

// Sums of bits in fields of 2, 4 and 8, then of all bytes by a multiplication; of `bits`, above
// which there are none.
Num popcount(Num x, int bits) {
  const int width = register_bits(x);
  const auto every = [&](uint64_t pattern) {
    const uint64_t used = bits < 64 ? (uint64_t{1} << bits) - 1 : ~uint64_t{0};
    return Num(*x.b, x.b->constant_bits(x.type(), pattern & used));
  };
  // Of few bits without a difference, of which is not seen that it is no negative number.
  const Num odd = shr_u(x, 1) & every(0x5555555555555555);
  x = bits <= 16 ? (x & every(0x5555555555555555)) + odd : x - odd;
  x = (x & every(0x3333333333333333)) + (shr_u(x, 2) & every(0x3333333333333333));
  x = (x + shr_u(x, 4)) & every(0x0f0f0f0f0f0f0f0f);
  if (bits <= 8) return x;
  if (bits == 16) return (x + shr_u(x, 8)) & 0x1f;
  return shr_u(x * every(0x0101010101010101), width - 8);
}

// By the exponent of the value as f32, without the bit below the top one, so that rounding cannot
// reach the next power of two.
Num leading_zeros_32(Num x) {
  const Num top = x & (shr_u(x, 1) ^ -1);
  const Num exponent = shr_u(bits_of(convert(Op::kUIntToFloat, ScalarType::kF32, top)), 23);
  return select(equal(x, 0), x.integer(32), x.integer(158) - exponent);
}

Num leading_zeros(DType dtype, Num x) {
  const Num bits = unextended(dtype, x);
  if (x.type() == ScalarType::kI32) return leading_zeros_32(bits) - (32.0 - dtype_bits(dtype));
  const Num high = convert(Op::kTruncate, ScalarType::kI32, shr_u(x, 32));
  const Num low = convert(Op::kTruncate, ScalarType::kI32, x);
  const Num count = select(equal(high, 0), leading_zeros_32(low) + 32.0, leading_zeros_32(high));
  return convert(Op::kZeroExtend, ScalarType::kI64, count);
}

struct Quotient {
  Num quotient;
  Num divisor;  // what was divided by
  Num is_zero;  // the given divisor was 0
};

// x / y for a divisor that is neither 0 nor, for signed types, -1: these are divided by 1.
Quotient guarded_divide(DType dtype, Num x, Num y) {
  const Num is_zero = equal(y, 0);
  if (!is_signed_integer(dtype)) {
    const Num divisor = select(is_zero, y.integer(1), y);
    return {binary(Op::kDivU, x, divisor), divisor, is_zero};
  }
  const Num divisor = select(binary(Op::kOr, is_zero, equal(y, -1)), y.integer(1), y);
  return {binary(Op::kDivS, x, divisor), divisor, is_zero};
}

Num divide(DType dtype, Num x, Num y) {
  const Quotient q = guarded_divide(dtype, x, y);
  Num result = q.quotient;
  if (is_signed_integer(dtype)) result = select(equal(y, -1), x.integer(0) - x, result);
  return wrap_integer(dtype, select(q.is_zero, x.integer(-1), result));
}

// From the quotient, which a program that wants both computes once; and the remainder instructions
// of some devices are undefined for negative operands.
Num integer_remainder(DType dtype, Num x, Num y) {
  const Quotient q = guarded_divide(dtype, x, y);
  // Divided by 1 in place of -1 the remainder is 0 as well.
  return select(q.is_zero, x, x - q.quotient * q.divisor);
}

// By squaring, wrapping; a negative exponent gives the integer part of the quotient.
Num power(DType dtype, Num base, Num exponent) {
  Builder& b = *base.b;
  const bool is_signed = is_signed_integer(dtype);
  Num result = base.integer(1);
  if (const uint64_t* constant = b.constant(exponent.v)) {
    Num square = base;
    for (uint64_t e = *constant; e != 0; e >>= 1) {
      if ((e & 1) != 0) result = result * square;
      square = square * square;
    }
  } else {
    // One step for each bit of the exponent, which is as wide as its value needs.
    const Num e = is_signed ? select(less_s(exponent, 0), base.integer(0), exponent) : exponent;
    Num count = base.integer(dtype_bits(dtype)) - leading_zeros(dtype, e);
    if (b.index_type() != count.type()) {
      const bool is_wide = b.index_type() == ScalarType::kI64;
      count = convert(is_wide ? Op::kSignExtend : Op::kTruncate, b.index_type(), count);
    }
    const auto values = b.loop(count.v, {result.v, base.v, e.v},
                               [&](Value, const std::vector<Value>& carried) -> std::vector<Value> {
                                 const Num r(b, carried[0]), square(b, carried[1]),
                                     left(b, carried[2]);
                                 return {select(not_equal(left & 1, 0), r * square, r).v,
                                         (square * square).v, shr_u(left, 1).v};
                               });
    result = Num(b, values[0]);
  }
  if (is_signed) {
    const Num zero = base.integer(0);
    const Num one = base.integer(1);
    const Num minus_one_power = select(equal(exponent & 1, 0), one, base);
    Num inverse = select(equal(base, -1), minus_one_power, zero);
    inverse = select(equal(base, 1), one, inverse);
    result = select(less_s(exponent, 0), inverse, result);
  }
  return wrap_integer(dtype, result);
}

Num shift(OpCode code, DType dtype, Num x, Num y) {
  const int bits = dtype_bits(dtype);
  // The amount is an unsigned number of the type's width.
  const Num amount = unextended(dtype, y);
  const Num fits = less_u(amount, bits);
  const Num zero = x.integer(0);
  if (code == OpCode::kShiftRightArithmetic) {
    const Num count = select(fits, amount, x.integer(bits - 1));
    // For unsigned types the top bit counts as the sign.
    const int unused = register_bits(x) - bits;
    const Num wide = is_signed_integer(dtype) || unused == 0 ? x : shr_s(shl(x, unused), unused);
    return wrap_integer(dtype, binary(Op::kShrS, wide, count));
  }
  const Num count = select(fits, amount, zero);
  const Num shifted = code == OpCode::kShiftLeft ? binary(Op::kShl, x, count)
                                                 : binary(Op::kShrU, unextended(dtype, x), count);
  return wrap_integer(dtype, select(fits, shifted, zero));
}

}  // namespace

Num wrap_integer(DType dtype, Num x) {
  const int bits = dtype_bits(dtype);
  const int unused = register_bits(x) - bits;
  if (unused == 0) return x;
  if (is_signed_integer(dtype)) return shr_s(shl(x, unused), unused);
  return x & ((int64_t{1} << bits) - 1);
}

std::optional<Num> unary_integer(OpCode code, DType dtype, Num x) {
  const bool is_signed = is_signed_integer(dtype);
  const Num zero = x.integer(0);
  switch (code) {
    case OpCode::kAbs:
      if (!is_signed) return x;
      return wrap_integer(dtype, select(less_s(x, 0), zero - x, x));
    case OpCode::kNegate:
      return wrap_integer(dtype, zero - x);
    case OpCode::kSign: {
      const Num is_set = from_bool(not_equal(x, 0), x);
      return is_signed ? select(less_s(x, 0), x.integer(-1), is_set) : is_set;
    }
    case OpCode::kNot:
      return wrap_integer(dtype, x ^ -1);
    case OpCode::kPopcnt:
      return wrap_integer(dtype, popcount(unextended(dtype, x), dtype_bits(dtype)));
    case OpCode::kCountLeadingZeros:
      return wrap_integer(dtype, leading_zeros(dtype, x));
    case OpCode::kReal:
      return x;
    default:
      return std::nullopt;
  }
}

std::optional<Num> binary_integer(OpCode code, DType dtype, Num x, Num y) {
  switch (code) {
    case OpCode::kAdd:
      return wrap_integer(dtype, x + y);
    case OpCode::kSubtract:
      return wrap_integer(dtype, x - y);
    case OpCode::kMultiply:
      return wrap_integer(dtype, x * y);
    case OpCode::kAnd:
      return x & y;
    case OpCode::kOr:
      return x | y;
    case OpCode::kXor:
      return x ^ y;
    case OpCode::kMaximum:
      return select(less(dtype, x, y), y, x);
    case OpCode::kMinimum:
      return select(less(dtype, y, x), y, x);
    case OpCode::kDivide:
      return divide(dtype, x, y);
    case OpCode::kRemainder:
      return integer_remainder(dtype, x, y);
    case OpCode::kPower:
      return power(dtype, x, y);
    case OpCode::kShiftLeft:
    case OpCode::kShiftRightLogical:
    case OpCode::kShiftRightArithmetic:
      return shift(code, dtype, x, y);
    default:
      return std::nullopt;
  }
}

}  // namespace hekla::kernel
