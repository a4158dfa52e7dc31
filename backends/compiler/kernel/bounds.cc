// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/bounds.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>

namespace hekla::kernel {
namespace {

using Wide = __int128;

Bounds fitting(ScalarType type, std::initializer_list<Wide> ends) {
  const Wide low = std::min(ends), high = std::max(ends);
  Bounds all = bounds_of(type);
  all.is_exact = low >= all.low && high <= all.high;
  if (!all.is_exact) return all;
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

Bounds hull(const Bounds& a, const Bounds& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

// The largest number with as many bits.
int64_t all_bits(int64_t x) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x) + 1) - 1);
}

Bounds quotient(Op op, ScalarType type, const Bounds& x, const Bounds& y) {
  if (op == Op::kDivU && x.low < 0) {
    if (y.low < 2) return bounds_of(type);
    const uint64_t most = ~uint64_t{0} >> (64 - bit_width(type));
    return {0, static_cast<int64_t>(most / static_cast<uint64_t>(y.low))};
  }
  if (y.low <= 0) return bounds_of(type);
  return fitting(type, {x.low / y.low, x.low / y.high, x.high / y.low, x.high / y.high});
}

Bounds remainder(Op op, ScalarType type, const Bounds& x, const Bounds& y) {
  if (y.low <= 0) return bounds_of(type);
  const int64_t most = y.high - 1;
  if (x.low >= 0) return x.high < y.low ? Bounds{x.low, x.high} : Bounds{0, std::min(x.high, most)};
  if (op == Op::kRemU) return {0, most};
  return {std::max(x.low, -most), std::clamp<int64_t>(x.high, 0, most)};
}

Bounds shifted(Op op, ScalarType type, const Bounds& x, const Bounds& count) {
  const int width = bit_width(type);
  if (count.low < 0 || count.high >= width) {
    return op == Op::kShl ? fitting(type, {Wide{1} << 64}) : bounds_of(type);
  }
  if (op == Op::kShl) {
    const Wide least = Wide{1} << count.low, most = Wide{1} << count.high;
    return fitting(type, {x.low * least, x.low * most, x.high * least, x.high * most});
  }
  if (op == Op::kShrU && x.low < 0) {
    if (count.low == 0) return bounds_of(type);
    return {0, static_cast<int64_t>(~uint64_t{0} >> (64 - width) >> count.low)};
  }
  return fitting(
      type, {x.low >> count.low, x.low >> count.high, x.high >> count.low, x.high >> count.high});
}

Bounds combined(Op op, ScalarType type, const Bounds& x, const Bounds& y) {
  if (x.is_one() && y.is_one()) {
    const int64_t bits = op == Op::kAnd  ? x.low & y.low
                         : op == Op::kOr ? x.low | y.low
                                         : x.low ^ y.low;
    return {bits, bits};
  }
  if (op == Op::kAnd) {
    if (x.low < 0 && y.low < 0) return bounds_of(type);
    if (x.low < 0) return {0, y.high};
    return {0, y.low < 0 ? x.high : std::min(x.high, y.high)};
  }
  if (x.low < 0 || y.low < 0) return bounds_of(type);
  return {op == Op::kOr ? std::max(x.low, y.low) : 0, all_bits(std::max(x.high, y.high))};
}

Bounds decided(bool is_sure, bool is_impossible) {
  return {is_sure ? 1 : 0, is_impossible ? 0 : 1};
}

Bounds compared(Op op, const Bounds& x, const Bounds& y) {
  if (op == Op::kLtU || op == Op::kLeU) {
    // As unsigned numbers all negative ones come after the others.
    const bool x_splits = x.low < 0 && x.high >= 0, y_splits = y.low < 0 && y.high >= 0;
    if (x_splits || y_splits) return {0, 1};
    if ((x.low < 0) != (y.low < 0)) return decided(y.low < 0, x.low < 0);
  }
  switch (op) {
    case Op::kLtS:
    case Op::kLtU:
      return decided(x.high < y.low, x.low >= y.high);
    case Op::kLeS:
    case Op::kLeU:
      return decided(x.high <= y.low, x.low > y.high);
    default: {
      const bool differ = x.high < y.low || x.low > y.high;
      const bool equal = x.is_one() && y.is_one() && x.low == y.low;
      return op == Op::kEq ? decided(equal, differ) : decided(differ, equal);
    }
  }
}

}  // namespace

Bounds bounds_of(ScalarType type) {
  switch (type) {
    case ScalarType::kBool:
      return {0, 1};
    case ScalarType::kI32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case ScalarType::kI64:
    case ScalarType::kF32:
    case ScalarType::kF64:
      break;
  }
  return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
}

int64_t number(ScalarType type, uint64_t bits) {
  if (type == ScalarType::kBool) return bits != 0 ? 1 : 0;
  return type == ScalarType::kI32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

Bounds bounds_of(const Access& access, ScalarType type) {
  if (access.bytes > 2 || !is_integer(type)) return bounds_of(type);
  const int64_t size = int64_t{1} << (8 * access.bytes);
  return access.is_signed ? Bounds{-size / 2, size / 2 - 1} : Bounds{0, size - 1};
}

Bounds bounds_of(Op op, ScalarType type, std::span<const Bounds> arguments) {
  if (is_float(type)) return bounds_of(type);
  const Bounds& x = arguments[0];
  const Bounds& y = arguments[arguments.size() > 1 ? 1 : 0];
  switch (op) {
    case Op::kAdd:
      return fitting(type, {Wide{x.low} + y.low, Wide{x.high} + y.high});
    case Op::kSub:
      return fitting(type, {Wide{x.low} - y.high, Wide{x.high} - y.low});
    case Op::kMul:
      return fitting(type, {Wide{x.low} * y.low, Wide{x.low} * y.high, Wide{x.high} * y.low,
                            Wide{x.high} * y.high});
    case Op::kDivS:
    case Op::kDivU:
      return quotient(op, type, x, y);
    case Op::kRemS:
    case Op::kRemU:
      return remainder(op, type, x, y);
    case Op::kShl:
    case Op::kShrU:
    case Op::kShrS:
      return shifted(op, type, x, y);
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      return combined(op, type, x, y);
    case Op::kEq:
    case Op::kNe:
    case Op::kLtS:
    case Op::kLeS:
    case Op::kLtU:
    case Op::kLeU:
      return compared(op, x, y);
    case Op::kSelect:
      if (x.is_one()) return arguments[x.low != 0 ? 1 : 2];
      return hull(y, arguments[2]);
    case Op::kSignExtend:
    case Op::kBoolToInt:
      return {x.low, x.high};
    case Op::kZeroExtend:
      return x.low >= 0 ? Bounds{x.low, x.high} : Bounds{0, std::numeric_limits<uint32_t>::max()};
    case Op::kTruncate:
      return fitting(type, {x.low, x.high});
    default:
      return bounds_of(type);
  }
}

}  // namespace hekla::kernel
