// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/testing/random_parts.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "backends/compiler/kernel/testing/random_kernel.h"

namespace hekla::kernel::testing {

uint64_t Random::bits(ScalarType type) {
  switch (type) {
    case ScalarType::kBool:
      return below(2);
    case ScalarType::kI32:
      return (chance(50) ? below(200) - 100 : next()) & 0xffffffff;
    case ScalarType::kI64:
      return chance(50) ? below(200) - 100 : next();
    case ScalarType::kF32:
    case ScalarType::kF64:
      break;
  }
  if (chance(10)) return type == ScalarType::kF32 ? next() & 0xffffffff : next();
  // Within [-8, 8), a multiple of 2^-49.
  const double value = static_cast<double>(static_cast<int64_t>(next()) >> 11) * 0x1p-49;
  return type == ScalarType::kF32 ? std::bit_cast<uint32_t>(static_cast<float>(value))
                                  : std::bit_cast<uint64_t>(value);
}

bool is_allowed(Op op, ScalarType to, ScalarType from) {
  const bool boolean = from == ScalarType::kBool;
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
      return to == from && !boolean;
    case Op::kMulHighU:
    case Op::kDivS:
    case Op::kDivU:
    case Op::kRemS:
    case Op::kRemU:
    case Op::kShl:
    case Op::kShrU:
    case Op::kShrS:
      return to == from && is_integer(from);
    case Op::kDiv:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kFma:
    case Op::kSqrt:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRoundEven:
      return to == from && is_float(from);
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      return to == from && !is_float(from);
    case Op::kEq:
    case Op::kNe:
      return to == ScalarType::kBool;
    case Op::kLt:
    case Op::kLe:
      return to == ScalarType::kBool && is_float(from);
    case Op::kLtS:
    case Op::kLeS:
    case Op::kLtU:
    case Op::kLeU:
      return to == ScalarType::kBool && is_integer(from);
    case Op::kSelect:
      return to == from;
    case Op::kSignExtend:
    case Op::kZeroExtend:
      return from == ScalarType::kI32 && to == ScalarType::kI64;
    case Op::kTruncate:
      return from == ScalarType::kI64 && to == ScalarType::kI32;
    case Op::kBoolToInt:
      return boolean && is_integer(to);
    case Op::kSIntToFloat:
    case Op::kUIntToFloat:
      return is_integer(from) && is_float(to);
    case Op::kFloatToSInt:
    case Op::kFloatToUInt:
      return is_float(from) && is_integer(to);
    case Op::kFloatResize:
      return is_float(from) && is_float(to) && from != to;
    case Op::kHalfToFloat:
      return from == ScalarType::kI32 && to == ScalarType::kF32;
    case Op::kFloatToHalf:
      return from == ScalarType::kF32 && to == ScalarType::kI32;
    case Op::kBitcast:
      return bit_width(from) == bit_width(to) && is_float(from) != is_float(to);
    default:
      return false;
  }
}

Value safe_divisor(Builder& b, Value v) {
  const ScalarType t = b.type(v);
  const Value is_bad =
      b.bit_or(b.binary(Op::kEq, v, b.integer(t, 0)), b.binary(Op::kEq, v, b.integer(t, -1)));
  return b.select(is_bad, b.integer(t, 3), v);
}

Value fitting(Builder& b, Op op, ScalarType to, Value v) {
  const ScalarType t = b.type(v);
  const bool is_signed = op == Op::kFloatToSInt;
  const double high = std::ldexp(1.0, bit_width(to) - (is_signed ? 1 : 0));
  const Value below = b.binary(Op::kLt, v, b.real(t, high));
  const Value above =
      is_signed ? b.binary(Op::kLe, b.real(t, -high), v) : b.binary(Op::kLt, b.real(t, -1), v);
  return b.select(b.bit_and(below, above), v, b.real(t, 0));
}

void append_bits(std::vector<std::byte>* memory, uint64_t bits, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) memory->push_back(static_cast<std::byte>(bits >> (8 * i)));
}

bool is_nan(ScalarType type, uint64_t bits) {
  if (type == ScalarType::kF32)
    return std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return type == ScalarType::kF64 && std::isnan(std::bit_cast<double>(bits));
}

std::string show(ScalarType type, uint64_t bits) {
  switch (type) {
    case ScalarType::kF32:
      return fmt::format("{} ({:#x})", std::bit_cast<float>(static_cast<uint32_t>(bits)), bits);
    case ScalarType::kF64:
      return fmt::format("{} ({:#x})", std::bit_cast<double>(bits), bits);
    case ScalarType::kI64:
      return fmt::format("{} ({:#x})", static_cast<int64_t>(bits), bits);
    case ScalarType::kBool:
    case ScalarType::kI32:
      break;
  }
  return fmt::format("{} ({:#x})", static_cast<int32_t>(bits), bits);
}

}  // namespace hekla::kernel::testing
