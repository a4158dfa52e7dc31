// SPDX-License-Identifier: Apache-2.0
// DType: the element types of StableHLO tensors, their sizes, names and bit-exact conversions.
//
// In host memory every element takes whole bytes: booleans and types below eight bits take one byte
// each (integers sign- or zero-extended, floats as their bit pattern in the low bits). Complex
// numbers are two consecutive floats, real part first. Everything here is pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hekla {

enum class DType : uint8_t {
  kInvalid,
  kI1,
  kI2,
  kI4,
  kI8,
  kI16,
  kI32,
  kI64,
  kUI2,
  kUI4,
  kUI8,
  kUI16,
  kUI32,
  kUI64,
  kF4E2M1FN,
  kF6E2M3FN,
  kF6E3M2FN,
  kF8E3M4,
  kF8E4M3,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E4M3B11FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kBF16,
  kF16,
  kTF32,  // stored as f32 with the low 13 mantissa bits zero
  kF32,
  kF64,
  kC64,   // complex<f32>
  kC128,  // complex<f64>
};
inline constexpr int kDTypeCount = static_cast<int>(DType::kC128) + 1;

// StableHLO's spelling: "i1", "ui8", "bf16", "f8E4M3FN", "complex<f32>".
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// Logical width: 1, 2, 4, 6, 8 ... 128; tf32 counts 32 (its storage).
int dtype_bits(DType dtype);
// Bytes of one element in host memory.
int64_t dtype_bytes(DType dtype);

bool is_signed_integer(DType dtype);    // i2 .. i64
bool is_unsigned_integer(DType dtype);  // ui2 .. ui64
bool is_integer(DType dtype);           // either; not i1
bool is_float(DType dtype);             // f4 .. f64; not complex
bool is_complex(DType dtype);
// The part type of a complex type; any other type is returned unchanged.
DType complex_part(DType dtype);
// complex<f32> for f32, complex<f64> for f64, kInvalid for the rest.
DType complex_of(DType part);

// One binary floating-point format of at most 64 bits.
struct FloatFormat {
  enum class Specials : uint8_t {
    kIeee,         // infinities and NaNs in the top exponent
    kFiniteNan,    // "FN": no infinity; NaN is all ones in exponent and mantissa
    kFiniteOnly,   // f4, f6: neither infinity nor NaN
    kUnsignedZero  // "FNUZ": no infinity, no -0; NaN is the sign bit alone
  };
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;
  bool has_sign = true;  // false: f8E8M0FNU, powers of two without zero, NaN = 0xff
};

// The format of a float dtype; a default-constructed one for types that are not floats.
FloatFormat float_format(DType dtype);

// The value of a bit pattern; exact, since every format fits into double.
double float_from_bits(DType dtype, uint64_t bits);
// Round to nearest, ties to even. A value above the largest finite one becomes infinity in IEEE
// formats, NaN in FN and FNUZ formats and the largest finite value in f4 and f6. NaN in f4 and f6,
// which cannot say it, becomes a zero whose sign is opposite to the NaN's. f8E8M0FNU: zero and
// negative values become NaN. All of this is what ml_dtypes does.
uint64_t float_to_bits(DType dtype, double value);

}  // namespace hekla
