// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace hekla {
namespace {

struct Info {
  std::string_view name;
  int bits;
  int bytes;
};

constexpr std::array<Info, kDTypeCount> kInfo = {{
    {"invalid", 0, 0},
    {"i1", 1, 1},
    {"i2", 2, 1},
    {"i4", 4, 1},
    {"i8", 8, 1},
    {"i16", 16, 2},
    {"i32", 32, 4},
    {"i64", 64, 8},
    {"ui2", 2, 1},
    {"ui4", 4, 1},
    {"ui8", 8, 1},
    {"ui16", 16, 2},
    {"ui32", 32, 4},
    {"ui64", 64, 8},
    {"f4E2M1FN", 4, 1},
    {"f6E2M3FN", 6, 1},
    {"f6E3M2FN", 6, 1},
    {"f8E3M4", 8, 1},
    {"f8E4M3", 8, 1},
    {"f8E4M3FN", 8, 1},
    {"f8E4M3FNUZ", 8, 1},
    {"f8E4M3B11FNUZ", 8, 1},
    {"f8E5M2", 8, 1},
    {"f8E5M2FNUZ", 8, 1},
    {"f8E8M0FNU", 8, 1},
    {"bf16", 16, 2},
    {"f16", 16, 2},
    {"tf32", 32, 4},
    {"f32", 32, 4},
    {"f64", 64, 8},
    {"complex<f32>", 64, 8},
    {"complex<f64>", 128, 16},
}};

const Info& info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

constexpr uint64_t low_bits(int count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// `value` is positive, finite and below 2^63; ties go to the even integer.
uint64_t round_half_even(double value) {
  double floor = std::floor(value);
  uint64_t integer = static_cast<uint64_t>(floor);
  double rest = value - floor;
  if (rest > 0.5 || (rest == 0.5 && (integer & 1) != 0)) ++integer;
  return integer;
}

}  // namespace

std::string_view dtype_name(DType dtype) { return info(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int dtype_bits(DType dtype) { return info(dtype).bits; }
int64_t dtype_bytes(DType dtype) { return info(dtype).bytes; }

bool is_signed_integer(DType dtype) { return dtype >= DType::kI2 && dtype <= DType::kI64; }
bool is_unsigned_integer(DType dtype) { return dtype >= DType::kUI2 && dtype <= DType::kUI64; }
bool is_integer(DType dtype) { return is_signed_integer(dtype) || is_unsigned_integer(dtype); }
bool is_float(DType dtype) { return dtype >= DType::kF4E2M1FN && dtype <= DType::kF64; }
bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

DType complex_part(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  if (dtype == DType::kC128) return DType::kF64;
  return dtype;
}

DType complex_of(DType part) {
  if (part == DType::kF32) return DType::kC64;
  if (part == DType::kF64) return DType::kC128;
  return DType::kInvalid;
}

FloatFormat float_format(DType dtype) {
  using enum FloatFormat::Specials;
  switch (dtype) {
    case DType::kF4E2M1FN:
      return {2, 1, 1, kFiniteOnly};
    case DType::kF6E2M3FN:
      return {2, 3, 1, kFiniteOnly};
    case DType::kF6E3M2FN:
      return {3, 2, 3, kFiniteOnly};
    case DType::kF8E3M4:
      return {3, 4, 3, kIeee};
    case DType::kF8E4M3:
      return {4, 3, 7, kIeee};
    case DType::kF8E4M3FN:
      return {4, 3, 7, kFiniteNan};
    case DType::kF8E4M3FNUZ:
      return {4, 3, 8, kUnsignedZero};
    case DType::kF8E4M3B11FNUZ:
      return {4, 3, 11, kUnsignedZero};
    case DType::kF8E5M2:
      return {5, 2, 15, kIeee};
    case DType::kF8E5M2FNUZ:
      return {5, 2, 16, kUnsignedZero};
    case DType::kF8E8M0FNU:
      return {8, 0, 127, kFiniteNan, false};
    case DType::kBF16:
      return {8, 7, 127, kIeee};
    case DType::kF16:
      return {5, 10, 15, kIeee};
    case DType::kTF32:
      return {8, 10, 127, kIeee};
    case DType::kF32:
      return {8, 23, 127, kIeee};
    case DType::kF64:
      return {11, 52, 1023, kIeee};
    default:
      return {0, 0, 0, kIeee};
  }
}

double float_from_bits(DType dtype, uint64_t bits) {
  if (dtype == DType::kF64) return std::bit_cast<double>(bits);
  if (dtype == DType::kF32 || dtype == DType::kTF32) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
  const FloatFormat format = float_format(dtype);
  if (dtype == DType::kF8E8M0FNU) {
    bits &= 0xff;
    return bits == 0xff ? std::nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
  }
  const uint64_t mantissa = bits & low_bits(format.mantissa_bits);
  const uint64_t exponent = (bits >> format.mantissa_bits) & low_bits(format.exponent_bits);
  const bool negative = (bits >> (format.mantissa_bits + format.exponent_bits) & 1) != 0;
  const uint64_t top = low_bits(format.exponent_bits);
  double magnitude = 0;
  switch (format.specials) {
    case FloatFormat::Specials::kIeee:
      if (exponent == top) {
        magnitude = mantissa == 0 ? HUGE_VAL : std::nan("");
        return negative ? -magnitude : magnitude;
      }
      break;
    case FloatFormat::Specials::kFiniteNan:
      if (exponent == top && mantissa == low_bits(format.mantissa_bits)) {
        return negative ? -std::nan("") : std::nan("");
      }
      break;
    case FloatFormat::Specials::kUnsignedZero:
      if (negative && exponent == 0 && mantissa == 0) return std::nan("");
      break;
    case FloatFormat::Specials::kFiniteOnly:
      break;
  }
  const int shift = format.bias + format.mantissa_bits;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(mantissa), 1 - shift);
  } else {
    magnitude = std::ldexp(static_cast<double>(mantissa | (uint64_t{1} << format.mantissa_bits)),
                           static_cast<int>(exponent) - shift);
  }
  return negative ? -magnitude : magnitude;
}

uint64_t float_to_bits(DType dtype, double value) {
  if (dtype == DType::kF64) return std::bit_cast<uint64_t>(value);
  if (dtype == DType::kF32) {
    // A NaN keeps its sign alone: conversion instructions differ in what they do to its payload.
    if (std::isnan(value)) return std::signbit(value) ? 0xffc00000u : 0x7fc00000u;
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
  using enum FloatFormat::Specials;
  const FloatFormat format = float_format(dtype);
  const int storage_shift = dtype == DType::kTF32 ? 13 : 0;
  const int sign_position = format.mantissa_bits + format.exponent_bits;
  const bool negative = std::signbit(value);
  const uint64_t sign = format.has_sign && negative ? uint64_t{1} << sign_position : 0;
  const uint64_t top = low_bits(format.exponent_bits);

  uint64_t infinity = 0;  // also: what too large a value becomes
  uint64_t nan = 0;
  uint64_t largest = 0;
  switch (format.specials) {
    case kIeee:
      infinity = top << format.mantissa_bits;
      nan = infinity | (uint64_t{1} << (format.mantissa_bits - 1));
      largest = infinity - 1;
      break;
    case kFiniteNan:
      nan = low_bits(sign_position);
      infinity = nan;
      largest = nan - 1;
      break;
    case kFiniteOnly:
      largest = low_bits(sign_position);
      infinity = largest;
      break;
    case kUnsignedZero:
      nan = uint64_t{1} << sign_position;
      infinity = nan;
      largest = low_bits(sign_position);
      break;
  }
  if (std::isnan(value)) {
    if (format.specials == kUnsignedZero) return nan;
    if (format.specials == kFiniteOnly) return negative ? 0 : uint64_t{1} << sign_position;
    return (nan | sign) << storage_shift;
  }
  if (dtype == DType::kF8E8M0FNU) {
    if (!(value > 0)) return nan;
    // Halfway between two powers of two goes up: there is no mantissa bit to be even.
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
    int64_t field = int64_t{exponent} - 1 + format.bias;
    if (std::isinf(value)) return nan;
    if (fraction >= 0.75) ++field;
    if (field < 0) return 0;
    return field >= 0xff ? nan : static_cast<uint64_t>(field);
  }
  const double magnitude = std::fabs(value);
  uint64_t bits = 0;
  if (std::isinf(magnitude)) {
    bits = infinity;
  } else if (magnitude > 0) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    // Units of the last place at this magnitude, not below the subnormal unit.
    const int lowest = 1 - format.bias - format.mantissa_bits;
    const int unit = std::max(exponent - 1 - format.mantissa_bits, lowest);
    const uint64_t mantissa = round_half_even(std::ldexp(magnitude, -unit));
    // A mantissa that rounds up into the next binade carries into the exponent by itself.
    bits = mantissa + (static_cast<uint64_t>(unit - lowest) << format.mantissa_bits);
    if (bits > largest) bits = infinity;
  }
  if (format.specials == kUnsignedZero) return bits == 0 || bits == nan ? bits : bits | sign;
  return (bits | sign) << storage_shift;
}

}  // namespace hekla
