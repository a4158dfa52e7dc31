// SPDX-License-Identifier: Apache-2.0
// The published accuracy of the functions (docs/numerics.md) holds. Prints the measured table; with
// HEKLA_ACCURACY_DENSITY=N it takes N points per binade, with HEKLA_ACCURACY_FUNCTION=tanh that
// function of real numbers alone.
#include "tests/kernel_math/accuracy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>

#include "tests/kernel_math/complex_accuracy.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

struct Bound {
  OpCode code;
  double f32, f64;
};
// In ULP.
constexpr Bound kBounds[] = {
    {OpCode::kExponential, 1.25, 1.25},
    {OpCode::kExponentialMinusOne, 1.75, 2.25},
    {OpCode::kLog, 1, 1},
    {OpCode::kLogPlusOne, 1, 1},
    {OpCode::kTanh, 2, 2.5},
    {OpCode::kLogistic, 2, 2},
    {OpCode::kRsqrt, 1.5, 1.5},
    {OpCode::kCbrt, 0.75, 0.75},
    {OpCode::kSine, 1, 1},
    {OpCode::kCosine, 1, 1},
    {OpCode::kTan, 2.5, 2.5},
    {OpCode::kPower, 1, 1},
    {OpCode::kAtan2, 1.75, 1.75},
};

int density() {
  const char* text = std::getenv("HEKLA_ACCURACY_DENSITY");
  return text == nullptr ? 200 : std::max(1, std::atoi(text));
}

void check(DType dtype, double Bound::*limit) {
  fmt::print("| function | {} ULP, fused | split | where | points |\n|---|---|---|---|---|\n",
             dtype_name(dtype));
  const char* only = std::getenv("HEKLA_ACCURACY_FUNCTION");
  for (const Bound& bound : kBounds) {
    if (only != nullptr && ir::op_name(bound.code).substr(10) != only) continue;
    const Accuracy fused = measure(bound.code, dtype, Fma::kFused, density());
    const Accuracy split = measure(bound.code, dtype, Fma::kSplit, density());
    const Accuracy& worst = fused.max_ulp > split.max_ulp ? fused : split;
    fmt::print("| {} | {:.2f} | {:.2f} | {} {} | {} |\n", ir::op_name(bound.code).substr(10),
               fused.max_ulp, split.max_ulp, worst.x, worst.y, worst.points);
    EXPECT_LE(worst.max_ulp, bound.*limit)
        << ir::op_name(bound.code) << " of " << worst.x << ", " << worst.y << " gives "
        << worst.result << " for " << worst.wanted;
  }
}

TEST(Accuracy, F32) { check(DType::kF32, &Bound::f32); }
TEST(Accuracy, F64) { check(DType::kF64, &Bound::f64); }

void check_complex(DType dtype) {
  fmt::print("| function | {} ULP of the number | ULP of each part | points |\n|---|---|---|---|\n",
             dtype_name(dtype));
  for (OpCode code : measured_complex_functions()) {
    const ComplexAccuracy fused = measure_complex(code, dtype, Fma::kFused, density() * 20);
    const ComplexAccuracy split = measure_complex(code, dtype, Fma::kSplit, density() * 20);
    const ComplexAccuracy& worst = fused.max_norm > split.max_norm ? fused : split;
    fmt::print("| {} | {:.2f} | {:.2f} | {} |\n", ir::op_name(code).substr(10), worst.max_norm,
               std::max(fused.max_part, split.max_part), worst.points);
    if (std::getenv("HEKLA_ACCURACY_WHERE") != nullptr) {
      fmt::print("  {}\n  {}\n", worst.where_norm, worst.where_part);
    }
    // Errors of the logarithm count as often as the power's exponent is large. atan2 is a logarithm
    // of a number that may be near 1: its error is absolute.
    const double bound = code == OpCode::kPower ? 32 : 8;
    if (code == OpCode::kAtan2) continue;
    EXPECT_LE(worst.max_norm, bound) << ir::op_name(code) << " of " << worst.where_norm;
  }
}

