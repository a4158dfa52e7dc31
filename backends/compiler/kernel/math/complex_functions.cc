// SPDX-License-Identifier: Apache-2.0
// Exponential, logarithmic and trigonometric functions of complex numbers.
#include <cmath>

#include "backends/compiler/kernel/math/complex.h"

namespace hekla::kernel {
namespace {

// e^x as m 2^k for |x| up to twice the range of exp, so that a small factor may bring it back.
struct ExpScaled {
  Num m;
  Num k;
};
ExpScaled exp_scaled(Num x) {
  const double limit = choose(x, 210.0, 1500.0);
  const ExpParts parts = reduce_exp(at_most(at_least(x, -limit), limit), 0);
  const Num zero = bits_of(x.constant(choose(x, 0x1.8p23, 0x1.8p52)));
  return {1.0 + parts.expm1, parts.integer - zero};
}

// sinh and cosh of |x| up to the given range of exp.
struct Hyperbolic {
  Num sinh, cosh;
};
Hyperbolic hyperbolic(Num x) {
  const Num t = expm1(abs(x));
  const Num e = t + 1.0;
  return {copy_sign((t + t / e) * 0.5, x), (e + 1.0 / e) * 0.5};
}

// (p cosh(x), q sinh(x)) without overflow of the factor alone.
Complex times_hyperbolic(Num x, Num p, Num q) {
  // Beyond the limit both are e^|x| / 2.
  const double limit = choose(x, 20.0, 40.0);
  const Num a = abs(x);
  const Num is_far = a > limit;
  const Hyperbolic h = hyperbolic(at_most(at_least(x, -limit), limit));
  const ExpScaled e = exp_scaled(a);
  const Num inf = infinity(x.type(), *x.b);
  const auto far = [&](Num factor) {
    const Num value = scale_wide(factor * e.m, e.k - 1.0);
    return select(equal(a, inf), factor * inf, value);
  };
  const Num zero = x.constant(0);
  const Num q_signed = q * copy_sign(x.constant(1), x);
  const Complex near{p * h.cosh, q * h.sinh};
  const Complex result = select(is_far, Complex{far(p), far(q_signed)}, near);
  // A zero factor stays one beside infinity and NaN.
  return {
      select(equal(p, zero), p, result.re),
      select(equal(x, zero), copy_sign(x, result.im), select(equal(q, zero), q_signed, result.im))};
}

// |z|^2 - 1 for parts of moderate size, also where that cancels. a is the larger part.
Num square_minus_one(Num a, Num b) {
  const Pair p = two_product(a, a);
  const Pair q = two_product(b, b);
  // Exact where it cancels.
  const Pair first = two_sum(p.high, p.high.constant(-1));
  const Pair sum = two_sum(first.high, q.high);
  return sum.high + (sum.low + (first.low + (p.low + q.low)));
}

// log|z|
Num log_abs(Complex z) {
  const Num x = abs(z.re);
  const Num y = abs(z.im);
  const Num a = select(x < y, y, x);
  const Num b = select(x < y, x, y);
  const Num is_near = (a > 0.5) & (a < 2.0);
  const Num near = 0.5 * log1p(square_minus_one(select(is_near, a, 1.0), select(is_near, b, 0.0)));
  // log(2^k sqrt(a^2 + b^2)) with the larger part between 1 and 4, or so.
  const Num is_small = a < choose(a, 0x1p-60, 0x1p-500);
  const Num is_large = a > choose(a, 0x1p60, 0x1p500);
  const double up = choose(a, 90.0, 600.0);
  const double down = choose(a, -70.0, -600.0);
  const Num power = select(is_small, a.constant(up), select(is_large, down, a.constant(0)));
  const Num factor =
      select(is_small, a.constant(std::exp2(up)), select(is_large, std::exp2(down), a.constant(1)));
  const Num p = a * factor;
  const Num q = b * factor;
  const Num far = fma(power, -0x1.62e42fefa39efp-1, 0.5 * log(fma(p, p, q * q)));
  const Num inf = infinity(a.type(), *a.b);
  const Num is_infinite = equal(x, inf) | equal(y, inf);
  return select(is_infinite, inf, select(is_near, near, far));
}

// tanh of a + ib by parts that only add: (sinh a cosh a + i sin b cos b) / (cos^2 b + sinh^2 a).
Complex tanh_of_parts(Num a, Num b) {
  const double limit = choose(a, 20.0, 40.0);
  const Hyperbolic h = hyperbolic(at_most(at_least(a, -limit), limit));
  const Num s = sin(b);
  const Num c = cos(b);
  const Num denominator = fma(h.sinh, h.sinh, c * c);
  // Beyond the limit the real part is 1 and the imaginary one goes on to fall as e^-2|a|.
  const Num is_far = abs(a) > limit;
  const Num decay = exp(-2.0 * (abs(a) - limit));
  const Num im = s * c / denominator;
  const Num re = select(is_far, copy_sign(a.constant(1), a), h.sinh * h.cosh / denominator);
  // Zeros stay, infinity gives 1; an angle that is none gives NaN otherwise.
  const Num zero = a.constant(0);
  const Num inf = infinity(a.type(), *a.b);
  const Num at_infinity = equal(abs(a), inf);
  const Num no_angle = logical_not(is_finite(b));
  const Num re_without = select(at_infinity, re, quiet_nan(a.type(), *a.b));
  Complex result{
      select(no_angle, re_without, re),
      select(at_infinity & no_angle, copy_sign(zero, b), select(is_far, im * decay, im))};
  result.re = select(equal(a, zero), a, result.re);
  result.im = select(equal(b, zero), b, result.im);
  return result;
}

}  // namespace

Complex exp(Complex z) {
  const Num inf = infinity(z.re.type(), *z.re.b);
  const Num zero = z.re.constant(0);
  const ExpScaled e = exp_scaled(z.re);
  const auto part = [&](Num factor) {
    return select(equal(z.re, inf), factor * inf, scale_wide(factor * e.m, e.k));
  };
  Complex result{part(cos(z.im)), part(sin(z.im))};
  // Infinite real parts beside an angle that is none.
  const Num no_angle = logical_not(is_finite(z.im));
  result = select(no_angle & equal(z.re, -inf), Complex{zero, zero}, result);
  result.re = select(no_angle & equal(z.re, inf), inf, result.re);
  // A zero imaginary part stays one.
  return select(equal(z.im, zero), Complex{exp(z.re), z.im}, result);
}

Complex expm1(Complex z) {
  // e^a cos(b) - 1 = (e^a - 1) cos(b) - 2 sin(b/2)^2
  const Num half = sin(z.im * 0.5);
  const Complex e = exp(z);
  const Num near = fma(expm1(z.re), cos(z.im), -2.0 * (half * half));
  // Far from 0 the one is lost.
  const Num re = select(abs(z.re) > choose(z.re, 40.0, 80.0), e.re - 1.0, near);
  const Num zero = z.re.constant(0);
  const Num nan = quiet_nan(zero.type(), *zero.b);
  const Complex result = select(is_finite(z.im), Complex{re, e.im}, Complex{nan, nan});
  return select(equal(z.im, zero), Complex{expm1(z.re), z.im}, result);
}

Complex log(Complex z) { return {log_abs(z), atan2(z.im, z.re)}; }

Complex log1p(Complex z) {
  const Num sum = 1.0 + z.re;
  const Complex far = log({sum, z.im});
  // |1 + z|^2 - 1 = 2a + a^2 + b^2 where both are moderate and the result is not near -1.
  const Num is_moderate = (abs(z.re) < 2.0) & (abs(z.im) < 2.0);
  const Num a = select(is_moderate, z.re, 0.0);
  const Num b = select(is_moderate, z.im, 0.0);
  const Pair p = two_product(a, a);
  const Pair q = two_product(b, b);
  const Pair first = two_sum(a + a, p.high);
  const Pair second = two_sum(first.high, q.high);
  const Num m = second.high + (second.low + (first.low + (p.low + q.low)));
  const Num is_near = is_moderate & (m > -0.5);
  return {select(is_near, 0.5 * log1p(m), far.re), far.im};
}

Complex logistic(Complex z) {
  // With w = e^-z or e^z, whichever is not above 1: 1 / (1 + w) or w / (1 + w).
  const Num is_left = z.re < 0.0;
  const Complex w = exp(select(is_left, z, -z));
  const Num one = z.re.constant(1);
  const Num zero = z.re.constant(0);
  return divide(select(is_left, w, Complex{one, zero}), {one + w.re, w.im});
}

Complex sin(Complex z) { return times_hyperbolic(z.im, sin(z.re), cos(z.re)); }

Complex cos(Complex z) { return times_hyperbolic(z.im, cos(z.re), -sin(z.re)); }

Complex tanh(Complex z) { return tanh_of_parts(z.re, z.im); }

Complex tan(Complex z) {
  // tan(z) = -i tanh(i z); tanh is odd in its first part.
  const Complex t = tanh_of_parts(z.im, z.re);
  return {t.im, t.re};
}

Complex pow(Complex x, Complex y) {
  const Num zero = x.re.constant(0);
  const Num one = x.re.constant(1);
  const Complex log_x = log(x);
  const Complex general = exp(y * log_x);
  // To a real exponent the modulus is a power of real numbers, whose error does not grow with it.
  const Num modulus = abs(x);
  const Num size = pow(modulus, y.re);
  const Num angle = y.re * log_x.im;
  const Complex polar{size * cos(angle), select(equal(angle, zero), angle, size * sin(angle))};
  const Num has_polar = equal(y.im, zero) & (modulus > 0.0) & is_finite(modulus);
  // 0 to a positive real number is 0, to others undefined; anything to 0 is 1.
  const Num of_zero =
      select(equal(y.im, zero) & (y.re > 0.0), zero, quiet_nan(zero.type(), *zero.b));
  const Complex result =
      select(is_zero(x), Complex{of_zero, of_zero}, select(has_polar, polar, general));
  return select(is_zero(y), Complex{one, zero}, result);
}

Complex atan2(Complex y, Complex x) {
  // -i log((x + i y) / sqrt(x^2 + y^2))
  const Complex sum{x.re - y.im, x.im + y.re};
  const Complex l = log(divide(sum, sqrt(y * y + x * x)));
  return {l.im, -l.re};
}

}  // namespace hekla::kernel
