// SPDX-License-Identifier: Apache-2.0
// Complex functions of zeros, infinities and NaN against the reference evaluator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <vector>

#include "backends/reference/elementwise/elementwise.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;
using C = std::complex<double>;

std::vector<C> edges() {
  const double inf = HUGE_VAL, nan = std::nan("");
  std::vector<C> values;
  for (double a : {0.0, -0.0, 1.0, -1.0, 0.5, 1e300, -1e300, 1e-310, inf, -inf, nan}) {
    for (double b : {0.0, -0.0, 1.0, -2.0, 1e-310, -1e300, inf, -inf, nan})
      values.emplace_back(a, b);
  }
  return values;
}

// `any_zero`: zeros of either sign are equal.
bool same(double a, double b, bool any_zero) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == 0 && b == 0) return any_zero || std::signbit(a) == std::signbit(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= 1e-14 * std::fabs(b) + 1e-320;
}

bool is_finite(C z) { return std::isfinite(z.real()) && std::isfinite(z.imag()); }

// Whether C leaves the sign of a zero open: of quotients that underflow, of functions of an
// infinite angle, beside NaN.
bool has_open_zeros(OpCode code, C z) {
  return !is_finite(z) || code == OpCode::kRsqrt || code == OpCode::kLogistic;
}

// C's Annex G wants an infinity beside NaN for the sine and cosine of two infinities, or infinity
// and NaN; both parts are NaN here.
bool is_exempt(OpCode code, C z) {
  return (code == OpCode::kSine || code == OpCode::kCosine) && !std::isfinite(z.real()) &&
         std::isinf(z.imag());
}

std::string compare(OpCode code, const HostArray& x, const HostArray& ours,
                    const HostArray& wanted) {
  std::string text;
  const int64_t parts = is_complex(ours.dtype()) ? 2 : 1;
  for (int64_t i = 0; i < ours.size(); ++i) {
    const C z = x.as<C>()[i];
    const bool any_zero = has_open_zeros(code, z);
    if (is_exempt(code, z)) continue;
    bool ok = true;
    for (int64_t k = 0; k < parts; ++k) {
      ok &= same(ours.as<double>()[i * parts + k], wanted.as<double>()[i * parts + k], any_zero);
    }
    if (ok) continue;
    text += fmt::format("{}({}, {}) = ", ir::op_name(code).substr(10), z.real(), z.imag());
    for (int64_t k = 0; k < parts; ++k)
      text += fmt::format("{} ", ours.as<double>()[i * parts + k]);
    text += "wanted ";
    for (int64_t k = 0; k < parts; ++k) {
      text += fmt::format("{} ", wanted.as<double>()[i * parts + k]);
    }
    text += "\n";
  }
  return text;
}

TEST(ComplexEdges, Unary) {
  const std::vector<C> values = edges();
  const HostArray x =
      HostArray::from<C>(DType::kC128, {static_cast<int64_t>(values.size())}, values);
  for (OpCode code :
       {OpCode::kAbs, OpCode::kSign, OpCode::kSqrt, OpCode::kRsqrt, OpCode::kCbrt,
        OpCode::kExponential, OpCode::kExponentialMinusOne, OpCode::kLog, OpCode::kLogPlusOne,
        OpCode::kLogistic, OpCode::kSine, OpCode::kCosine, OpCode::kTan, OpCode::kTanh}) {
    const HostArray wanted = *reference::unary(code, x);
    const auto ours =
        run_expansion(wanted.dtype(), {x}, [&](Builder& b, const std::vector<Element>& e) {
          return unary(b, code, DType::kC128, e[0]);
        });
    EXPECT_EQ(compare(code, x, *ours, wanted), "");
  }
}

// Parts of all magnitudes, many of them where the way of dividing changes; zeros and, `with_edges`,
// infinities and NaN.
template <typename T>
std::vector<std::complex<T>> operands_of_division(int count, uint32_t seed, bool with_edges) {
  using Limits = std::numeric_limits<T>;
  const bool is_narrow = sizeof(T) == 4;
  const std::vector<int> turns = is_narrow ? std::vector<int>{-51, -50, -49, 59, 60, 61}
                                           : std::vector<int>{-451, -450, -449, 499, 500, 501};
  std::mt19937 random(seed);
  const auto part = [&]() -> T {
    const T sign = random() % 2 == 0 ? T{1} : T{-1};
    const uint32_t kind = random() % 16;
    if (kind == 0) return sign * T{0};
    if (with_edges && kind == 1) return sign * Limits::infinity();
    if (with_edges && kind == 2) return Limits::quiet_NaN();
    const T digits = T{1} + static_cast<T>(random() % 4096) / T{4096};
    // Exact powers of two in half of the cases, so that some lie on the border.
    const T number = random() % 2 == 0 ? T{1} : digits;
    int exponent = static_cast<int>(random() % 20) - 10;
    if (kind < 8) exponent = turns[random() % turns.size()];
    if (kind == 8) {
      const int range = Limits::max_exponent - Limits::min_exponent + Limits::digits;
      exponent = Limits::min_exponent - Limits::digits +
                 static_cast<int>(random() % static_cast<uint32_t>(range));
    }
    return sign * std::ldexp(number, exponent);
  };
  std::vector<std::complex<T>> values;
  for (int i = 0; i < count; ++i) {
    const T re = part(), im = part();
    values.emplace_back(re, im);
  }
  return values;
}

