// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <complex>

#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/elementwise/loops.h"
#include "backends/reference/kernels/scalar_ops.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

Status not_for(OpCode code, const HostArray& x) {
  return unimplemented("{} is not defined for {}", ir::op_name(code), x.shape());
}

// A function of f32 or smaller is computed in f64 and rounded once; one of f64 as the C library
// gives it.
template <typename F>
Result<HostArray> through_double(HostArray x, F f) {
  const DType dtype = x.dtype();
  return visit_float(dtype, [&](auto codec) {
    using T = typename decltype(codec)::Compute;
    return map_unary(codec, codec, dtype, std::move(x),
                     [&](T v) { return static_cast<T>(f(static_cast<double>(v))); });
  });
}

// Exact in the compute type.
template <typename F>
Result<HostArray> in_type(HostArray x, F f) {
  const DType dtype = x.dtype();
  return visit_float(dtype,
                     [&](auto codec) { return map_unary(codec, codec, dtype, std::move(x), f); });
}

double round_half_away(double v) { return std::round(v); }

double sign_of(double v) { return std::isnan(v) || v == 0 ? v : std::copysign(1.0, v); }

Result<HostArray> unary_float(OpCode code, HostArray x) {
  switch (code) {
    case OpCode::kAbs:
      return in_type(std::move(x), [](auto v) { return std::fabs(v); });
    case OpCode::kNegate:
      return in_type(std::move(x), [](auto v) { return -v; });
    case OpCode::kCeil:
      return in_type(std::move(x), [](auto v) { return std::ceil(v); });
    case OpCode::kFloor:
      return in_type(std::move(x), [](auto v) { return std::floor(v); });
    case OpCode::kSqrt:
      return in_type(std::move(x), [](auto v) { return std::sqrt(v); });
    case OpCode::kRoundNearestEven:
      return in_type(std::move(x), [](auto v) { return std::nearbyint(v); });
    case OpCode::kRoundNearestAfz:
      return through_double(std::move(x), round_half_away);
    case OpCode::kSign:
      return through_double(std::move(x), sign_of);
    case OpCode::kCbrt:
      // In long double: the C library's function of doubles is off by several units.
      return through_double(std::move(x), [](double v) {
        return static_cast<double>(std::cbrt(static_cast<long double>(v)));
      });
    case OpCode::kCosine:
      return through_double(std::move(x), [](double v) { return std::cos(v); });
    case OpCode::kExponential:
      return through_double(std::move(x), [](double v) { return std::exp(v); });
    case OpCode::kExponentialMinusOne:
      return through_double(std::move(x), [](double v) { return std::expm1(v); });
    case OpCode::kLog:
      return through_double(std::move(x), [](double v) { return std::log(v); });
    case OpCode::kLogPlusOne:
      return through_double(std::move(x), [](double v) { return std::log1p(v); });
    case OpCode::kLogistic:
      return through_double(std::move(x), [](double v) { return 1.0 / (1.0 + std::exp(-v)); });
    case OpCode::kRsqrt:
      return through_double(std::move(x), [](double v) { return 1.0 / std::sqrt(v); });
    case OpCode::kSine:
      return through_double(std::move(x), [](double v) { return std::sin(v); });
    case OpCode::kTan:
      return through_double(std::move(x), [](double v) { return std::tan(v); });
    case OpCode::kTanh:
      return through_double(std::move(x), [](double v) { return std::tanh(v); });
    case OpCode::kReal:
      return x;
    case OpCode::kImag:
      return in_type(std::move(x), [](auto v) { return decltype(v)(0); });
    case OpCode::kIsFinite: {
      const DType dtype = x.dtype();
      return visit_float(dtype, [&](auto codec) {
        return map_unary(codec, BoolCodec{}, DType::kI1, std::move(x),
                         [](auto v) { return std::isfinite(v); });
      });
    }
    default:
      return not_for(code, x);
  }
}

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

