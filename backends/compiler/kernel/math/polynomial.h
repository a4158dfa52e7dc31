// SPDX-License-Identifier: Apache-2.0
// Small tools of the functions. For this folder only.
#pragma once

#include <span>

#include "backends/compiler/kernel/math/coefficients.h"
#include "backends/compiler/kernel/math/num.h"

namespace hekla::kernel {

// The one for the type of `x`.
template <typename T>
T choose(Num x, T f32, T f64) {
  return x.type() == ScalarType::kF32 ? f32 : f64;
}
template <size_t N, size_t M>
std::span<const double> choose_table(Num x, const double (&f32)[N], const double (&f64)[M]) {
  if (x.type() == ScalarType::kF32) return f32;
  return f64;
}

// By Horner's rule; lowest degree first.
inline Num polynomial(Num x, std::span<const double> coefficients) {
  Num sum = x.constant(coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) sum = fma(sum, x, coefficients[i]);
  return sum;
}

// The nearest integer of x * factor, below 2^22 (f32) or 2^51 (f64) with its offset, by the
// rounding of an addition: no conversion of a NaN, whose integer is some number here.
struct Nearest {
  Num value;    // as a float
  Num integer;  // of the same width, plus the offset; only its low bits, up to the mantissa's,
                // count
};
inline Nearest nearest(Num x, double factor, int offset = 0) {
  const Num magic = x.constant(choose(x, 0x1.8p23, 0x1.8p52) + offset);
  const Num shifted = fma(x, factor, magic);
  return {shifted - magic, bits_of(shifted)};
}

// 2^k for an integer k whose power is a normal number.
inline Num power_of_two(ScalarType type, Num k) {
  const FloatLayout f = layout(type);
  return float_of(type, shl(k + static_cast<double>(f.bias), f.mantissa));
}
// 2^k from the low bits of k + bias.
inline Num power_of_biased(ScalarType type, Num biased) {
  return float_of(type, shl(biased, layout(type).mantissa));
}
// x * 2^k for a normal x of moderate size and any k that keeps k/2 in range: rounded once, right
// for subnormal results and overflow. NaN stays NaN whatever k is.
inline Num scale(Num x, Num k) {
  const Num half = shr_s(k, 1);
  return x * power_of_two(x.type(), half) * power_of_two(x.type(), k - half);
}

// NaN stays.
inline Num at_most(Num x, double limit) { return select(x > limit, limit, x); }
inline Num at_least(Num x, double limit) { return select(x < limit, limit, x); }

inline Num infinity(ScalarType type, Builder& b) {
  return {b, b.constant_bits(type, static_cast<uint64_t>(layout(type).infinity))};
}
// With a sign, as x86's operations make it: formats without NaN turn it into a zero.
inline Num quiet_nan(ScalarType type, Builder& b) {
  const FloatLayout f = layout(type);
  return {b,
          b.constant_bits(type, static_cast<uint64_t>(f.sign_mask | f.infinity | f.infinity >> 1))};
}

// A number as an unevaluated sum of two, the second small.
struct Pair {
  Num high, low;
};
// a + b exactly, for |a| >= |b| or a = 0 (Dekker, 1971).
inline Pair fast_two_sum(Num a, Num b) {
  const Num sum = a + b;
  return {sum, b - (sum - a)};
}
// a + b exactly (Knuth).
inline Pair two_sum(Num a, Num b) {
  const Num sum = a + b;
  const Num of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}
// The upper half of the bits, and the rest: products of halves are exact.
inline Pair split(Num x) {
  const int64_t mask = ~((int64_t{1} << choose(x, 12, 27)) - 1);
  const Num high = float_of(x.type(), bits_of(x) & mask);
  return {high, x - high};
}
// a * b exactly, by halves: a fused multiply-add is not exact on every device.
inline Pair two_product(Num a, Num b) {
  const Pair x = split(a);
  const Pair y = split(b);
  const Num product = a * b;
  const Num rest = ((x.high * y.high - product) + x.high * y.low + x.low * y.high) + x.low * y.low;
  return {product, rest};
}

}  // namespace hekla::kernel
