// SPDX-License-Identifier: Apache-2.0
// Complex ops: dispatch, division, absolute value and roots.
#include "backends/compiler/kernel/math/complex.h"

#include <cmath>

namespace hekla::kernel {
namespace {

using ir::OpCode;

Element element(Complex z) { return {z.re.v, z.im.v}; }

Num is_nan(Complex z) { return is_nan(z.re) | is_nan(z.im); }
Num is_infinite(Num x) { return equal(abs(x), infinity(x.type(), *x.b)); }
Num is_infinite(Complex z) { return is_infinite(z.re) | is_infinite(z.im); }
Num less(Complex x, Complex y) { return (x.re < y.re) | (equal(x.re, y.re) & (x.im < y.im)); }

// The larger of two magnitudes; NaN is skipped.
Num larger(Num x, Num y) { return select(x < y, y, x); }

// A number with a factor that brings its square, and what that factor's root is.
struct Scaled {
  Complex z;
  double up, down;  // the factors of small and of large numbers
  Num is_small, is_large;
  // x / factor^(1/root)
  Num restore(Num x, int root) const {
    const auto power = [&](double factor) { return std::exp2(-std::log2(factor) / root); };
    return x *
           select(is_small, x.constant(power(up)), select(is_large, power(down), x.constant(1)));
  }
};
// Multiplied by a power of four when the square of the larger part might leave the range.
Scaled scale_square(Complex z) {
  const Num size = larger(abs(z.re), abs(z.im));
  const double up = choose(size, 0x1p90, 0x1p600);
  const double down = choose(size, 0x1p-70, 0x1p-600);
  const Num is_small = size < choose(size, 0x1p-60, 0x1p-500);
  const Num is_large = size > choose(size, 0x1p60, 0x1p500);
  const Num factor = select(is_small, size.constant(up), select(is_large, down, size.constant(1)));
  return {{z.re * factor, z.im * factor}, up, down, is_small, is_large};
}

Num root_of_squares(Complex z) { return sqrt(fma(z.re, z.re, z.im * z.im)); }

// a b + c d, rounded about once.
Num sum_of_products(Num a, Num b, Num c, Num d) {
  const Pair p = two_product(a, b);
  const Pair q = two_product(c, d);
  const Pair sum = two_sum(p.high, q.high);
  return sum.high + (sum.low + (p.low + q.low));
}

// e with 2^e <= x < 2^(e+1) for positive finite x.
Num exponent_of(Num x) {
  const FloatLayout f = layout(x.type());
  const Num is_small = x < choose(x, 0x1p-126, 0x1p-1022);
  const Num bits = bits_of(select(is_small, x * choose(x, 0x1p24, 0x1p54), x));
  const Num e = shr_u(bits, f.mantissa) - static_cast<double>(f.bias);
  return select(is_small, e - static_cast<double>(choose(x, 24, 54)), e);
}

// 1 or 0 with the sign of x: whether it is infinite.
Num infinite_part(Num x) { return copy_sign(select(is_infinite(x), x.constant(1), 0.0), x); }

// Of any operands.
Complex divide_scaled(Complex x, Complex y) {
  const Num zero = x.re.constant(0);
  const Num inf = infinity(zero.type(), *zero.b);
  // Infinite operands by their directions.
  const Num x_infinite = is_infinite(x);
  const Num y_infinite = is_infinite(y);
  const Complex n = select(x_infinite, Complex{infinite_part(x.re), infinite_part(x.im)}, x);
  const Complex d = select(y_infinite, Complex{infinite_part(y.re), infinite_part(y.im)}, y);
  const auto size = [&](Complex z) {
    const Num s = larger(abs(z.re), abs(z.im));
    return select((s > 0.0) & (s < inf), s, 1.0);
  };
  const Num n_exponent = exponent_of(size(n));
  const Num d_exponent = exponent_of(size(d));
  const auto normalized = [&](Complex z, Num exponent) {
    const Num k = exponent.integer(0) - exponent;
    return Complex{scale_wide(z.re, k), scale_wide(z.im, k)};
  };
  const Complex a = normalized(n, n_exponent);
  const Complex b = normalized(d, d_exponent);
  const Num square = fma(b.re, b.re, b.im * b.im);
  const Num exponent = n_exponent - d_exponent;
  const auto part = [&](Num value) {
    Num result = scale_wide(value / square, exponent);
    result = select(x_infinite, inf * value, result);
    return select(y_infinite, select(x_infinite, quiet_nan(zero.type(), *zero.b), zero * value),
                  result);
  };
  const Complex quotient{part(sum_of_products(a.re, b.re, a.im, b.im)),
                         part(sum_of_products(a.im, b.re, -a.re, b.im))};
  const Num direction = copy_sign(inf, y.re);
  return select(is_zero(y), Complex{direction * x.re, direction * x.im}, quotient);
}

}  // namespace

Num scale_wide(Num x, Num k) {
  const Num half = shr_s(k, 1);
  return scale(scale(x, half), k - half);
}

Complex divide(Complex x, Complex y) {
  // Where each part is zero or far inside the range nothing leaves it: the square of y and the low
  // halves of the products are normal numbers. Others are as rare as they are dear.
  const FloatLayout f = layout(x.re.type());
  const auto power = [&](double e) { return static_cast<int64_t>(f.bias + e) << f.mantissa; };
  const int64_t least = power(choose(x.re, -50, -450)), most = power(choose(x.re, 60, 500));
  // Parts by the bits of their magnitudes; less one, zeros are the largest of all.
  const auto magnitude = [&](Num part) { return bits_of(part) & ~f.sign_mask; };
  const auto greater = [](Num p, Num q) { return select(less_u(p, q), q, p); };
  const auto smaller = [](Num p, Num q) { return select(less_u(p, q), p, q); };
  const Num a = magnitude(x.re), b = magnitude(x.im), c = magnitude(y.re), d = magnitude(y.im);
  const Num of_y = greater(c, d);
  const Num one = a.integer(1);
  const Num lowest = smaller(smaller(a - one, b - one), smaller(c - one, d - one));
  const Num is_rare = less_u(lowest, least - 1) | less_u(of_y, least) |
                      less_u(a.integer(most), greater(greater(a, b), of_y));
  const Num square = fma(y.re, y.re, y.im * y.im);
  const std::vector<Num> quotient =
      when(is_rare, {x.re, x.im, y.re, y.im},
           {sum_of_products(x.re, y.re, x.im, y.im) / square,
            sum_of_products(x.im, y.re, -x.re, y.im) / square},
           [](const std::vector<Num>& parts) -> std::vector<Num> {
             const Complex result = divide_scaled({parts[0], parts[1]}, {parts[2], parts[3]});
             return {result.re, result.im};
           });
  return {quotient[0], quotient[1]};
}

Num abs(Complex z) {
  const Scaled s = scale_square(z);
  const Num size = s.restore(root_of_squares(s.z), 1);
  return select(is_infinite(z), infinity(size.type(), *size.b), size);
}

Complex sign(Complex z) {
  const Scaled s = scale_square(z);
  const Num size = root_of_squares(s.z);
  const Num zero = size.constant(0);
  return select(is_zero(z), Complex{zero, zero}, Complex{s.z.re / size, s.z.im / size});
}

Complex sqrt(Complex z) {
  const Scaled s = scale_square(z);
  const Num zero = z.re.constant(0);
  const Num inf = infinity(zero.type(), *zero.b);
  // The part that takes no difference first; the other one by im = 2 re' im'.
  const Num first = sqrt((root_of_squares(s.z) + abs(s.z.re)) * 0.5);
  const Num second = abs(s.z.im) / (first + first);
  const Num is_right = z.re >= 0.0;
  Complex root{s.restore(select(is_right, first, second), 2),
               s.restore(select(is_right, second, first), 2)};
  root.re = select(is_zero(z), zero, root.re);
  root.im = select(is_zero(z), zero, root.im);
  // Infinities: an infinite imaginary part wins; then +inf + 0i and 0 + inf i.
  const Num re_infinite = is_infinite(z.re);
  const Num finite_side = select(is_nan(z.im), z.im, zero);
  root.re = select(re_infinite, select(is_right, inf, finite_side), root.re);
  root.im = select(re_infinite, select(is_right, finite_side, inf), root.im);
  root = select(is_infinite(z.im), Complex{inf, inf}, root);
  return {root.re, copy_sign(root.im, z.im)};
}

Complex rsqrt(Complex z) {
  const Num one = z.re.constant(1);
  return divide({one, z.re.constant(0)}, sqrt(z));
}

Complex cbrt(Complex z) {
  const Num size = cbrt(abs(z));
  const Num third = atan2(z.im, z.re) / 3.0;
  return select(is_zero(z), z, Complex{size * cos(third), size * sin(third)});
}

std::optional<Element> unary_complex(Builder& b, OpCode code, DType dtype, const Element& x) {
  (void)dtype;
  const Complex z{Num(b, x.re), Num(b, x.im)};
  switch (code) {
    case OpCode::kReal:
      return Element{x.re};
    case OpCode::kImag:
      return Element{x.im};
    case OpCode::kAbs:
      return Element{abs(z).v};
    case OpCode::kNegate:
      return element(-z);
    case OpCode::kSign:
      return element(sign(z));
    case OpCode::kSqrt:
      return element(sqrt(z));
    case OpCode::kRsqrt:
      return element(rsqrt(z));
    case OpCode::kCbrt:
      return element(cbrt(z));
    case OpCode::kExponential:
      return element(exp(z));
    case OpCode::kExponentialMinusOne:
      return element(expm1(z));
    case OpCode::kLog:
      return element(log(z));
    case OpCode::kLogPlusOne:
      return element(log1p(z));
    case OpCode::kLogistic:
      return element(logistic(z));
    case OpCode::kSine:
      return element(sin(z));
    case OpCode::kCosine:
      return element(cos(z));
    case OpCode::kTan:
      return element(tan(z));
    case OpCode::kTanh:
      return element(tanh(z));
    default:
      return std::nullopt;
  }
}

std::optional<Element> binary_complex(Builder& b, OpCode code, const Element& x, const Element& y) {
  const Complex p{Num(b, x.re), Num(b, x.im)};
  const Complex q{Num(b, y.re), Num(b, y.im)};
  switch (code) {
    case OpCode::kAdd:
      return element(p + q);
    case OpCode::kSubtract:
      return element(p - q);
    case OpCode::kMultiply:
      return element(p * q);
    case OpCode::kDivide:
      return element(divide(p, q));
    case OpCode::kPower:
      return element(pow(p, q));
    case OpCode::kAtan2:
      return element(atan2(p, q));
    case OpCode::kMaximum:
      return element(select(is_nan(p), p, select(is_nan(q), q, select(less(p, q), q, p))));
    case OpCode::kMinimum:
      return element(select(is_nan(p), p, select(is_nan(q), q, select(less(q, p), q, p))));
    default:
      return std::nullopt;
  }
}

}  // namespace hekla::kernel