Result<HostArray> unary_integer(OpCode code, HostArray x) {
  const DType dtype = x.dtype();
  const int bits = dtype_bits(dtype);
  const auto run = [&](auto f) {
    return visit_integer(
        dtype, [&](auto codec) { return map_unary(codec, codec, dtype, std::move(x), f); });
  };
  // The bits of the type's own width, without the extension of narrow signed types.
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  switch (code) {
    case OpCode::kAbs:
      return run([](auto v) {
        using T = decltype(v);
        if constexpr (std::is_unsigned_v<T>) {
          return v;
        } else {
          return static_cast<T>(v < 0 ? 0 - static_cast<Unsigned<T>>(v)
                                      : static_cast<Unsigned<T>>(v));
        }
      });
    case OpCode::kNegate:
      return run([](auto v) {
        using T = decltype(v);
        return static_cast<T>(0 - static_cast<Unsigned<T>>(v));
      });
    case OpCode::kSign:
      return run([](auto v) {
        using T = decltype(v);
        return static_cast<T>((v > 0) - (v < 0));
      });
    case OpCode::kNot:
      return run([](auto v) { return static_cast<decltype(v)>(~v); });
    case OpCode::kPopcnt:
      return run([mask](auto v) {
        return static_cast<decltype(v)>(std::popcount(static_cast<uint64_t>(v) & mask));
      });
    case OpCode::kCountLeadingZeros:
      return run([mask, bits](auto v) {
        return static_cast<decltype(v)>(std::countl_zero(static_cast<uint64_t>(v) & mask) -
                                        (64 - bits));
      });
    case OpCode::kReal:
      return x;
    default:
      return not_for(code, x);
  }
}

// Complex functions of c64 are computed in c128.
template <typename F>
Result<HostArray> complex_through_double(HostArray x, F f) {
  const DType dtype = x.dtype();
  return visit_complex(dtype, [&](auto codec) {
    using C = typename decltype(codec)::Compute;
    return map_unary(codec, codec, dtype, std::move(x),
                     [&](C v) { return static_cast<C>(f(static_cast<std::complex<double>>(v))); });
  });
}

using Complex = std::complex<double>;

// e^z - 1 without cancellation near 0: the real part is expm1(a) cos(b) - 2 sin(b/2)^2.
Complex complex_expm1(Complex z) {
  const double a = z.real();
  const double b = z.imag();
  if (b == 0) return {std::expm1(a), b};
  const double half = std::sin(b / 2);
  return {std::expm1(a) * std::cos(b) - 2 * half * half, std::exp(a) * std::sin(b)};
}

// log(1 + z): the real part is log1p(a^2 + 2a + b^2) / 2 where that is accurate.
Complex complex_log1p(Complex z) {
  const double a = z.real();
  const double b = z.imag();
  if (std::fabs(a) < 0.5 && std::fabs(b) < 0.5) {
    return {0.5 * std::log1p(a * (2 + a) + b * b), std::atan2(b, 1 + a)};
  }
  return std::log(1.0 + z);
}

Complex complex_exp(Complex z) {
  // A zero imaginary part stays one, also where e^a is infinite.
  if (z.imag() == 0) return {std::exp(z.real()), z.imag()};
  return std::exp(z);
}

