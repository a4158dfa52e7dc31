// SPDX-License-Identifier: Apache-2.0
// What element.cc dispatches to: expansions by kind of dtype. For this folder only.
#pragma once

#include <optional>

#include "backends/compiler/kernel/math/element.h"
#include "backends/compiler/kernel/math/num.h"

namespace hekla::kernel {

// `x` brought back into the range of an integer dtype: extended from its low bits.
Num wrap_integer(DType dtype, Num x);
std::optional<Num> unary_integer(ir::OpCode code, DType dtype, Num x);
std::optional<Num> binary_integer(ir::OpCode code, DType dtype, Num x, Num y);

// kHalfToFloat, kFloatToHalf and the second after the first, for devices without such instructions.
// NaNs that come out are quiet, with or without their payload.
Num half_to_float_by_integers(Num bits);
Num float_to_half_by_integers(Num x);
Num round_to_half_by_integers(Num x);

// Of kF32 or kF64; the caller rounds to narrower dtypes.
std::optional<Num> unary_float(ir::OpCode code, Num x);
std::optional<Num> binary_float(ir::OpCode code, Num x, Num y);

std::optional<Element> unary_complex(Builder& b, ir::OpCode code, DType dtype, const Element& x);
std::optional<Element> binary_complex(Builder& b, ir::OpCode code, const Element& x,
                                      const Element& y);

// Exact ones.
Num maximum(Num x, Num y);
Num minimum(Num x, Num y);
Num is_finite(Num x);
Num remainder(Num x, Num y);  // C's fmod

// Functions of kF32 or kF64 with a bound (docs/numerics.md).
Num exp(Num x);
Num expm1(Num x);
Num log(Num x);
Num log1p(Num x);
Num tanh(Num x);
Num logistic(Num x);
Num rsqrt(Num x);
Num cbrt(Num x);

Num sin(Num x);
Num cos(Num x);
Num tan(Num x);
Num atan2(Num y, Num x);
Num pow(Num x, Num y);

// x = k ln(2) + r with |r| <= ln(2)/2 and e^r - 1 of r. The product of k and the first part of
// ln(2) is exact, and so is its difference to x.
struct ExpParts {
  Num k;        // a float
  Num integer;  // low bits of k + offset
  Num expm1;    // e^r - 1
};
ExpParts reduce_exp(Num x, int offset);

// A positive finite x = m 2^k with sqrt(1/2) <= m <= sqrt(2); any numbers for other x.
struct LogParts {
  Num k;  // a float
  Num m;
};
LogParts reduce_log(Num x);

// An integer's value with its low bits merged into one sticky bit, so that it fits into f32
// exactly and rounds to at most 14 bits as the integer itself would.
Num sticky_float(Num x, bool is_signed);
// f64 to f32, inexact results to the neighbour with an odd last bit: a further rounding to at most
// 22 bits then gives what one rounding would.
Num round_to_odd(Num x);

}  // namespace hekla::kernel
