// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/lower.h"

#include <bit>

#include "backends/vulkan/codegen/exact.h"

namespace hekla::vulkan::codegen {
namespace {

using kernel::is_float;
using kernel::Op;
using kernel::ScalarType;

Bits bits_of(Module& m, ScalarType type, spv::Id value) {
  const int width = kernel::bit_width(type);
  if (!is_float(type)) return {&m, width, value};
  return {&m, width, m.op(spv::OpBitcast, m.uint_type(width), {value})};
}

spv::Id from_bits(ScalarType type, Bits bits) {
  Module& m = bits.module();
  return is_float(type) ? m.op(spv::OpBitcast, m.type(type), {bits.id()}) : bits.id();
}

// An f64 as two words, the lower first, for devices without 64-bit integers.
spv::Id as_words(Module& m, spv::Id value) {
  return m.op(spv::OpBitcast, m.vector_type(m.uint_type(32), 2), {value});
}
Bits half(Module& m, spv::Id value, unsigned which) {
  return {&m, 32, m.builder().createCompositeExtract(as_words(m, value), m.uint_type(32), which)};
}
spv::Id with_half(Module& m, spv::Id value, unsigned which, Bits word) {
  const spv::Id words = m.vector_type(m.uint_type(32), 2);
  const spv::Id changed =
      m.builder().createCompositeInsert(word.id(), as_words(m, value), words, which);
  return m.op(spv::OpBitcast, m.type(ScalarType::kF64), {changed});
}

// Flips or clears the sign bit. Not OpFNegate: it may flush denormals and need not flip a NaN's.
spv::Id change_sign(Module& m, Op op, ScalarType type, spv::Id a) {
  auto change = [&](Bits high, uint64_t sign) {
    return op == Op::kNeg ? high ^ sign : high & (sign - 1);
  };
  if (type == ScalarType::kF32 || m.target().int64) {
    const uint64_t sign = uint64_t{1} << (kernel::bit_width(type) - 1);
    return from_bits(type, change(bits_of(m, type, a), sign));
  }
  return with_half(m, a, 1, change(half(m, a, 1), 0x80000000));
}

Bits multiply_high(Bits a, Bits b) {
  Module& m = a.module();
  if (a.width() == 32) {
    const spv::Id word = m.uint_type(32);
    const spv::Id pair =
        m.op(spv::OpUMulExtended, m.builder().makeStructResultType(word, word), {a.id(), b.id()});
    return {&m, 32, m.builder().createCompositeExtract(pair, word, 1)};
  }
  // By halves; no partial sum overflows.
  constexpr uint64_t kLow = 0xffffffff;
  const Bits a0 = a & kLow, a1 = a >> 32, b0 = b & kLow, b1 = b >> 32;
  const Bits middle = a1 * b0 + (a0 * b0 >> 32);
  const Bits cross = a0 * b1 + (middle & kLow);
  return a1 * b1 + (middle >> 32) + (cross >> 32);
}

spv::Id lower_bool(Module& m, Op op, spv::Id a, spv::Id b) {
  switch (op) {
    case Op::kAnd:
      return m.op(spv::OpLogicalAnd, m.boolean_type(), {a, b});
    case Op::kOr:
      return m.op(spv::OpLogicalOr, m.boolean_type(), {a, b});
    case Op::kEq:
      return m.op(spv::OpLogicalEqual, m.boolean_type(), {a, b});
    default:  // kXor, kNe
      return m.op(spv::OpLogicalNotEqual, m.boolean_type(), {a, b});
  }
}

spv::Id lower_integer(Module& m, Op op, Bits a, Bits b) {
  switch (op) {
    case Op::kAdd:
      return (a + b).id();
    case Op::kSub:
      return (a - b).id();
    case Op::kMul:
      return (a * b).id();
    case Op::kMulHighU:
      return multiply_high(a, b).id();
    case Op::kDivS:
      return a.op(spv::OpSDiv, b).id();
    case Op::kDivU:
      return (a / b).id();
    case Op::kRemS:
      // OpSRem of negative numbers has no defined value in Vulkan.
      return (a - a.op(spv::OpSDiv, b) * b).id();
    case Op::kRemU:
      return a.op(spv::OpUMod, b).id();
    case Op::kAnd:
      return (a & b).id();
    case Op::kOr:
      return (a | b).id();
    case Op::kXor:
      return (a ^ b).id();
    case Op::kShl:
      return (a << b).id();
    case Op::kShrU:
      return (a >> b).id();
    case Op::kShrS:
      return a.shifted_right_signed(b).id();
    case Op::kEq:
      return (a == b).id;
    case Op::kNe:
      return (a != b).id;
    case Op::kLtS:
      return less_signed(a, b).id;
    case Op::kLeS:
      return a.compare(spv::OpSLessThanEqual, b).id;
    case Op::kLtU:
      return (a < b).id;
    case Op::kLeU:
      return (a <= b).id;
    default:
      return m.constant(a.width() == 32 ? ScalarType::kI32 : ScalarType::kI64, 0);
  }
}

spv::Id lower_rounding(Module& m, Op op, ScalarType type, spv::Id a) {
  if (!m.floats(type).exact_rounding) {
    return from_bits(type, exact_round(op, type, bits_of(m, type, a)));
  }
  const GLSLstd450 function = op == Op::kFloor   ? GLSLstd450Floor
                              : op == Op::kCeil  ? GLSLstd450Ceil
                              : op == Op::kTrunc ? GLSLstd450Trunc
                                                 : GLSLstd450RoundEven;
  return m.float_extended(function, m.type(type), {a});
}

spv::Id lower_float(Module& m, Op op, ScalarType type, std::span<const spv::Id> v) {
  const FloatTarget& target = m.floats(type);
  auto arithmetic = [&](spv::Op opcode) { return m.float_op(opcode, m.type(type), {v[0], v[1]}); };
  auto compare = [&](spv::Op opcode) { return m.op(opcode, m.boolean_type(), {v[0], v[1]}); };
  switch (op) {
    case Op::kAdd:
      return arithmetic(spv::OpFAdd);
    case Op::kSub:
      return arithmetic(spv::OpFSub);
    case Op::kMul:
      return arithmetic(spv::OpFMul);
    case Op::kDiv:
      if (target.exact_division) return arithmetic(spv::OpFDiv);
      return from_bits(type, exact_divide(type, bits_of(m, type, v[0]), bits_of(m, type, v[1])));
    case Op::kSqrt:
      if (target.exact_square_root) return m.float_extended(GLSLstd450Sqrt, m.type(type), {v[0]});
      return from_bits(type, exact_square_root(type, bits_of(m, type, v[0])));
    case Op::kNeg:
    case Op::kAbs:
      return change_sign(m, op, type, v[0]);
    case Op::kFma:
      return m.float_extended(GLSLstd450Fma, m.type(type), {v[0], v[1], v[2]});
    case Op::kEq:
      return compare(spv::OpFOrdEqual);
    case Op::kNe:
      return compare(spv::OpFUnordNotEqual);
    case Op::kLt:
      return compare(spv::OpFOrdLessThan);
    case Op::kLe:
      return compare(spv::OpFOrdLessThanEqual);
    default:
      return lower_rounding(m, op, type, v[0]);
  }
}

// By way of signed integers. The last bit of a half is set where a bit was lost, so that it is
// rounded as the whole; twice a float is exact.
spv::Id unsigned_to_float(Module& m, Bits x) {
  const Flag is_long = (x >> 31) != 0;
  const Bits signed_part = select(is_long, (x >> 1) | (x & 1), x);
  const spv::Id type = m.float_type(32);
  const spv::Id part = m.float_op(spv::OpConvertSToF, type, {signed_part.id()});
  const auto real = [&](float value) {
    return m.constant(ScalarType::kF32, std::bit_cast<uint32_t>(value));
  };
  const spv::Id factor = m.op(spv::OpSelect, type, {is_long.id, real(2), real(1)});
  return m.float_op(spv::OpFMul, type, {part, factor});
}

}  // namespace

Bits low_word(Module& m, ScalarType type, spv::Id value) {
  if (type == ScalarType::kF64 && !m.target().int64) return half(m, value, 0);
  return bits_of(m, type, value).resized(32);
}

namespace {

template <typename Combine>
spv::Id with_low_word(Module& m, ScalarType type, spv::Id value, Bits word,
                      const Combine& combine) {
  if (type == ScalarType::kF64 && !m.target().int64) {
    return with_half(m, value, 0, combine(half(m, value, 0), word));
  }
  const Bits bits = bits_of(m, type, value);
  return from_bits(type, combine(bits, word.resized(bits.width())));
}

}  // namespace

spv::Id or_low_word(Module& m, ScalarType type, spv::Id value, Bits word) {
  return with_low_word(m, type, value, word, [](Bits a, Bits b) { return a | b; });
}

spv::Id add_low_word(Module& m, ScalarType type, spv::Id value, Bits word) {
  return with_low_word(m, type, value, word, [](Bits a, Bits b) { return a + b; });
}

spv::Id shuffle(Module& m, ScalarType type, spv::Id value, Bits lane) {
  if (type == ScalarType::kBool) {
    const Bits word = number({&m, value}, 32);
    return (Bits{&m, 32, shuffle(m, ScalarType::kI32, word.id(), lane)} != 0).id;
  }
  const spv::Id scope = m.uint_constant(32, spv::ScopeSubgroup);
  if (kernel::bit_width(type) == 32) {
    return m.op(spv::OpGroupNonUniformShuffle, m.type(type), {scope, value, lane.id()});
  }
  // By words: subgroup operations on 64-bit integers are a feature of their own.
  const spv::Id halves = m.op(spv::OpGroupNonUniformShuffle, m.vector_type(m.uint_type(32), 2),
                              {scope, as_words(m, value), lane.id()});
  return m.op(spv::OpBitcast, m.type(type), {halves});
}

spv::Id lower(Module& m, Op op, ScalarType type, ScalarType from, std::span<const spv::Id> v) {
  switch (op) {
    case Op::kSelect: {
      // Of bits: the rules that keep NaN and denormals do not cover OpSelect of floats.
      if (!is_float(type) || (type == ScalarType::kF64 && !m.target().int64)) {
        return m.op(spv::OpSelect, m.type(type), {v[0], v[1], v[2]});
      }
      const Flag condition{&m, v[0]};
      return from_bits(type, select(condition, bits_of(m, type, v[1]), bits_of(m, type, v[2])));
    }
    case Op::kSignExtend: {
      // By shifts: Mesa 22.3 takes a signed comparison of a constant with a value that OpSConvert
      // widened for one of 32 bits without sign.
      const Bits wide{&m, 64, m.op(spv::OpUConvert, m.type(type), {v[0]})};
      return (wide << 32).shifted_right_signed(wide.like(32)).id();
    }
    case Op::kZeroExtend:
    case Op::kTruncate:
      return m.op(spv::OpUConvert, m.type(type), {v[0]});
    case Op::kBoolToInt:
      return number({&m, v[0]}, kernel::bit_width(type)).id();
    case Op::kSIntToFloat:
      return m.float_op(spv::OpConvertSToF, m.type(type), {v[0]});
    case Op::kUIntToFloat:
      if (type == ScalarType::kF32 && from == ScalarType::kI32 &&
          !m.target().exact_unsigned_to_float) {
        return unsigned_to_float(m, {&m, 32, v[0]});
      }
      return m.float_op(spv::OpConvertUToF, m.type(type), {v[0]});
    case Op::kFloatToSInt:
      return m.float_op(spv::OpConvertFToS, m.type(type), {v[0]});
    case Op::kFloatToUInt:
      return m.float_op(spv::OpConvertFToU, m.type(type), {v[0]});
    case Op::kFloatResize:
      return m.float_op(spv::OpFConvert, m.type(type), {v[0]});
    case Op::kBitcast:
      return m.op(spv::OpBitcast, m.type(type), {v[0]});
    case Op::kHalfToFloat:
    case Op::kFloatToHalf:
      // As another operation it would be wrong on devices that few tests have.
      die_of_bad_result(internal_error("{} is left where it is emulated", kernel::op_name(op)));
    default:
      break;
  }
  if (from == ScalarType::kBool) return lower_bool(m, op, v[0], v.size() > 1 ? v[1] : v[0]);
  if (is_float(from)) return lower_float(m, op, from, v);
  const int width = kernel::bit_width(from);
  return lower_integer(m, op, {&m, width, v[0]}, {&m, width, v.size() > 1 ? v[1] : v[0]});
}

}  // namespace hekla::vulkan::codegen
