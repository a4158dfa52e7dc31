// SPDX-License-Identifier: Apache-2.0
// pow in f32 and f64: e^(y log|x|) with the logarithm to about one and a half times the digits.
#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/polynomial.h"

namespace hekla::kernel {
namespace {

// log(x) for positive finite x, to 2^-35 (f32) or 2^-65 (f64) of itself.
Pair log_pair(Num x) {
  const LogParts parts = reduce_log(x);
  const Num f = parts.m - 1.0;
  // s = f / (2 + f), and the rest of that division.
  const Pair divisor = two_sum(parts.m.constant(1), parts.m);
  const Num reciprocal = 1.0 / divisor.high;
  const Num s = f * reciprocal;
  const Pair back = two_product(s, divisor.high);
  const Num s_low = (((f - back.high) - back.low) - s * divisor.low) * reciprocal;
  // log(m) = 2 s + s v, v = z (2/3 + z Q(z)), z = s^2
  Pair z = two_product(s, s);
  z.low = z.low + 2.0 * (s * s_low);
  const auto thirds = choose_table(x, kTwoThirdsF32, kTwoThirdsF64);
  const Num q = polynomial(z.high, choose_table(x, kPowLogF32, kPowLogF64));
  Pair u = fast_two_sum(x.constant(thirds[0]), z.high * q);
  u.low = u.low + thirds[1];
  Pair v = two_product(z.high, u.high);
  v.low = v.low + (z.high * u.low + z.low * u.high);
  Pair sv = two_product(s, v.high);
  sv.low = sv.low + (s * v.low + s_low * v.high);
  Pair log_m = fast_two_sum(2.0 * s, sv.high);
  log_m.low = log_m.low + (2.0 * s_low + sv.low);
  // + k ln(2); the product with the first part is exact.
  const auto ln2 = choose_table(x, kLn2F32, kLn2F64);
  const Pair sum = two_sum(parts.k * ln2[0], log_m.high);
  return fast_two_sum(sum.high, sum.low + (log_m.low + parts.k * ln2[1]));
}

// e^(x.high + x.low)
Num exp_pair(Pair x) {
  const auto ln2 = choose_table(x.high, kLn2F32, kLn2F64);
  const double limit = choose(x.high, 110.0, 760.0);
  const Num is_far = abs(x.high) > limit;
  const Num high = select(is_far, copy_sign(x.high.constant(limit), x.high), x.high);
  const Num low = select(is_far, 0.0, x.low);
  const double log2_e = 0x1.71547652b82fep+0;
  const int bias = layout(high.type()).bias;
  const Nearest k = nearest(high, log2_e, 2 * bias);
  const Num half = nearest(high, log2_e / 2, bias).integer;
  const Num first = fma(k.value, -ln2[0], high);
  const Pair r = fast_two_sum(first, low - k.value * ln2[1]);
  const Num q = polynomial(r.high, choose_table(r.high, kExpF32, kExpF64));
  const Num value = 1.0 + (r.high + fma(r.high * r.high, q, r.low));
  return value * power_of_biased(high.type(), half) *
         power_of_biased(high.type(), k.integer - half);
}

}  // namespace

Num pow(Num x, Num y) {
  const ScalarType type = x.type();
  const Num inf = infinity(type, *x.b);
  const Num ax = abs(x);
  const Num zero = x.constant(0);
  const Num one = x.constant(1);
  const Num is_ordinary = (ax > 0.0) & (ax < inf);
  const Pair logarithm = log_pair(select(is_ordinary, ax, 1.0));
  // Beyond the limit every base but 1 gives 0 or infinity.
  const double limit = choose(x, 0x1p40, 0x1p80);
  const Num c = at_most(at_least(y, -limit), limit);
  Pair product = two_product(c, logarithm.high);
  product.low = product.low + c * logarithm.low;
  const Num ordinary = exp_pair(product);
  const Num is_up = equal(convert(Op::kBoolToInt, ScalarType::kI32, y > 0.0),
                          convert(Op::kBoolToInt, ScalarType::kI32, equal(ax, inf)));
  const Num magnitude = select(is_ordinary, ordinary, select(is_up, inf, zero));

  const Num half = y * 0.5;
  const Num is_whole = equal(unary(Op::kTrunc, y), y);
  const Num is_odd = is_whole & not_equal(unary(Op::kTrunc, half), half);
  Num result = select(is_odd, copy_sign(magnitude, x), magnitude);
  const Num is_undefined = (x < 0.0) & (ax < inf) & logical_not(is_whole);
  result = select(is_undefined, quiet_nan(type, *x.b), result);
  result = select(is_nan(x) | is_nan(y), x + y, result);
  return select(equal(y, zero) | equal(x, one), one, result);
}

}  // namespace hekla::kernel