// What programs may rely on to be exact.
template <typename T>
void check_exact_points(DType dtype) {
  const auto run = [&](OpCode code, std::vector<T> x, std::vector<T> y) {
    const Dims dims = {static_cast<int64_t>(x.size())};
    std::vector<HostArray> operands = {HostArray::from<T>(dtype, dims, x)};
    if (!y.empty()) operands.push_back(HostArray::from<T>(dtype, dims, y));
    const HostArray out = *run_expansion(dtype, operands, [&](Builder& b, const auto& e) {
      return e.size() == 1 ? unary(b, code, dtype, e[0]) : binary(b, code, dtype, e[0], e[1]);
    });
    return std::vector<T>(out.as<T>(), out.as<T>() + out.size());
  };
  EXPECT_EQ(run(OpCode::kExponential, {0}, {}), std::vector<T>{1});
  EXPECT_EQ(run(OpCode::kCosine, {0}, {}), std::vector<T>{1});
  EXPECT_EQ(run(OpCode::kLogistic, {0}, {}), std::vector<T>{T(0.5)});
  EXPECT_EQ(run(OpCode::kCbrt, {1, 8, -27, 1000}, {}), (std::vector<T>{1, 2, -3, 10}));
  std::vector<T> twos, whole, powers, bases, ones;
  for (int k = std::numeric_limits<T>::min_exponent - 30; k < std::numeric_limits<T>::max_exponent;
       ++k) {
    twos.push_back(2);
    whole.push_back(static_cast<T>(k));
    powers.push_back(std::ldexp(T(1), k));
    bases.push_back(T(0.37) * static_cast<T>(k));
    ones.push_back(1);
  }
  EXPECT_EQ(run(OpCode::kPower, twos, whole), powers);
  EXPECT_EQ(run(OpCode::kPower, bases, ones), bases);
}
// A positive number to a real one is the power of real numbers, bit for bit, as complex numbers
// too.
template <typename T>
void check_real_powers_of_complex(DType complex_dtype) {
  using C = std::complex<T>;
  std::vector<C> x, y;
  for (const T base :
       {T(0.37), T(1), T(2), T(3), T(9), T(250), std::numeric_limits<T>::max() / 2}) {
    for (const T exponent : {T(-2), T(-0.5), T(0), T(0.5), T(1), T(2), T(3), T(15), T(30.25)}) {
      x.emplace_back(base, 0);
      y.emplace_back(exponent, 0);
    }
  }
  const auto run = [&](DType dtype, const HostArray& a, const HostArray& b) {
    return *run_expansion(dtype, {a, b}, [&](Builder& builder, const auto& e) {
      return binary(builder, OpCode::kPower, dtype, e[0], e[1]);
    });
  };
  const auto real = [](const std::vector<C>& values) {
    std::vector<T> parts;
    for (const C& value : values) parts.push_back(value.real());
    return parts;
  };
  const Dims dims = {static_cast<int64_t>(x.size())};
  const DType dtype = complex_part(complex_dtype);
  const HostArray wanted = run(dtype, HostArray::from<T>(dtype, dims, real(x)),
                               HostArray::from<T>(dtype, dims, real(y)));
  const HostArray ours = run(complex_dtype, HostArray::from<C>(complex_dtype, dims, x),
                             HostArray::from<C>(complex_dtype, dims, y));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(ours.as<C>()[i].real(), wanted.as<T>()[i]) << x[i] << " to " << y[i];
    EXPECT_EQ(ours.as<C>()[i].imag(), 0) << x[i] << " to " << y[i];
  }
}
TEST(Accuracy, RealPowersOfComplex) {
  check_real_powers_of_complex<float>(DType::kC64);
  check_real_powers_of_complex<double>(DType::kC128);
}

TEST(Accuracy, ExactPoints) {
  check_exact_points<float>(DType::kF32);
  check_exact_points<double>(DType::kF64);
}

TEST(Accuracy, C64) { check_complex(DType::kC64); }
TEST(Accuracy, C128) { check_complex(DType::kC128); }

}  // namespace
}  // namespace hekla::kernel
