// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/elementwise/loops.h"
#include "backends/reference/kernels/scalar_ops.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

Status not_for(OpCode code, const HostArray& x) {
  return unimplemented("{} is not defined for {}", ir::op_name(code), x.shape());
}

Result<HostArray> binary_float(OpCode code, HostArray a, HostArray b) {
  const DType dtype = a.dtype();
  const auto run = [&](auto f) {
    return visit_float(
        dtype, [&](auto codec) { return map_binary(codec, std::move(a), std::move(b), f); });
  };
  const auto through_double = [&](auto f) {
    return run([f](auto x, auto y) {
      return static_cast<decltype(x)>(f(static_cast<double>(x), static_cast<double>(y)));
    });
  };
  switch (code) {
    case OpCode::kAdd:
      return run([](auto x, auto y) { return x + y; });
    case OpCode::kSubtract:
      return run([](auto x, auto y) { return x - y; });
    case OpCode::kMultiply:
      return run([](auto x, auto y) { return x * y; });
    case OpCode::kDivide:
      return run([](auto x, auto y) { return x / y; });
    case OpCode::kMaximum:
      return run([](auto x, auto y) { return propagating_maximum(x, y); });
    case OpCode::kMinimum:
      return run([](auto x, auto y) { return propagating_minimum(x, y); });
    case OpCode::kRemainder:
      return run([](auto x, auto y) { return std::fmod(x, y); });
    case OpCode::kAtan2:
      return through_double([](double x, double y) { return std::atan2(x, y); });
    case OpCode::kPower:
      return through_double([](double x, double y) { return std::pow(x, y); });
    default:
      return not_for(code, a);
  }
}

template <typename T>
T integer_divide(T x, T y) {
  if (y == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
  }
  return static_cast<T>(x / y);
}

template <typename T>
T integer_remainder(T x, T y) {
  if (y == 0) return x;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return 0;
  }
  return static_cast<T>(x % y);
}

