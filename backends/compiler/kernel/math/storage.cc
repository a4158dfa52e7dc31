// SPDX-License-Identifier: Apache-2.0
// Elements in memory: loads, stores, and the bits of the narrow float formats, by integer
// arithmetic so that no device's treatment of subnormals or NaN matters.
#include <cmath>
#include <cstring>

#include "backends/compiler/kernel/math/functions.h"

namespace hekla::kernel {
namespace {

using enum ScalarType;
constexpr int64_t kSign32 = 0x80000000;
constexpr int64_t kInf32 = 0x7f800000;
constexpr int64_t kNan32 = 0x7fc00000;

using Specials = FloatFormat::Specials;

int64_t low_bits(int count) { return (int64_t{1} << count) - 1; }

Num decode_e8m0(Num bits) {
  // 0 is 2^-127, a subnormal of f32; 0xff is NaN.
  Num value = select(equal(bits, 0), bits.integer(0x00400000), shl(bits, 23));
  value = select(equal(bits, 0xff), bits.integer(kNan32), value);
  return float_of(kF32, value);
}

Num decode_narrow(const FloatFormat& f, Num bits) {
  const int shift = 23 - f.mantissa_bits;
  const int sign_position = f.exponent_bits + f.mantissa_bits;
  const Num magnitude = bits & low_bits(sign_position);
  const Num sign = shl(shr_u(bits, sign_position), 31);
  const Num normal = shl(magnitude, shift) + static_cast<double>(int64_t{127 - f.bias} << 23);
  // Subnormals by conversion: the result is normal in f32.
  const Num small = bits_of(convert(Op::kSIntToFloat, kF32, magnitude) *
                            std::ldexp(1.0, 1 - f.bias - f.mantissa_bits));
  Num value = select(less_s(magnitude, int64_t{1} << f.mantissa_bits), small, normal);
  switch (f.specials) {
    case Specials::kIeee: {
      // From the format's top exponent to that of f32.
      const int64_t top = low_bits(f.exponent_bits);
      const Num special = normal + static_cast<double>((128 - top + f.bias) << 23);
      value = select(less_s(magnitude, top << f.mantissa_bits), value, special);
      break;
    }
    case Specials::kFiniteNan:
      value = select(equal(magnitude, low_bits(sign_position)), value.integer(kNan32), value);
      break;
    case Specials::kUnsignedZero: {
      const Num is_nan = equal(bits, int64_t{1} << sign_position);
      return float_of(kF32, select(is_nan, value.integer(kNan32), value | sign));
    }
    case Specials::kFiniteOnly:
      break;
  }
  return float_of(kF32, value | sign);
}

Num float_from_bits(DType dtype, Num bits) {
  switch (dtype) {
    case DType::kF32:
    case DType::kTF32:
      return float_of(kF32, bits);
    case DType::kBF16:
      return float_of(kF32, shl(bits, 16));
    case DType::kF8E8M0FNU:
      return decode_e8m0(bits);
    case DType::kF16:
      return convert(Op::kHalfToFloat, kF32, bits);
    default:
      return decode_narrow(float_format(dtype), bits);
  }
}

// The bits of `x`, which the format can represent.
Num encode_narrow(const FloatFormat& f, Num x) {
  const Num bits = bits_of(x);
  const int shift = 23 - f.mantissa_bits;
  const int sign_position = f.exponent_bits + f.mantissa_bits;
  const Num magnitude = bits & ~kSign32;
  const Num sign = shl(shr_u(bits, 31), sign_position);
  const Num normal =
      shr_u(magnitude, shift) - static_cast<double>(int64_t{127 - f.bias} << f.mantissa_bits);
  const int64_t smallest_normal = int64_t{128 - f.bias} << 23;
  const Num is_small = less_s(magnitude, smallest_normal);
  // The sum with a power of two whose last place is the subnormal unit ends in the bits.
  const double grid = std::ldexp(1.0, 24 - f.bias - f.mantissa_bits);
  const Num small = bits_of(abs(x) + grid) & low_bits(f.mantissa_bits);
  const Num result = select(is_small, small, normal);
  const Num is_special = logical_not(less_s(magnitude, kInf32));
  switch (f.specials) {
    case Specials::kIeee: {
      // From f32's top exponent to that of the format.
      const int64_t top = low_bits(f.exponent_bits);
      const Num special = normal - static_cast<double>((128 - top + f.bias) << f.mantissa_bits);
      return select(is_special, special, result) | sign;
    }
    case Specials::kFiniteNan:
      return select(is_special, result.integer(low_bits(sign_position)), result) | sign;
    case Specials::kUnsignedZero:
      return select(is_special, result.integer(int64_t{1} << sign_position), result | sign);
    case Specials::kFiniteOnly:
      break;
  }
  return result | sign;
}

Num encode_exact(DType dtype, Num x) {
  switch (dtype) {
    case DType::kF32:
    case DType::kTF32:
      return bits_of(x);
    case DType::kBF16:
      return shr_u(bits_of(x), 16);
    case DType::kF8E8M0FNU:
      return shr_u(bits_of(x), 23);  // 0xff for NaN
    case DType::kF16:
      return convert(Op::kFloatToHalf, kI32, x);
    default:
      return encode_narrow(float_format(dtype), x);
  }
}

// Rounds the low `cut` bits of f32 away, ties to even. The carry may make an infinity, as it
// should.
Num round_bits(Num bits, int cut) {
  const Num odd = shr_u(bits, cut) & 1;
  return (bits + static_cast<double>(low_bits(cut - 1)) + odd) & ~low_bits(cut);
}

Num round_truncated(Num x, int cut) {
  const Num bits = bits_of(x);
  return float_of(kF32, select(is_nan(x), (bits & kSign32) | kNan32, round_bits(bits, cut)));
}

Num round_e8m0(Num x) {
  // Halfway between two powers of two goes up; what is below 2^-127 becomes 2^-127.
  const Num bits = bits_of(x);
  Num value = (bits + static_cast<double>(1 << 22)) & ~low_bits(23);
  // Subnormals: 1.5 * 2^-127 is the boundary to 2^-126.
  value = select(less_s(bits, 0x00600000), value.integer(0x00400000), value);
  const Num bad = logical_not(x > 0.0);
  value = select(less_s(value, kInf32), value, value.integer(kNan32));
  // x > 0 and finite, or NaN.
  return float_of(kF32, select(bad, value.integer(kNan32), value));
}

Num round_narrow(const FloatFormat& f, Num x) {
  const Num bits = bits_of(x);
  const Num sign = bits & kSign32;
  const Num magnitude = bits & ~kSign32;
  const Num normal = round_bits(magnitude, 23 - f.mantissa_bits);
  // Adding a power of two whose last place is the subnormal unit rounds to that unit.
  const double grid = std::ldexp(1.0, 24 - f.bias - f.mantissa_bits);
  const Num small = bits_of((abs(x) + grid) - grid);
  const Num is_small = less_s(magnitude, int64_t{128 - f.bias} << 23);
  Num value = select(is_small, small, normal);

  const int top = static_cast<int>(low_bits(f.exponent_bits));
  // The largest finite value: its exponent field and mantissa, as f32's bits.
  int64_t largest = 0;
  int64_t mantissa = low_bits(f.mantissa_bits);
  int exponent = top;
  if (f.specials == Specials::kIeee) exponent = top - 1;
  if (f.specials == Specials::kFiniteNan) mantissa -= 1;
  largest = (int64_t{exponent - f.bias + 127} << 23) | mantissa << (23 - f.mantissa_bits);
  int64_t above = kInf32;  // what too large a value becomes
  if (f.specials == Specials::kFiniteNan || f.specials == Specials::kUnsignedZero) above = kNan32;
  if (f.specials == Specials::kFiniteOnly) above = largest;
  value = select(less_s(value.integer(largest), value), value.integer(above), value);

  switch (f.specials) {
    case Specials::kIeee:
    case Specials::kFiniteNan:
      return float_of(kF32, select(is_nan(x), value.integer(kNan32), value) | sign);
    case Specials::kUnsignedZero: {
      value = select(is_nan(x), value.integer(kNan32), value);
      // The one zero and the one NaN have no sign.
      const Num is_signless = equal(value, 0) | equal(value, kNan32);
      return float_of(kF32, select(is_signless, value, value | sign));
    }
    case Specials::kFiniteOnly:
      break;
  }
  return float_of(kF32, select(is_nan(x), sign ^ kSign32, value | sign));
}

Num round_float(DType dtype, Num x) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
      return x;
    case DType::kBF16:
      return round_truncated(x, 16);
    case DType::kTF32:
      return round_truncated(x, 13);
    case DType::kF8E8M0FNU:
      return round_e8m0(x);
    case DType::kF16:
      return convert(Op::kHalfToFloat, kF32, convert(Op::kFloatToHalf, kI32, x));
    default:
      return round_narrow(float_format(dtype), x);
  }
}

