// SPDX-License-Identifier: Apache-2.0
// StableHLO's convert, bit casts and reduce_precision.
#include <cmath>

#include "backends/compiler/kernel/math/functions.h"

namespace hekla::kernel {
namespace {

using enum ScalarType;

Num integer_to_integer(Num x, DType from, DType to) {
  const bool was_signed = is_signed_integer(from);
  const ScalarType type = scalar_type(to);
  if (type == kI64) {
    if (x.type() == kI64) return x;
    return convert(was_signed ? Op::kSignExtend : Op::kZeroExtend, kI64, x);
  }
  const Num low = x.type() == kI64 ? convert(Op::kTruncate, kI32, x) : x;
  const int gained = dtype_bits(to) - dtype_bits(from);
  const bool fits = was_signed == is_signed_integer(to) ? gained >= 0 : !was_signed && gained > 0;
  return fits ? low : wrap_integer(to, low);
}

Num integer_to_float(Num x, DType from, DType to) {
  const bool is_signed = is_signed_integer(from);
  const Op op = is_signed ? Op::kSIntToFloat : Op::kUIntToFloat;
  if (to == DType::kF64) return convert(op, kF64, x);
  if (to == DType::kF32) return convert(op, kF32, x);
  const Num value = dtype_bits(from) <= 24 ? convert(op, kF32, x) : sticky_float(x, is_signed);
  return {*x.b, round_to_dtype(*x.b, to, value.v)};
}

Num float_to_float(Num x, DType from, DType to) {
  if (from == to) return x;
  const Num rounded = [&] {
    if (to == DType::kF64) return from == DType::kF64 ? x : convert(Op::kFloatResize, kF64, x);
    if (from != DType::kF64) return x;
    return to == DType::kF32 ? convert(Op::kFloatResize, kF32, x) : round_to_odd(x);
  }();
  return {*x.b, round_to_dtype(*x.b, to, rounded.v)};
}

Num float_to_integer(Num x, DType to) {
  const bool is_signed = is_signed_integer(to);
  const int bits = dtype_bits(to);
  const ScalarType type = scalar_type(to);
  // The first value that is too large, and the lowest that is not too low. Both are powers of two.
  const double limit = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const double low = is_signed ? -limit : 0.0;
  const Num fits = binary(Op::kAnd, x >= low, x < limit);
  const Num whole =
      convert(is_signed ? Op::kFloatToSInt : Op::kFloatToUInt, type, select(fits, x, 0.0));
  const int64_t highest = bits == 64 ? (is_signed ? std::numeric_limits<int64_t>::max() : -1)
                                     : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  const int64_t lowest = !is_signed   ? 0
                         : bits == 64 ? std::numeric_limits<int64_t>::min()
                                      : -(int64_t{1} << (bits - 1));
  // NaN is neither and gives 0.
  Num outside = select(x >= limit, whole.integer(highest), whole.integer(0));
  if (is_signed) outside = select(x < low, whole.integer(lowest), outside);
  return select(fits, whole, outside);
}

Num from_bool(Num x, DType to) {
  const ScalarType type = scalar_type(to);
  if (is_integer(to)) return wrap_integer(to, convert(Op::kBoolToInt, type, x));
  const Value one = integer_element(*x.b, complex_part(to), 1).re;
  const Value zero = integer_element(*x.b, complex_part(to), 0).re;
  return {*x.b, x.b->select(x.v, one, zero)};
}

// To a dtype that is not complex.
Num convert_real(Num x, DType from, DType to) {
  if (from == to) return x;
  if (from == DType::kI1) return from_bool(x, to);
  if (to == DType::kI1) {
    return is_float(from) ? not_equal(x, x.constant(0)) : not_equal(x, 0);
  }
  if (is_integer(from)) {
    return is_integer(to) ? integer_to_integer(x, from, to) : integer_to_float(x, from, to);
  }
  return is_integer(to) ? float_to_integer(x, to) : float_to_float(x, from, to);
}

// Rounds to `mantissa_bits` at the value's own exponent, in the layout of its type.
Num cut_mantissa(Num x, int64_t mantissa_bits) {
  const FloatLayout f = layout(x.type());
  const int64_t cut = f.mantissa - mantissa_bits;
  if (cut <= 0) return x;
  const Num bits = bits_of(x);
  // Without mantissa bits the last place of a normal number is its leading one, which is odd.
  const Num odd = mantissa_bits > 0 ? shr_u(bits, cut) & 1
                                    : convert(Op::kBoolToInt, f.bits,
                                              logical_not(less_s(bits, int64_t{1} << f.mantissa)));
  const int64_t half = (int64_t{1} << (cut - 1)) - 1;
  const Num rounded = (bits + bits.integer(half) + odd) & ~((int64_t{1} << cut) - 1);
  return float_of(x.type(), rounded);
}

}  // namespace

Num sticky_float(Num x, bool is_signed) {
  const ScalarType type = x.type();
  const Num zero = x.integer(0);
  const Num is_negative = is_signed ? less_s(x, 0) : Num(*x.b, x.b->boolean(false));
  const Num magnitude = select(is_negative, zero - x, x);
  // At most 24 bits stay; at least 16 do, the last of which is sticky.
  Num mask = select(less_u(magnitude, int64_t{1} << 24), zero, x.integer(0xff));
  if (type == kI64) {
    for (int bits = 32; bits < 64; bits += 8) {
      mask = select(less_u(magnitude, int64_t{1} << bits), mask,
                    x.integer((int64_t{1} << (bits - 16)) - 1));
    }
  }
  const Num rest = magnitude & mask;
  const Num sticky = select(equal(rest, 0), zero, mask + 1.0);
  const Num kept = (magnitude & (mask ^ -1)) | sticky;
  const Num value = convert(Op::kUIntToFloat, kF32, kept);
  return select(is_negative, -value, value);
}

Num round_to_odd(Num x) {
  const Num nearest = convert(Op::kFloatResize, kF32, x);
  const Num back = convert(Op::kFloatResize, kF64, nearest);
  const Num bits = bits_of(nearest);
  const Num truncated = select(abs(back) > abs(x), bits - 1.0, bits);
  // NaN compares unequal to itself and stays a NaN with an odd payload.
  return float_of(kF32, select(equal(back, x), bits, truncated | 1));
}

Element convert_element(Builder& b, const Element& x, DType from, DType to) {
  if (from == to) return x;
  const Num re(b, x.re);
  const DType from_part = complex_part(from);
  const DType to_part = complex_part(to);
  Element result{convert_real(re, from_part, to_part).v};
  if (is_complex(to)) {
    result.im = is_complex(from) ? convert_real(Num(b, x.im), from_part, to_part).v
                                 : b.real(scalar_type(to), 0);
  }
  return result;
}

std::optional<Element> bitcast(Builder& b, const Element& x, DType from, DType to) {
  if (from == to) return x;
  if (dtype_bits(from) != dtype_bits(to) || dtype_bits(from) > 64) return std::nullopt;
  if (from == DType::kC64 || to == DType::kC64) {
    const auto half = [&](Value part) {
      return convert(Op::kZeroExtend, kI64, bits_of(Num(b, part)));
    };
    if (from == DType::kC64) {
      const Num bits = half(x.re) | shl(half(x.im), 32);
      return element_from_bits(b, to, bits.v);
    }
    const Num bits(b, element_bits(b, from, x));
    return Element{float_of(kF32, convert(Op::kTruncate, kI32, bits)).v,
                   float_of(kF32, convert(Op::kTruncate, kI32, shr_u(bits, 32))).v};
  }
  // tf32 has the width of f32 but not its bits; what is cut is what a store would cut.
  if (to == DType::kTF32) return std::nullopt;
  return element_from_bits(b, to, element_bits(b, from, x));
}

std::optional<Element> reduce_precision(Builder& b, DType dtype, const Element& x,
                                        int64_t exponent_bits, int64_t mantissa_bits) {
  if (!is_float(dtype)) return std::nullopt;
  const Num value(b, x.re);
  const FloatLayout f = layout(value.type());
  const FloatFormat format = float_format(dtype);
  const int own_exponent_bits = f.width - 1 - f.mantissa;
  Num rounded = abs(value);
  if (mantissa_bits < format.mantissa_bits) {
    rounded = cut_mantissa(rounded, mantissa_bits);
    if (format.exponent_bits < own_exponent_bits) {
      // The dtype's subnormals are normal numbers of f32; they lie on the grid of their lowest
      // exponent and lose the same bits as the others there.
      const double lowest = std::ldexp(1.0, 1 - format.bias);
      const double grid =
          std::ldexp(1.0, 1 - format.bias + f.mantissa - static_cast<int>(mantissa_bits));
      rounded = select(abs(value) < lowest, (abs(value) + grid) - grid, rounded);
    }
  }
  if (exponent_bits < format.exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const Num infinity = float_of(value.type(), bits_of(value).integer(f.infinity));
    // A power of two beyond the type is its infinity.
    if (bias + 1 <= f.bias) {
      rounded = select(rounded < std::ldexp(1.0, bias + 1), rounded, infinity);
    }
    // The format has no subnormals.
    rounded = select(rounded < std::ldexp(1.0, 1 - bias), 0.0, rounded);
  }
  const Num result = select(is_nan(value), value, copy_sign(rounded, value));
  return Element{round_to_dtype(b, dtype, result.v)};
}

}  // namespace hekla::kernel
