// SPDX-License-Identifier: Apache-2.0
// exp, expm1, log, log1p, tanh, logistic, cbrt, rsqrt in f32 and f64.
//
// One formula for both types with constants of each. All are branch-free. Error bounds hold with
// fused and with split multiply-adds; docs/numerics.md has the measured ones.
#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/polynomial.h"

namespace hekla::kernel {
namespace {
constexpr double kLog2E = 0x1.71547652b82fep+0;  // 1/ln(2)
}

ExpParts reduce_exp(Num x, int offset) {
  const auto ln2 = choose_table(x, kLn2F32, kLn2F64);
  const Nearest k = nearest(x, kLog2E, offset);
  const Num r = fma(k.value, -ln2[1], fma(k.value, -ln2[0], x));
  const Num q = polynomial(r, choose_table(x, kExpF32, kExpF64));
  return {k.value, k.integer, fma(r * r, q, r)};
}

namespace {

// e^x within exp's limits: in two factors, so that only the last product is rounded where the
// result is subnormal or infinite.
Num exp_of_limited(Num x) {
  const int bias = layout(x.type()).bias;
  const ExpParts parts = reduce_exp(x, 2 * bias);
  const Num half = nearest(x, kLog2E / 2, bias).integer;
  return (1.0 + parts.expm1) * power_of_biased(x.type(), half) *
         power_of_biased(x.type(), parts.integer - half);
}

// log(m) + k ln(2) + extra where m = 1 + f, sqrt(1/2) <= m <= sqrt(2), and |extra| is small.
Num log_of_parts(Num k, Num f, Num extra) {
  const auto ln2 = choose_table(f, kLn2F32, kLn2F64);
  const Num half_square = f * f * 0.5;
  const Num low = fma(k, ln2[1], extra);
  Num tail = low;
  if (f.type() == ScalarType::kF32) {
    tail = fma(f * f * f, polynomial(f, kLogF32), low);
  } else {
    // By s = f/(2+f): log(m) = 2s + 2/3 s^3 + ..., where 2s = f - f^2/2 + s f^2/2.
    const Num s = f / (2.0 + f);
    const Num z = s * s;
    const Num r = z * fma(z, polynomial(z, kLogRatioF64), z.constant(2.0 / 3));
    tail = fma(s, half_square + r, low);
  }
  return fma(k, ln2[0], f - (half_square - tail));
}

// What a logarithm of a gives outside of 0 < a < infinity.
Num log_edges(Num a, Num result) {
  const Num inf = infinity(a.type(), *a.b);
  Num edge = select(equal(a, a.constant(0)), -inf, a);
  edge = select(a < 0.0, quiet_nan(a.type(), *a.b), edge);
  return select((a > 0.0) & (a < inf), result, edge);
}

}  // namespace

LogParts reduce_log(Num x) {
  const FloatLayout f = layout(x.type());
  const Num is_small = x < choose(x, 0x1p-126, 0x1p-1022);
  const int up = choose(x, 24, 54);
  const Num bits = bits_of(select(is_small, x * choose(x, 0x1p24, 0x1p54), x));
  const Num root_half = bits_of(x.constant(0x1.6a09e667f3bcdp-1));
  const Num exponent = shr_s(bits - root_half, f.mantissa);
  const Num m = float_of(x.type(), bits - shl(exponent, f.mantissa));
  const Num k = select(is_small, exponent - static_cast<double>(up), exponent);
  return {convert(Op::kSIntToFloat, x.type(), k), m};
}

Num exp(Num x) {
  // Beyond the limits the result is 0 and infinity by the scaling's own rounding.
  return exp_of_limited(at_most(at_least(x, choose(x, -104.0, -746.0)), choose(x, 89.0, 710.0)));
}

Num expm1(Num x) {
  // Below the lower limit the result is -1.
  const Num c = at_most(at_least(x, choose(x, -18.0, -38.0)), choose(x, 89.0, 710.0));
  // Half of the result, so that 2^k is finite.
  const ExpParts parts = reduce_exp(c, layout(x.type()).bias - 1);
  const Num power = power_of_biased(x.type(), parts.integer);
  const Num half = fma(power, parts.expm1, power - 0.5);
  const Num zero = x.constant(0);
  const Num result = select(equal(parts.k, zero), parts.expm1, half + half);
  return select(equal(x, zero), x, result);  // keeps -0
}

Num log(Num x) {
  const LogParts parts = reduce_log(x);
  return log_edges(x, log_of_parts(parts.k, parts.m - 1.0, x.constant(0)));
}

Num log1p(Num x) {
  const Num sum = 1.0 + x;
  // What the sum lost.
  const Num lost = select(x >= 1.0, 1.0 - (sum - x), x - (sum - 1.0));
  const LogParts parts = reduce_log(sum);
  const Num is_near = (x > -0.2928) & (x < 0.4142);
  const Num zero = x.constant(0);
  const Num f = select(is_near, x, parts.m - 1.0);
  const Num k = select(is_near, zero, parts.k);
  const Num extra = select(is_near, zero, lost / sum);
  const Num result = log_edges(sum, log_of_parts(k, f, extra));
  return select(equal(x, zero), x, result);
}

Num tanh(Num x) {
  // h / (h + 1) with h = (e^2a - 1) / 2, and h - h * that where it is small: there the rounding of
  // h + 1 would count twice.
  const Num a = at_most(abs(x), choose(x, 10.0, 22.0));
  const ExpParts parts = reduce_exp(a + a, layout(x.type()).bias - 1);
  const Num power = power_of_biased(x.type(), parts.integer);
  const Num h = fma(power, parts.expm1, power - 0.5);
  const Num far = h / (h + 1.0);
  return copy_sign(select(h < 0.34, fma(-h, far, h), far), x);
}

Num logistic(Num x) {
  // e^-|x| does not overflow; for negative x both parts of 1 / (1 + e^-x) are multiplied by e^x.
  const Num e = exp_of_limited(at_least(-abs(x), choose(x, -104.0, -746.0)));
  const Num sum = 1.0 + e;
  const Num quotient = select(x < 0.0, e, 1.0) / sum;
  // What the sum lost, over the sum; its reciprocal to a few percent is enough.
  const Num lost = e - (sum - 1.0);
  return fma(-quotient, lost * fma(sum, -0.5, sum.constant(1.457)), quotient);
}

Num rsqrt(Num x) { return 1.0 / sqrt(x); }

Num cbrt(Num x) {
  const ScalarType type = x.type();
  const FloatLayout f = layout(type);
  const Num a = abs(x);
  const Num is_small = a < choose(x, 0x1p-126, 0x1p-1022);
  // A power of two whose exponent 3 divides.
  const Num bits = bits_of(select(is_small, a * choose(x, 0x1p24, 0x1p54), a));
  // Exponent = 3 q + r, with an offset that makes it positive and divisible as zero is.
  const int offset = choose(x, 2, 0);
  const Num exponent = shr_u(bits, f.mantissa) + static_cast<double>(offset);
  const Num third = shr_u(exponent * 43691.0, 17);  // exact for exponents below 2^16
  const Num rest = exponent - third * 3.0;
  const Num q = third - static_cast<double>((f.bias + offset) / 3);
  const int64_t fraction = (int64_t{1} << f.mantissa) - 1;
  const Num m = float_of(type, (bits & fraction) | (int64_t{f.bias} << f.mantissa));
  const Num is_one = equal(rest, 1);
  const Num is_two = equal(rest, 2);
  const Num value = m * select(is_two, m.constant(4), select(is_one, m.constant(2), 1.0));
  Num t = polynomial(m, kCbrtStart) * select(is_two, m.constant(0x1.965fea53d6e3dp+0),  // 4^(1/3)
                                             select(is_one, m.constant(0x1.428a2f98d728bp+0), 1.0));
  // cbrt(value) = t cbrt(1 + e) by the series, e = (value - t^3) / t^3. The error's fourth power is
  // left.
  const auto improve = [&](Num start) {
    const Num cube = start * start * start;
    const Num e = (value - cube) / cube;
    const Num series = fma(e, fma(e, 5.0 / 81, e.constant(-1.0 / 9)), e.constant(1.0 / 3));
    return fma(start * e, series, start);
  };
  if (type == ScalarType::kF64) t = improve(t);
  // A third of the bits: the cube is exact, and so is its difference to the value.
  const int cut = choose(x, 16, 36);
  const Num short_bits = bits_of(t) + bits_of(t).integer(int64_t{1} << (cut - 1));
  t = improve(float_of(type, short_bits & ~((int64_t{1} << cut) - 1)));
  Num result = t * power_of_two(type, q);
  result = select(is_small, result * choose(x, 0x1p-8, 0x1p-18), result);
  const Num is_ordinary = (a > 0.0) & (a < infinity(type, *x.b));
  return select(is_ordinary, copy_sign(result, x), x);
}

}  // namespace hekla::kernel