Access access_of(int32_t operand, int64_t bytes, bool is_signed = false) {
  return {operand, static_cast<uint8_t>(bytes), is_signed};
}

}  // namespace

Num half_to_float_by_integers(Num bits) { return decode_narrow(float_format(DType::kF16), bits); }
Num round_to_half_by_integers(Num x) { return round_narrow(float_format(DType::kF16), x); }
Num float_to_half_by_integers(Num x) {
  return encode_narrow(float_format(DType::kF16), round_to_half_by_integers(x));
}

ScalarType scalar_type(DType dtype) {
  if (dtype == DType::kI1) return ScalarType::kBool;
  if (is_integer(dtype)) return dtype_bits(dtype) == 64 ? kI64 : kI32;
  return complex_part(dtype) == DType::kF64 ? ScalarType::kF64 : kF32;
}

Value round_to_dtype(Builder& b, DType dtype, Value value) {
  return round_float(dtype, Num(b, value)).v;
}

Value element_bits(Builder& b, DType dtype, const Element& element) {
  const Num x(b, element.re);
  if (dtype == DType::kI1) return convert(Op::kBoolToInt, kI32, x).v;
  if (is_integer(dtype)) {
    const int bits = dtype_bits(dtype);
    return is_signed_integer(dtype) && bits < 32 ? (x & low_bits(bits)).v : x.v;
  }
  return dtype == DType::kF64 ? bits_of(x).v : encode_exact(dtype, x).v;
}