// By squaring, wrapping. A negative exponent gives the integer part of the quotient: 0 but for
// bases of 1 and -1.
template <typename T>
T integer_power(T base, T exponent) {
  using U = std::make_unsigned_t<T>;
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == -1) return exponent % 2 == 0 ? 1 : -1;
      return 0;
    }
  }
  uint64_t result = 1;
  uint64_t square = static_cast<U>(base);
  for (U e = static_cast<U>(exponent); e != 0; e = static_cast<U>(e >> 1)) {
    if ((e & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

Result<HostArray> binary_integer(OpCode code, HostArray a, HostArray b) {
  const DType dtype = a.dtype();
  const auto run = [&](auto f) {
    return visit_integer(
        dtype, [&](auto codec) { return map_binary(codec, std::move(a), std::move(b), f); });
  };
  // Through 64 unsigned bits: no promotion to a signed type that could overflow.
  const auto wrapping = [&](auto f) {
    return run([f](auto x, auto y) {
      return static_cast<decltype(x)>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
    });
  };
  const int bits = dtype_bits(dtype);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  // The shift amount is read as an unsigned number of the type's width.
  const auto amount = [mask](auto y) { return static_cast<uint64_t>(y) & mask; };
  switch (code) {
    case OpCode::kAdd:
      return wrapping([](uint64_t x, uint64_t y) { return x + y; });
    case OpCode::kSubtract:
      return wrapping([](uint64_t x, uint64_t y) { return x - y; });
    case OpCode::kMultiply:
      return wrapping([](uint64_t x, uint64_t y) { return x * y; });
    case OpCode::kAnd:
      return wrapping([](uint64_t x, uint64_t y) { return x & y; });
    case OpCode::kOr:
      return wrapping([](uint64_t x, uint64_t y) { return x | y; });
    case OpCode::kXor:
      return wrapping([](uint64_t x, uint64_t y) { return x ^ y; });
    case OpCode::kDivide:
      return run([](auto x, auto y) { return integer_divide(x, y); });
    case OpCode::kRemainder:
      return run([](auto x, auto y) { return integer_remainder(x, y); });
    case OpCode::kMaximum:
      return run([](auto x, auto y) { return x > y ? x : y; });
    case OpCode::kMinimum:
      return run([](auto x, auto y) { return x < y ? x : y; });
    case OpCode::kPower:
      return run([](auto x, auto y) { return integer_power(x, y); });
    case OpCode::kShiftLeft:
      return run([=](auto x, auto y) {
        const uint64_t s = amount(y);
        return static_cast<decltype(x)>(
            s >= static_cast<uint64_t>(bits) ? 0 : static_cast<uint64_t>(x) << s);
      });
    case OpCode::kShiftRightLogical:
      return run([=](auto x, auto y) {
        const uint64_t s = amount(y);
        return static_cast<decltype(x)>(
            s >= static_cast<uint64_t>(bits) ? 0 : (static_cast<uint64_t>(x) & mask) >> s);
      });
    case OpCode::kShiftRightArithmetic:
      return run([=](auto x, auto y) {
        // For unsigned types the top bit counts as the sign, as in XLA.
        const uint64_t s = std::min<uint64_t>(amount(y), static_cast<uint64_t>(bits) - 1);
        const int64_t wide =
            static_cast<int64_t>(static_cast<uint64_t>(x) << (64 - bits)) >> (64 - bits);
        return static_cast<decltype(x)>(wide >> s);
      });
    default:
      return not_for(code, a);
  }
}

Result<HostArray> binary_bool(OpCode code, HostArray a, HostArray b) {
  const auto run = [&](auto f) { return map_binary(BoolCodec{}, std::move(a), std::move(b), f); };
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kOr:
    case OpCode::kMaximum:
      return run([](bool x, bool y) { return x || y; });
    case OpCode::kMultiply:
    case OpCode::kAnd:
    case OpCode::kMinimum:
      return run([](bool x, bool y) { return x && y; });
    case OpCode::kXor:
    case OpCode::kSubtract:
      return run([](bool x, bool y) { return x != y; });
    default:
      return not_for(code, a);
  }
}

std::complex<double> complex_power(std::complex<double> x, std::complex<double> y) {
  if (y == std::complex<double>(0)) return 1;
  if (x == std::complex<double>(0)) {
    // As XLA: defined for positive real exponents only.
    const double value = y.imag() == 0 && y.real() > 0 ? 0.0 : std::nan("");
    return {value, value};
  }
  return std::pow(x, y);
}

Result<HostArray> binary_complex(OpCode code, HostArray a, HostArray b) {
  const DType dtype = a.dtype();
  const auto run = [&](auto f) {
    return visit_complex(
        dtype, [&](auto codec) { return map_binary(codec, std::move(a), std::move(b), f); });
  };
  const auto through_double = [&](auto f) {
    return run([f](auto x, auto y) {
      using C = decltype(x);
      return static_cast<C>(
          f(static_cast<std::complex<double>>(x), static_cast<std::complex<double>>(y)));
    });
  };
  switch (code) {
    case OpCode::kAdd:
      return run([](auto x, auto y) { return x + y; });
    case OpCode::kSubtract:
      return run([](auto x, auto y) { return x - y; });
    case OpCode::kMultiply:
      return run([](auto x, auto y) { return wrapping_multiply(x, y); });
    case OpCode::kDivide:
      return through_double([](auto x, auto y) { return x / y; });
    case OpCode::kPower:
      return through_double(complex_power);
    case OpCode::kAtan2:
      // atan2(x, y) = -i log((y + i x) / sqrt(x^2 + y^2))
      return through_double([](std::complex<double> x, std::complex<double> y) {
        const std::complex<double> i(0, 1);
        return -i * std::log((y + i * x) / std::sqrt(x * x + y * y));
      });
    case OpCode::kMaximum:
      return run([](auto x, auto y) { return propagating_maximum(x, y); });
    case OpCode::kMinimum:
      return run([](auto x, auto y) { return propagating_minimum(x, y); });
    default:
      return not_for(code, a);
  }
}

Result<HostArray> make_complex(const HostArray& re, const HostArray& im) {
  const auto run = [&](auto zero) -> Result<HostArray> {
    using T = decltype(zero);
    HEKLA_ASSIGN_OR_RETURN(HostArray out,
                           HostArray::allocate(complex_of(re.dtype()), re.dims(), false));
    const T* x = re.as<T>();
    const T* y = im.as<T>();
    T* parts = out.mutable_as<T>();
    for (int64_t i = 0; i < re.size(); ++i) {
      parts[2 * i] = x[i];
      parts[2 * i + 1] = y[i];
    }
    return out;
  };
  if (re.dtype() == DType::kF32) return run(0.0F);
  if (re.dtype() == DType::kF64) return run(0.0);
  return not_for(OpCode::kComplex, re);
}

}  // namespace

Result<HostArray> binary(OpCode code, HostArray a, HostArray b) {
  if (code == OpCode::kComplex) return make_complex(a, b);
  if (a.dtype() == DType::kI1) return binary_bool(code, std::move(a), std::move(b));
  if (is_complex(a.dtype())) return binary_complex(code, std::move(a), std::move(b));
  if (is_integer(a.dtype())) return binary_integer(code, std::move(a), std::move(b));
  return binary_float(code, std::move(a), std::move(b));
}

}  // namespace hekla::reference
