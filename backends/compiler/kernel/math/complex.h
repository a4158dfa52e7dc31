// SPDX-License-Identifier: Apache-2.0
// Complex numbers of the scalar IR by parts. For this folder only.
//
// Parts are accurate on their own where that costs little: squares and products whose sum may
// cancel are added as exact pairs. docs/numerics.md has the measured errors.
#pragma once

#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/polynomial.h"

namespace hekla::kernel {

struct Complex {
  Num re, im;
};

inline Complex operator+(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
inline Complex operator-(Complex x, Complex y) { return {x.re - y.re, x.im - y.im}; }
inline Complex operator-(Complex z) { return {-z.re, -z.im}; }
// The textbook formula, without C's repair of infinities, as XLA has it.
inline Complex operator*(Complex x, Complex y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
inline Complex select(Num condition, Complex x, Complex y) {
  return {select(condition, x.re, y.re), select(condition, x.im, y.im)};
}
inline Num is_zero(Complex z) {
  return equal(z.re, z.re.constant(0)) & equal(z.im, z.im.constant(0));
}

// x * 2^k for k up to four times the exponent range, rounded about once.
Num scale_wide(Num x, Num k);

// Scaled against overflow; division by zero and infinite operands as in C's Annex G.
Complex divide(Complex x, Complex y);
Num abs(Complex z);  // infinite when a part is, also beside NaN
Complex sign(Complex z);
Complex sqrt(Complex z);
Complex rsqrt(Complex z);
Complex cbrt(Complex z);
Complex exp(Complex z);
Complex expm1(Complex z);
Complex log(Complex z);
Complex log1p(Complex z);
Complex logistic(Complex z);
Complex sin(Complex z);
Complex cos(Complex z);
Complex tan(Complex z);
Complex tanh(Complex z);
Complex pow(Complex x, Complex y);
Complex atan2(Complex y, Complex x);

}  // namespace hekla::kernel
