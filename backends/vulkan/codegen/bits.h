// SPDX-License-Identifier: Apache-2.0
// Bits: an unsigned integer of 32 or 64 bits in a shader, with C++'s operators, so that algorithms
// on bits read as such. Flag: a boolean. Both name an instruction of one Module; values.
#pragma once

#include "backends/vulkan/codegen/module.h"

namespace hekla::vulkan::codegen {

struct Flag {
  Module* m = nullptr;
  spv::Id id = 0;
};

class Bits {
 public:
  Bits() = default;
  Bits(Module* m, int width, spv::Id id) : m_(m), id_(id), width_(width) {}
  static Bits constant(Module& m, int width, uint64_t value) {
    return {&m, width, m.uint_constant(width, value)};
  }

  Module& module() const { return *m_; }
  spv::Id id() const { return id_; }
  int width() const { return width_; }
  Bits like(uint64_t value) const { return constant(*m_, width_, value); }
  Bits op(spv::Op opcode, Bits b) const {
    return {m_, width_, m_->op(opcode, m_->uint_type(width_), {id_, b.id_})};
  }
  Flag compare(spv::Op opcode, Bits b) const {
    return {m_, m_->op(opcode, m_->boolean_type(), {id_, b.id_})};
  }
  // Zero-extended or cut.
  Bits resized(int width) const {
    if (width == width_) return *this;
    return {m_, width, m_->op(spv::OpUConvert, m_->uint_type(width), {id_})};
  }
  // Arithmetic shift.
  Bits shifted_right_signed(Bits count) const { return op(spv::OpShiftRightArithmetic, count); }

 private:
  Module* m_ = nullptr;
  spv::Id id_ = 0;
  int width_ = 32;
};

#define HEKLA_BITS_OPERATOR(symbol, opcode)                               \
  inline Bits operator symbol(Bits a, Bits b) { return a.op(opcode, b); } \
  inline Bits operator symbol(Bits a, uint64_t b) { return a.op(opcode, a.like(b)); }
HEKLA_BITS_OPERATOR(+, spv::OpIAdd)
HEKLA_BITS_OPERATOR(-, spv::OpISub)
HEKLA_BITS_OPERATOR(*, spv::OpIMul)
HEKLA_BITS_OPERATOR(/, spv::OpUDiv)
HEKLA_BITS_OPERATOR(&, spv::OpBitwiseAnd)
HEKLA_BITS_OPERATOR(|, spv::OpBitwiseOr)
HEKLA_BITS_OPERATOR(^, spv::OpBitwiseXor)
HEKLA_BITS_OPERATOR(<<, spv::OpShiftLeftLogical)
HEKLA_BITS_OPERATOR(>>, spv::OpShiftRightLogical)
#undef HEKLA_BITS_OPERATOR

#define HEKLA_BITS_COMPARISON(symbol, opcode)                                  \
  inline Flag operator symbol(Bits a, Bits b) { return a.compare(opcode, b); } \
  inline Flag operator symbol(Bits a, uint64_t b) { return a.compare(opcode, a.like(b)); }
HEKLA_BITS_COMPARISON(==, spv::OpIEqual)
HEKLA_BITS_COMPARISON(!=, spv::OpINotEqual)
HEKLA_BITS_COMPARISON(<, spv::OpULessThan)
HEKLA_BITS_COMPARISON(<=, spv::OpULessThanEqual)
HEKLA_BITS_COMPARISON(>, spv::OpUGreaterThan)
HEKLA_BITS_COMPARISON(>=, spv::OpUGreaterThanEqual)
#undef HEKLA_BITS_COMPARISON

inline Flag less_signed(Bits a, Bits b) { return a.compare(spv::OpSLessThan, b); }
inline Flag operator&(Flag a, Flag b) {
  return {a.m, a.m->op(spv::OpLogicalAnd, a.m->boolean_type(), {a.id, b.id})};
}
inline Flag operator|(Flag a, Flag b) {
  return {a.m, a.m->op(spv::OpLogicalOr, a.m->boolean_type(), {a.id, b.id})};
}
inline Flag operator!(Flag a) {
  return {a.m, a.m->op(spv::OpLogicalNot, a.m->boolean_type(), {a.id})};
}
inline Bits select(Flag condition, Bits a, Bits b) {
  Module& m = a.module();
  return {&m, a.width(),
          m.op(spv::OpSelect, m.uint_type(a.width()), {condition.id, a.id(), b.id()})};
}
inline Bits select(Flag condition, Bits a, uint64_t b) { return select(condition, a, a.like(b)); }
inline Bits select(Flag condition, uint64_t a, Bits b) { return select(condition, b.like(a), b); }

// 0 or 1.
inline Bits number(Flag flag, int width) {
  Module& m = *flag.m;
  return select(flag, Bits::constant(m, width, 1), Bits::constant(m, width, 0));
}

}  // namespace hekla::vulkan::codegen