Element element_from_bits(Builder& b, DType dtype, Value value) {
  const Num bits(b, value);
  if (dtype == DType::kI1) return {not_equal(bits, 0).v};
  if (is_integer(dtype)) {
    return {is_signed_integer(dtype) ? wrap_integer(dtype, bits).v : bits.v};
  }
  if (dtype == DType::kF64) return {float_of(ScalarType::kF64, bits).v};
  return {float_from_bits(dtype, bits).v};
}

Element load_element(Builder& b, DType dtype, int32_t operand, Value index) {
  const ScalarType type = scalar_type(dtype);
  if (is_complex(dtype)) {
    const Access access = access_of(operand, dtype_bytes(dtype) / 2);
    const Num first = Num(b, index) * 2.0;
    return {b.load(type, access, first.v), b.load(type, access, (first + 1.0).v)};
  }
  const Access access = access_of(operand, dtype_bytes(dtype), is_signed_integer(dtype));
  if (dtype_bytes(dtype) >= 4) return {b.load(type, access, index)};
  const Value loaded = b.load(kI32, access, index);
  // Integers lie in memory extended to whole bytes.
  if (is_integer(dtype)) return {loaded};
  return element_from_bits(b, dtype, loaded);
}

void store_element(Builder& b, DType dtype, int32_t operand, Value index, const Element& element) {
  if (is_complex(dtype)) {
    const Access access = access_of(operand, dtype_bytes(dtype) / 2);
    const Num first = Num(b, index) * 2.0;
    b.store(access, first.v, element.re);
    b.store(access, (first + 1.0).v, element.im);
    return;
  }
  const Access access = access_of(operand, dtype_bytes(dtype));
  if (is_integer(dtype) || dtype_bytes(dtype) >= 4) {
    b.store(access, index, element.re);
  } else {
    b.store(access, index, element_bits(b, dtype, element));
  }
}

Element constant_element(Builder& b, DType dtype, const std::byte* bytes) {
  if (is_complex(dtype)) {
    const DType part = complex_part(dtype);
    return {constant_element(b, part, bytes).re,
            constant_element(b, part, bytes + dtype_bytes(part)).re};
  }
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, static_cast<size_t>(dtype_bytes(dtype)));
  if (scalar_type(dtype) == kI64) return {b.constant_bits(kI64, bits)};
  if (dtype == DType::kF64) return {b.constant_bits(ScalarType::kF64, bits)};
  if (dtype_bits(dtype) == 8 * dtype_bytes(dtype) || !is_integer(dtype)) {
    return element_from_bits(b, dtype, b.constant_bits(kI32, bits));
  }
  // Below eight bits the bytes above the element's bits are its extension already.
  const uint64_t mask = (uint64_t{1} << dtype_bits(dtype)) - 1;
  return element_from_bits(b, dtype, b.constant_bits(kI32, bits & mask));
}

Element integer_element(Builder& b, DType dtype, int64_t value) {
  if (dtype == DType::kI1) return {b.boolean(value != 0)};
  const ScalarType type = scalar_type(dtype);
  const Num constant(b, b.integer(type, value));
  if (is_integer(dtype)) return {wrap_integer(dtype, constant).v};
  const Value rounded = round_float(complex_part(dtype), constant).v;
  if (is_complex(dtype)) return {rounded, b.real(type, 0)};
  return {rounded};
}

}  // namespace hekla::kernel
