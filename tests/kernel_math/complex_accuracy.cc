// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel_math/complex_accuracy.h"

#include <fmt/format.h>
#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;
using Quad = __float128;
using QuadComplex = __complex128;

QuadComplex make(Quad re, Quad im) {
  QuadComplex z;
  __real__ z = re;
  __imag__ z = im;
  return z;
}

QuadComplex log1p_quad(QuadComplex z) {
  const Quad a = __real__ z, b = __imag__ z;
  // 113 bits are enough for the cancellation near the circle in 53.
  return make(
      fabsq(a) < 2 && fabsq(b) < 2 ? log1pq(2 * a + a * a + b * b) / 2 : logq(hypotq(1 + a, b)),
      atan2q(b, 1 + a));
}
QuadComplex expm1_quad(QuadComplex z) {
  const Quad a = __real__ z, b = __imag__ z;
  const Quad half = sinq(b / 2);
  return make(expm1q(a) * cosq(b) - 2 * half * half, expq(a) * sinq(b));
}
QuadComplex log_quad(QuadComplex z) {
  const Quad a = __real__ z, b = __imag__ z;
  const Quad m = (a * a - 1) + b * b;
  return make(fabsq(m) < 0.5 ? log1pq(m) / 2 : logq(hypotq(a, b)), atan2q(b, a));
}
// By sums, without libquadmath's own cancellation.
QuadComplex tanh_quad(QuadComplex z) {
  const Quad a = __real__ z, b = __imag__ z;
  if (fabsq(a) > 5000) return make(a > 0 ? 1 : -1, 0);
  const Quad s = sinhq(a), c = cosq(b);
  const Quad d = c * c + s * s;
  return make(s * coshq(a) / d, sinq(b) * c / d);
}

struct ComplexOracle {
  QuadComplex (*call)(QuadComplex, QuadComplex);
  bool is_binary = false;
  bool gives_real = false;
};

const std::map<OpCode, ComplexOracle>& complex_oracles() {
  using C = QuadComplex;
  static const std::map<OpCode, ComplexOracle> table = {
      {OpCode::kAbs, {[](C z, C) { return make(cabsq(z), 0); }, false, true}},
      {OpCode::kSign, {[](C z, C) { return z / cabsq(z); }}},
      {OpCode::kSqrt, {[](C z, C) { return csqrtq(z); }}},
      {OpCode::kRsqrt, {[](C z, C) { return 1 / csqrtq(z); }}},
      {OpCode::kCbrt, {[](C z, C) {
         const Quad size = cbrtq(cabsq(z)), angle = cargq(z) / 3;
         return make(size * cosq(angle), size * sinq(angle));
       }}},
      {OpCode::kExponential, {[](C z, C) { return cexpq(z); }}},
      {OpCode::kExponentialMinusOne, {[](C z, C) { return expm1_quad(z); }}},
      {OpCode::kLog, {[](C z, C) { return log_quad(z); }}},
      {OpCode::kLogPlusOne, {[](C z, C) { return log1p_quad(z); }}},
      {OpCode::kLogistic, {[](C z, C) { return 1 / (1 + cexpq(-z)); }}},
      {OpCode::kSine, {[](C z, C) { return csinq(z); }}},
      {OpCode::kCosine, {[](C z, C) { return ccosq(z); }}},
      {OpCode::kTan, {[](C z, C) {
         const C t = tanh_quad(make(__imag__ z, __real__ z));
         return make(__imag__ t, __real__ t);
       }}},
      {OpCode::kTanh, {[](C z, C) { return tanh_quad(z); }}},
      {OpCode::kDivide, {[](C x, C y) { return x / y; }, true}},
      {OpCode::kPower, {[](C x, C y) { return cexpq(y * log_quad(x)); }, true}},
      {OpCode::kAtan2,
       {[](C x, C y) {
          const C i = make(0, 1);
          return -i * log_quad((y + i * x) / csqrtq(x * x + y * y));
        },
        true}},
  };
  return table;
}

template <typename T>
std::vector<std::complex<T>> sample(int points, uint64_t seed, bool wide) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  std::vector<std::complex<T>> values;
  const double top = std::is_same_v<T, float> ? 120 : 1000;
  while (values.size() < static_cast<size_t>(points)) {
    const double a = unit(random), b = unit(random);
    values.emplace_back(static_cast<T>(a * 4), static_cast<T>(b * 4));
    values.emplace_back(static_cast<T>(a * 60), static_cast<T>(b * 60));
    values.emplace_back(static_cast<T>(std::cos(a * 3.2)), static_cast<T>(std::sin(a * 3.2)));
    values.emplace_back(static_cast<T>(a * std::exp2(unit(random) * 20)),
                        static_cast<T>(b * std::exp2(unit(random) * 20)));
    values.emplace_back(static_cast<T>(std::exp2(-10 + 10 * a) - 1),
                        static_cast<T>(std::exp2(-20 + 20 * b)));
    if (wide) {
      const double size = std::exp2(unit(random) * top);
      values.emplace_back(static_cast<T>(a * size), static_cast<T>(b * size));
    }
  }
  return values;
}

