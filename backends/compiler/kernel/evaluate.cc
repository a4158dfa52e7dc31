// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/evaluate.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace hekla::kernel {
namespace {

template <typename F>
using BitsOf = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;

template <typename F>
F to_float(uint64_t bits) {
  return std::bit_cast<F>(static_cast<BitsOf<F>>(bits));
}
template <typename F>
uint64_t to_bits(F value) {
  return std::bit_cast<BitsOf<F>>(value);
}

template <typename U>
uint64_t evaluate_integer(Op op, U a, U b) {
  using S = std::make_signed_t<U>;
  constexpr unsigned kWidth = sizeof(U) * 8;
  const auto sa = static_cast<S>(a);
  const auto sb = static_cast<S>(b);
  const bool overflows = sb == -1 && sa == std::numeric_limits<S>::min();
  switch (op) {
    case Op::kAdd:
      return static_cast<U>(a + b);
    case Op::kSub:
      return static_cast<U>(a - b);
    case Op::kMul:
      return static_cast<U>(a * b);
    case Op::kMulHighU:
      return static_cast<U>(static_cast<unsigned __int128>(a) * b >> kWidth);
    case Op::kDivS:
      return b == 0 || overflows ? 0 : static_cast<U>(sa / sb);
    case Op::kDivU:
      return b == 0 ? 0 : static_cast<U>(a / b);
    case Op::kRemS:
      return b == 0 || overflows ? 0 : static_cast<U>(sa % sb);
    case Op::kRemU:
      return b == 0 ? 0 : static_cast<U>(a % b);
    case Op::kShl:
      return b >= kWidth ? 0 : static_cast<U>(a << b);
    case Op::kShrU:
      return b >= kWidth ? 0 : static_cast<U>(a >> b);
    case Op::kShrS:
      return b >= kWidth ? 0 : static_cast<U>(sa >> b);
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLtS:
      return sa < sb;
    case Op::kLeS:
      return sa <= sb;
    case Op::kLtU:
      return a < b;
    case Op::kLeU:
      return a <= b;
    default:
      return 0;
  }
}

template <typename F>
uint64_t evaluate_float(Op op, F a, F b, F c) {
  switch (op) {
    case Op::kAdd:
      return to_bits(a + b);
    case Op::kSub:
      return to_bits(a - b);
    case Op::kMul:
      return to_bits(a * b);
    case Op::kDiv:
      return to_bits(a / b);
    case Op::kNeg:
      return to_bits(-a);
    case Op::kAbs:
      return to_bits(std::fabs(a));
    case Op::kFma:
      return to_bits(std::fma(a, b, c));
    case Op::kSqrt:
      return to_bits(std::sqrt(a));
    case Op::kFloor:
      return to_bits(std::floor(a));
    case Op::kCeil:
      return to_bits(std::ceil(a));
    case Op::kTrunc:
      return to_bits(std::trunc(a));
    case Op::kRoundEven:
      return to_bits(std::nearbyint(a));  // the default rounding mode is to nearest even
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    default:
      return 0;
  }
}

template <typename I, typename F>
uint64_t float_to_integer(F value) {
  // Compared as floats: the limits may round up, hence the strict comparison above.
  const F low = static_cast<F>(std::numeric_limits<I>::min());
  const F high = static_cast<F>(std::numeric_limits<I>::max());
  const F whole = std::trunc(value);
  if (!(whole >= low && whole < high)) return whole == high ? std::numeric_limits<I>::max() : 0;
  return static_cast<std::make_unsigned_t<I>>(static_cast<I>(whole));
}

template <typename F>
uint64_t float_to_integer(Op op, ScalarType type, F value) {
  const bool is_signed = op == Op::kFloatToSInt;
  if (type == ScalarType::kI32) {
    return is_signed ? float_to_integer<int32_t>(value) : float_to_integer<uint32_t>(value);
  }
  return is_signed ? float_to_integer<int64_t>(value) : float_to_integer<uint64_t>(value);
}

template <typename F>
uint64_t integer_to_float(Op op, ScalarType from, uint64_t a) {
  if (op == Op::kUIntToFloat) return to_bits(static_cast<F>(a));
  return from == ScalarType::kI32 ? to_bits(static_cast<F>(static_cast<int32_t>(a)))
                                  : to_bits(static_cast<F>(static_cast<int64_t>(a)));
}

// Bits of f32, as all of this.
uint32_t half_to_float(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) {
    return sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | (magnitude > 0x7c00 ? 0x400000 : 0);
  }
  if (magnitude < 0x400) {
    return sign | static_cast<uint32_t>(to_bits(static_cast<float>(magnitude) * 0x1p-24F));
  }
  return sign | ((magnitude << 13) + (112u << 23));
}

uint32_t float_to_half(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65,520
  if (magnitude < 0x38800000) {
    // The sum's last place is the unit of subnormal numbers.
    const float sum = to_float<float>(magnitude) + 0.5F;
    return sign | (static_cast<uint32_t>(to_bits(sum)) - 0x3f000000);
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return sign | (magnitude + 0xfff + odd - (112u << 23)) >> 13;
}

}  // namespace

uint64_t evaluate(Op op, ScalarType type, ScalarType from, uint64_t a, uint64_t b, uint64_t c) {
  switch (op) {
    case Op::kSelect:
      return a != 0 ? b : c;
    case Op::kSignExtend:
      return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(a)));
    case Op::kTruncate:
      return a & 0xffffffff;
    case Op::kZeroExtend:
    case Op::kBoolToInt:
    case Op::kBitcast:
      return a;
    case Op::kSIntToFloat:
    case Op::kUIntToFloat:
      return type == ScalarType::kF32 ? integer_to_float<float>(op, from, a)
                                      : integer_to_float<double>(op, from, a);
    case Op::kFloatToSInt:
    case Op::kFloatToUInt:
      return from == ScalarType::kF32 ? float_to_integer(op, type, to_float<float>(a))
                                      : float_to_integer(op, type, to_float<double>(a));
    case Op::kFloatResize:
      return from == ScalarType::kF32 ? to_bits(static_cast<double>(to_float<float>(a)))
                                      : to_bits(static_cast<float>(to_float<double>(a)));
    case Op::kHalfToFloat:
      return half_to_float(static_cast<uint32_t>(a));
    case Op::kFloatToHalf:
      return float_to_half(static_cast<uint32_t>(a));
    default:
      break;
  }
  switch (from) {
    case ScalarType::kBool:
      return evaluate_integer<uint32_t>(op, static_cast<uint32_t>(a), static_cast<uint32_t>(b)) & 1;
    case ScalarType::kI32:
      return evaluate_integer<uint32_t>(op, static_cast<uint32_t>(a), static_cast<uint32_t>(b));
    case ScalarType::kI64:
      return evaluate_integer<uint64_t>(op, a, b);
    case ScalarType::kF32:
      return evaluate_float<float>(op, to_float<float>(a), to_float<float>(b), to_float<float>(c));
    case ScalarType::kF64:
      break;
  }
  return evaluate_float<double>(op, to_float<double>(a), to_float<double>(b), to_float<double>(c));
}

}  // namespace hekla::kernel
