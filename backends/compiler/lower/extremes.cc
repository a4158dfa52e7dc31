// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/extremes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;

namespace {

// Bits are compared as they lie in memory, or as those of f32.
bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

}  // namespace

std::optional<Extremes> Extremes::of(const ir::Block& reducer, DType dtype) {
  if (!is_float(dtype) || kernel::scalar_type(dtype) != kernel::ScalarType::kF32) {
    return std::nullopt;
  }
  const auto& ops = reducer.operations();
  if (ops.size() != 2 || reducer.argument_count() != 2) return std::nullopt;
  const ir::Operation& made = *ops[0];
  if (made.code() != OpCode::kMaximum && made.code() != OpCode::kMinimum) return std::nullopt;
  const ir::Value *x = reducer.argument(0), *y = reducer.argument(1);
  const ir::Value *p = made.operand(0), *q = made.operand(1);
  const bool is_of_both = (p == x && q == y) || (p == y && q == x);
  if (!is_of_both || ops[1]->operand_count() != 1 || ops[1]->operand(0) != made.result()) {
    return std::nullopt;
  }
  return Extremes(made.code(), dtype);
}

// As a signed number.
Value Extremes::bits(Builder& b, const Element& x) const {
  if (!is_half(dtype_)) return b.convert(Op::kBitcast, kernel::ScalarType::kI32, x.re);
  const Value all = kernel::element_bits(b, dtype_, x);
  const Value unused = b.integer(kernel::ScalarType::kI32, 16);
  return b.binary(Op::kShrS, b.binary(Op::kShl, all, unused), unused);
}

Elements Extremes::start(Builder& b, const Element& x) const {
  return Elements(kStates, Element{bits(b, x)});
}

Elements Extremes::add(Builder& b, std::span<const Element> state, const Element& x) const {
  const Value here = bits(b, x);
  const auto choose = [&](Op less, Value smaller, Value greater, Value otherwise) {
    return Element{b.select(b.binary(less, smaller, greater), here, otherwise)};
  };
  const Value greatest = state[0].re, low = state[1].re, high = state[2].re;
  return {choose(Op::kLtS, greatest, here, greatest), choose(Op::kLtU, here, low, low),
          choose(Op::kLtU, high, here, high)};
}

Element Extremes::result(Builder& b, std::span<const Element> state) const {
  const Value greatest = state[0].re, low = state[1].re, high = state[2].re;
  const auto integer = [&](int64_t x) { return b.integer(kernel::ScalarType::kI32, x); };
  int64_t infinity = 0x7f800000;
  if (dtype_ == DType::kBF16) infinity = 0x7f80;
  if (dtype_ == DType::kF16) infinity = 0x7c00;
  // Of the negative numbers, extended, the one that no other is above as an unsigned number.
  const int64_t least = is_half(dtype_) ? infinity - 0x8000 : infinity - 0x80000000;
  const Value is_nan = b.binary(Op::kOr, b.binary(Op::kLtS, integer(infinity), greatest),
                                b.binary(Op::kLtU, integer(least), high));
  Value best = kernel::kNoValue;
  if (code_ == OpCode::kMaximum) {
    best = b.select(b.binary(Op::kLtS, greatest, integer(0)), low, greatest);
  } else {
    best = b.select(b.binary(Op::kLtS, high, integer(0)), high, low);
  }
  const int64_t quiet = infinity | infinity >> 1;
  best = b.select(is_nan, integer(quiet), best);
  if (!is_half(dtype_)) return {b.convert(Op::kBitcast, kernel::ScalarType::kF32, best)};
  return kernel::element_from_bits(b, dtype_, b.binary(Op::kAnd, best, integer(0xffff)));
}

}  // namespace hekla::lower