template <typename T>
double error_in(Quad ours, Quad exact, Quad unit_of) {
  constexpr int kMantissa = std::is_same_v<T, float> ? 23 : 52;
  constexpr int kMin = std::is_same_v<T, float> ? -126 : -1022;
  const Quad limit = scalbnq(1, std::is_same_v<T, float> ? 128 : 1024);
  if (isnanq(exact) || isnanq(ours)) return isnanq(exact) && isnanq(ours) ? 0 : 1e30;
  exact = std::clamp(exact, -limit, limit);
  ours = std::clamp(ours, -limit, limit);
  if (unit_of > limit) unit_of = limit;
  const int exponent = unit_of == 0 ? kMin : std::max(kMin, ilogbq(unit_of));
  return static_cast<double>(scalbnq(fabsq(ours - exact), kMantissa - exponent));
}

template <typename T>
ComplexAccuracy measure_complex_type(OpCode code, DType dtype, Fma fma, int points) {
  const ComplexOracle& oracle = complex_oracles().at(code);
  // The argument of the square root of atan2 would cancel or overflow; powers grow quickly.
  const bool is_wide = code != OpCode::kAtan2 && code != OpCode::kPower;
  const auto xs = sample<T>(points, 1, is_wide);
  const auto ys = sample<T>(points, 2, is_wide);
  using C = std::complex<T>;
  const Dims dims = {static_cast<int64_t>(xs.size())};
  std::vector<HostArray> operands = {HostArray::from<C>(dtype, dims, xs)};
  if (oracle.is_binary) operands.push_back(HostArray::from<C>(dtype, dims, ys));
  const DType result_dtype = oracle.gives_real ? complex_part(dtype) : dtype;
  const auto results = run_expansion(
      result_dtype, operands,
      [&](Builder& b, const std::vector<Element>& e) {
        return oracle.is_binary ? binary(b, code, dtype, e[0], e[1]) : unary(b, code, dtype, e[0]);
      },
      fma);
  ComplexAccuracy worst;
  if (!results) {
    worst.max_norm = worst.max_part = 1e30;
    return worst;
  }
  worst.points = dims[0];
  for (size_t i = 0; i < xs.size(); ++i) {
    const C x = xs[i], y = ys[i];
    const QuadComplex exact = oracle.call(make(x.real(), x.imag()), make(y.real(), y.imag()));
    const Quad re = __real__ exact, im = __imag__ exact;
    const T* ours = results->template as<T>() + (oracle.gives_real ? i : 2 * i);
    const Quad our_im = oracle.gives_real ? 0 : ours[1];
    const Quad size = std::max(fabsq(re), fabsq(im));
    // A pole, where the error of e^-z counts many times.
    if (code == OpCode::kLogistic && size > 2) continue;
    if (code == OpCode::kPower) {
      // The error grows with the exponent's size; this is where it is moderate.
      const QuadComplex e = make(y.real(), y.imag()) * log_quad(make(x.real(), x.imag()));
      if (cabsq(e) > 8) continue;
    }
    const double norm = std::max(error_in<T>(ours[0], re, size), error_in<T>(our_im, im, size));
    const double part =
        std::max(error_in<T>(ours[0], re, fabsq(re)), error_in<T>(our_im, im, fabsq(im)));
    const auto where = [&] {
      return fmt::format("({}, {}) ({}, {}) gives ({}, {}) for ({}, {})", x.real(), x.imag(),
                         y.real(), y.imag(), ours[0], static_cast<double>(our_im),
                         static_cast<double>(re), static_cast<double>(im));
    };
    if (norm > worst.max_norm) {
      worst.max_norm = norm;
      worst.where_norm = where();
    }
    if (part > worst.max_part) {
      worst.max_part = part;
      worst.where_part = where();
    }
  }
  return worst;
}

}  // namespace

std::vector<OpCode> measured_complex_functions() {
  std::vector<OpCode> codes;
  for (const auto& [code, oracle] : complex_oracles()) codes.push_back(code);
  return codes;
}

ComplexAccuracy measure_complex(OpCode code, DType dtype, Fma fma, int points) {
  return dtype == DType::kC64 ? measure_complex_type<float>(code, dtype, fma, points)
                              : measure_complex_type<double>(code, dtype, fma, points);
}

}  // namespace hekla::kernel
