// SPDX-License-Identifier: Apache-2.0
// sin, cos, tan and atan2 in f32 and f64, accurate for every argument.
//
// Moderate arguments lose multiples of pi/2 that is held in four parts (Cody and Waite). Large ones
// are multiplied with those bits of 2/pi that matter modulo 4 (Payne and Hanek), in integers of the
// type's width; that work is skipped where no argument is large.
#include <cmath>
#include <vector>

#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/polynomial.h"

namespace hekla::kernel {
namespace {

// a = quadrant pi/2 + r, |r| <= pi/4 (a bit more by rounding), r to one and a half times the
// digits.
struct Reduced {
  Num quadrant;  // integer; its low two bits count
  Pair r;
};

// 0 <= a <= kLimit; NaN in r for an infinity.
constexpr double kLimitF32 = 6400;   // 2^12 pi/2
constexpr double kLimitF64 = 1.6e6;  // 2^20 pi/2; the rest of pi/2 stays small beside any r
Reduced reduce_moderate(Num a) {
  const auto half_pi = choose_table(a, kHalfPiF32, kHalfPiF64);
  const Nearest n = nearest(a, 0x1.45f306dc9c883p-1);  // 2/pi
  // The first three products are exact, and so are the first two differences: all terms are
  // multiples of the last place that a number of the result's size may have.
  const Num first = fma(n.value, -half_pi[1], fma(n.value, -half_pi[0], a));
  const Num r = fma(n.value, -half_pi[2], first);
  const Num lost = fma(n.value, -half_pi[2], first - r);
  return {n.integer, fast_two_sum(r, fma(n.value, -half_pi[3], lost))};
}

// The word of 2/pi number `index` of the type's width, with one word of zeros ahead.
uint64_t two_over_pi_word(int width, int index) {
  if (index == 0) return 0;
  const auto i = static_cast<size_t>(index - 1);
  if (width == 32) return kTwoOverPi[i];
  return uint64_t{kTwoOverPi[2 * i]} << 32 | kTwoOverPi[2 * i + 1];
}

// Finite a >= kLimit; any result for others.
Reduced reduce_large(Num a) {
  Builder& b = *a.b;
  const ScalarType type = a.type();
  const FloatLayout f = layout(type);
  const int width = f.width;
  const int log_width = choose(a, 5, 6);
  const Num bits = bits_of(a);
  // a = mantissa 2^exponent. Bits of 2/pi of weight 4 2^-exponent and more only add multiples of 4;
  // the window begins with the next one.
  const int64_t hidden = int64_t{1} << f.mantissa;
  const Num mantissa = (bits & (hidden - 1)) | hidden;
  const Num exponent = shr_u(bits, f.mantissa) - static_cast<double>(f.bias + f.mantissa);
  const Num start = exponent + static_cast<double>(width - 2);
  const Num word = shr_s(start, log_width);
  const Num skip = start & (width - 1);

  // Four words from `word` on, by selection: the exponent of the largest number bounds it.
  const int last = (f.bias - f.mantissa + width - 2) / width;
  std::vector<Num> chosen;
  for (int k = 0; k < 4; ++k) {
    Num value(b, b.constant_bits(f.bits, two_over_pi_word(width, last + k)));
    for (int j = last; j-- > 0;) {
      const Num candidate(b, b.constant_bits(f.bits, two_over_pi_word(width, j + k)));
      value = select(equal(word, j), candidate, value);
    }
    chosen.push_back(value);
  }
  // Three words from bit `skip` on; a shift by the whole width is a shift by 1 and the rest.
  std::vector<Num> window;
  for (size_t k = 0; k < 3; ++k) {
    const Num rest = skip.integer(width - 1) - skip;
    window.push_back(binary(Op::kShl, chosen[k], skip) |
                     binary(Op::kShrU, shr_u(chosen[k + 1], 1), rest));
  }
  // The product modulo 2^(3 width), without its last word. The top bit has weight 2.
  const Num low = mantissa * window[1];
  const Num middle = low + mul_high(mantissa, window[2]);
  const Num carry = convert(Op::kBoolToInt, f.bits, less_u(middle, low));
  const Num high = mantissa * window[0] + mul_high(mantissa, window[1]) + carry;

  const Num quadrant = shr_u(high + high.integer(int64_t{1} << (width - 3)), width - 2);
  const Num rest = high - shl(quadrant, width - 2);  // signed, at most 2^(width - 3)
  // As floats: the part that fits exactly, and what follows.
  const int cut = width - 3 - f.mantissa;
  const int64_t cut_mask = (int64_t{1} << cut) - 1;
  const double unit = std::ldexp(1.0, 2 - width);
  const Num top = convert(Op::kSIntToFloat, type, rest & ~cut_mask) * unit;
  const Num tail_bits = shl(rest & cut_mask, width - cut) | shr_u(middle, cut);
  const Num tail = convert(Op::kUIntToFloat, type, tail_bits) * std::ldexp(unit, cut - width);
  // Times pi/2, by halves so that the leading product is exact.
  const Pair t = split(top);
  const double half_pi = 0x1.921fb54442d18p+0;
  const double first = choose(a, kHalfPiF32[0], 0x1.921fb4p+0);  // 12 and 24 bits
  const double second = choose(a, half_pi - kHalfPiF32[0], 0x1.4442d18469899p-24);
  return {quadrant,
          fast_two_sum(t.high * first, t.high * second + (t.low * half_pi + tail * half_pi))};
}

Reduced reduce(Num a) {
  const Reduced near = reduce_moderate(a);
  const Num is_far = (a > choose(a, kLimitF32, kLimitF64)) & is_finite(a);
  const std::vector<Num> r =
      when(is_far, {a}, {near.quadrant, near.r.high, near.r.low}, [](const std::vector<Num>& x) {
        const Reduced far = reduce_large(x[0]);
        return std::vector<Num>{far.quadrant, far.r.high, far.r.low};
      });
  return {r[0], {r[1], r[2]}};
}

// |r| <= pi/4; the low part by the first term of the derivative.
Num sin_near(Pair r) {
  const Num z = r.high * r.high;
  const Num p = polynomial(z, choose_table(z, kSinF32, kSinF64));
  return r.high + fma(r.high * z, p, r.low);
}
Num cos_near(Pair r) {
  const Num z = r.high * r.high;
  const Num p = polynomial(z, choose_table(z, kCosF32, kCosF64));
  // 1 - z/2 with what its rounding lost.
  const Pair head = fast_two_sum(z.constant(1), z * -0.5);
  return head.high + (head.low + fma(-r.high, r.low, z * z * p));
}

Num flip_sign(Num x, Num sign_bits) {
  return float_of(x.type(), bits_of(x) ^ (sign_bits & layout(x.type()).sign_mask));
}
// The bit of value 2 in `quadrant` as a sign bit.
Num sign_of_half_turn(Num quadrant) { return shl(quadrant, bit_width(quadrant.type()) - 2); }

}  // namespace

Num sin(Num x) {
  const Reduced a = reduce(abs(x));
  const Num is_odd = not_equal(a.quadrant & 1, 0);
  const Num value = select(is_odd, cos_near(a.r), sin_near(a.r));
  return flip_sign(value, bits_of(x) ^ sign_of_half_turn(a.quadrant));
}

Num cos(Num x) {
  const Reduced a = reduce(abs(x));
  const Num is_odd = not_equal(a.quadrant & 1, 0);
  const Num value = select(is_odd, sin_near(a.r), cos_near(a.r));
  return flip_sign(value, sign_of_half_turn(a.quadrant + 1.0));
}

Num tan(Num x) {
  const Reduced a = reduce(abs(x));
  const Num is_odd = not_equal(a.quadrant & 1, 0);
  const Num s = sin_near(a.r);
  const Num c = cos_near(a.r);
  const Num value = select(is_odd, -c, s) / select(is_odd, s, c);
  return flip_sign(value, bits_of(x));
}

Num atan2(Num y, Num x) {
  const ScalarType type = x.type();
  const Num ax = abs(x);
  const Num ay = abs(y);
  const Num is_steep = ay > ax;
  const Num small = select(is_steep, ax, ay);
  const Num large = select(is_steep, ay, ax);
  // 0 / 0 counts as 0, infinity / infinity as 1.
  Num t = small / large;
  t = select(equal(large, x.constant(0)), 0.0, t);
  t = select(equal(small, infinity(type, *x.b)), 1.0, t);
  const Num z = t * t;
  const Num angle = fma(t * z, polynomial(z, choose_table(x, kAtanF32, kAtanF64)), t);
  // The octant: 0, pi/2 or pi, in two parts, plus or minus the angle.
  const Num is_left = less_s(bits_of(x), 0);
  const double half_pi_high = choose(x, 0x1.921fb6p+0, 0x1.921fb54442d18p+0);
  const double half_pi_low = choose(x, -0x1.777a5cp-25, 0x1.1a62633145c07p-54);
  const Num turns = select(is_steep, x.constant(1), select(is_left, x.constant(2), 0.0));
  const Num is_minus = not_equal(convert(Op::kBoolToInt, ScalarType::kI32, is_steep),
                                 convert(Op::kBoolToInt, ScalarType::kI32, is_left));
  const Num signed_angle = select(is_minus, -angle, angle);
  const Num result = turns * half_pi_high + (signed_angle + turns * half_pi_low);
  return select(is_nan(x) | is_nan(y), x + y, copy_sign(result, y));
}

}  // namespace hekla::kernel