Result<HostArray> unary_complex(OpCode code, HostArray x) {
  const DType dtype = x.dtype();
  const DType part = complex_part(dtype);
  const auto to_part = [&](auto f) {
    return visit_complex(dtype, [&](auto codec) {
      using T = typename decltype(codec)::Compute::value_type;
      return map_unary(codec, PlainCodec<T>{}, part, std::move(x), f);
    });
  };
  switch (code) {
    case OpCode::kAbs:
      return to_part([](auto v) { return std::hypot(v.real(), v.imag()); });
    case OpCode::kReal:
      return to_part([](auto v) { return v.real(); });
    case OpCode::kImag:
      return to_part([](auto v) { return v.imag(); });
    case OpCode::kNegate:
      return complex_through_double(std::move(x), [](Complex z) { return -z; });
    case OpCode::kSign:
      return complex_through_double(std::move(x), [](Complex z) {
        const double size = std::abs(z);
        return size == 0 ? Complex(0) : z / size;
      });
    case OpCode::kSqrt:
      return complex_through_double(std::move(x), [](Complex z) { return std::sqrt(z); });
    case OpCode::kRsqrt:
      return complex_through_double(std::move(x), [](Complex z) { return 1.0 / std::sqrt(z); });
    case OpCode::kCbrt:
      return complex_through_double(std::move(x), [](Complex z) {
        return z == Complex(0) ? z : std::polar(std::cbrt(std::abs(z)), std::arg(z) / 3);
      });
    case OpCode::kExponential:
      return complex_through_double(std::move(x), complex_exp);
    case OpCode::kExponentialMinusOne:
      return complex_through_double(std::move(x), complex_expm1);
    case OpCode::kLog:
      return complex_through_double(std::move(x), [](Complex z) { return std::log(z); });
    case OpCode::kLogPlusOne:
      return complex_through_double(std::move(x), complex_log1p);
    case OpCode::kLogistic:
      return complex_through_double(std::move(x),
                                    [](Complex z) { return 1.0 / (1.0 + std::exp(-z)); });
    case OpCode::kCosine:
      return complex_through_double(std::move(x), [](Complex z) { return std::cos(z); });
    case OpCode::kSine:
      return complex_through_double(std::move(x), [](Complex z) { return std::sin(z); });
    case OpCode::kTan:
      return complex_through_double(std::move(x), [](Complex z) { return std::tan(z); });
    case OpCode::kTanh:
      return complex_through_double(std::move(x), [](Complex z) { return std::tanh(z); });
    default:
      return not_for(code, x);
  }
}

Result<HostArray> unary_bool(OpCode code, HostArray x) {
  if (code == OpCode::kNot) {
    return map_unary(BoolCodec{}, BoolCodec{}, DType::kI1, std::move(x), [](bool v) { return !v; });
  }
  if (code == OpCode::kAbs || code == OpCode::kSign || code == OpCode::kReal) return x;
  return not_for(code, x);
}

// Rounds |x| to `mantissa_bits` and its exponent to `exponent_bits`; the value keeps its sign.
double reduced(double x, int64_t exponent_bits, int64_t mantissa_bits, int lowest_exponent) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return x;
  const double magnitude = std::fabs(x);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // Ties to even in units of the last kept place; subnormals of the type itself lie on the grid of
  // its lowest exponent, so they lose the same bits.
  const int unit = std::max(exponent - 1, lowest_exponent) -
                   static_cast<int>(std::min<int64_t>(mantissa_bits, 52));
  double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, -unit)), unit);
  if (exponent_bits < 11) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (rounded >= std::ldexp(1.0, bias + 1)) rounded = HUGE_VAL;
    // Values without a normal representation become zero: the format has no subnormals here.
    if (rounded < std::ldexp(1.0, 1 - bias)) rounded = 0;
  }
  return std::copysign(rounded, x);
}

}  // namespace

Result<HostArray> unary(OpCode code, HostArray x) {
  if (x.dtype() == DType::kI1) return unary_bool(code, std::move(x));
  if (is_complex(x.dtype())) return unary_complex(code, std::move(x));
  if (is_integer(x.dtype())) return unary_integer(code, std::move(x));
  return unary_float(code, std::move(x));
}

Result<HostArray> reduce_precision(HostArray x, int64_t exponent_bits, int64_t mantissa_bits) {
  if (!is_float(x.dtype())) return not_for(OpCode::kReducePrecision, x);
  const FloatFormat format = float_format(x.dtype());
  // Bits that the type does not have cannot be taken away.
  const int64_t e = exponent_bits >= format.exponent_bits ? 11 : exponent_bits;
  // Powers of two alone: there are no subnormals whose exponent is one higher than its field.
  const int lowest = format.has_sign ? 1 - format.bias : -format.bias;
  return through_double(std::move(x), [e, mantissa_bits, lowest](double v) {
    return reduced(v, e, mantissa_bits, lowest);
  });
}

}  // namespace hekla::reference
