// SPDX-License-Identifier: Apache-2.0
// Complex functions of zeros, infinities and NaN against the reference evaluator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>

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

}  // namespace
}  // namespace hekla::kernel