template <typename T>
void check_division(DType dtype, Fma fma) {
  using Z = std::complex<T>;
  constexpr int kCount = 40000;
  const std::vector<Z> x = operands_of_division<T>(kCount, 1, false);
  const std::vector<Z> y = operands_of_division<T>(kCount, 2, false);
  const HostArray quotients = *run_expansion(
      dtype, {HostArray::from<Z>(dtype, {kCount}, x), HostArray::from<Z>(dtype, {kCount}, y)},
      [&](Builder& b, const std::vector<Element>& e) {
        return binary(b, OpCode::kDivide, dtype, e[0], e[1]);
      },
      fma);
  // Exact but for the last of many bits: products of f32 have 48, exponents have room.
  using Wide = long double;
  const Wide place = std::numeric_limits<T>::epsilon();
  int checked = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto n = static_cast<size_t>(i);
    if (y[n] == Z(0)) continue;
    const Wide a = x[n].real(), b = x[n].imag(), c = y[n].real(), d = y[n].imag();
    const Wide square = c * c + d * d;
    const Wide wanted[] = {(a * c + b * d) / square, (b * c - a * d) / square};
    const Wide size = std::hypot(wanted[0], wanted[1]);
    if (size > static_cast<Wide>(std::numeric_limits<T>::max()) / 4) continue;
    ++checked;
    for (int k = 0; k < 2; ++k) {
      const T ours = quotients.as<T>()[2 * n + static_cast<size_t>(k)];
      // Of the part itself, unless the sum cancels to the last bits of its exact products.
      const Wide bound = 4 * place * std::fabs(wanted[k]) +
                         (sizeof(T) == 4 ? 8 * place * place : 32 * 0x1p-63L) * size +
                         2 * static_cast<Wide>(std::numeric_limits<T>::denorm_min());
      ASSERT_LE(std::fabs(static_cast<Wide>(ours) - wanted[k]), bound) << fmt::format(
          "({:a}, {:a}) / ({:a}, {:a}) part {}: {:a}, wanted {:a}", x[n].real(), x[n].imag(),
          y[n].real(), y[n].imag(), k, ours, static_cast<double>(wanted[k]));
    }
  }
  EXPECT_GT(checked, kCount / 2);
}

TEST(ComplexDivision, PartsAreGoodOnTheirOwn) {
  for (const Fma fma : {Fma::kFused, Fma::kSplit}) {
    check_division<float>(DType::kC64, fma);
    check_division<double>(DType::kC128, fma);
  }
}

// C's Annex G, where a number with an infinite part is an infinity whatever the other part is.
TEST(ComplexDivision, InfinitiesAndZerosAreThoseOfAnnexG) {
  constexpr int kCount = 20000;
  const std::vector<C> x = operands_of_division<double>(kCount, 3, true);
  const std::vector<C> y = operands_of_division<double>(kCount, 4, true);
  const HostArray quotients =
      *run_expansion(DType::kC128,
                     {HostArray::from<C>(DType::kC128, {kCount}, x),
                      HostArray::from<C>(DType::kC128, {kCount}, y)},
                     [](Builder& b, const std::vector<Element>& e) {
                       return binary(b, OpCode::kDivide, DType::kC128, e[0], e[1]);
                     });
  const auto is_infinite = [](C z) { return std::isinf(z.real()) || std::isinf(z.imag()); };
  int checked = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const C z = quotients.as<C>()[i];
    const std::string text = fmt::format("({:a}, {:a}) / ({:a}, {:a}): ({:a}, {:a})", x[i].real(),
                                         x[i].imag(), y[i].real(), y[i].imag(), z.real(), z.imag());
    if (is_finite(x[i]) && is_finite(y[i]) && y[i] != C(0)) {
      EXPECT_FALSE(std::isnan(z.real()) || std::isnan(z.imag())) << text;
    } else if (is_infinite(x[i]) && is_finite(y[i])) {
      EXPECT_TRUE(is_infinite(z)) << text;
    } else if (is_finite(x[i]) && is_infinite(y[i])) {
      EXPECT_EQ(z, C(0)) << text;
    } else if (is_finite(x[i]) && x[i] != C(0) && y[i] == C(0)) {
      EXPECT_TRUE(is_infinite(z)) << text;
    } else {
      continue;
    }
    ++checked;
  }
  EXPECT_GT(checked, kCount / 2);
}

}  // namespace
}  // namespace hekla::kernel
