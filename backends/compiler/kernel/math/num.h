// SPDX-License-Identifier: Apache-2.0
// Num: a value and its builder, so that expansions read like formulas. For this folder only.
//
// A number next to a Num is a constant of its type. Comparisons give kBool values: `<` and `<=`
// are for floats; integers say less_s or less_u.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "backends/compiler/kernel/builder.h"

namespace hekla::kernel {

struct Num {
  Builder* b;
  Value v;

  Num(Builder& builder, Value value) : b(&builder), v(value) {}
  ScalarType type() const { return b->type(v); }
  // Integer types: a whole number below 2^53.
  Num constant(double value) const {
    return {*b, is_float(type()) ? b->real(type(), value)
                                 : b->integer(type(), static_cast<int64_t>(value))};
  }
  Num integer(int64_t value) const { return {*b, b->integer(type(), value)}; }
};

// clang-format off
inline Num binary(Op op, Num x, Num y) { return {*x.b, x.b->binary(op, x.v, y.v)}; }
inline Num unary(Op op, Num x) { return {*x.b, x.b->unary(op, x.v)}; }
inline Num convert(Op op, ScalarType to, Num x) { return {*x.b, x.b->convert(op, to, x.v)}; }

inline Num operator+(Num x, Num y) { return binary(Op::kAdd, x, y); }
inline Num operator-(Num x, Num y) { return binary(Op::kSub, x, y); }
inline Num operator*(Num x, Num y) { return binary(Op::kMul, x, y); }
inline Num operator/(Num x, Num y) { return binary(Op::kDiv, x, y); }
inline Num operator+(Num x, double y) { return x + x.constant(y); }
inline Num operator-(Num x, double y) { return x - x.constant(y); }
inline Num operator*(Num x, double y) { return x * x.constant(y); }
inline Num operator/(Num x, double y) { return x / x.constant(y); }
inline Num operator+(double x, Num y) { return y.constant(x) + y; }
inline Num operator-(double x, Num y) { return y.constant(x) - y; }
inline Num operator*(double x, Num y) { return y.constant(x) * y; }
inline Num operator/(double x, Num y) { return y.constant(x) / y; }
inline Num operator-(Num x) { return unary(Op::kNeg, x); }

inline Num operator&(Num x, Num y) { return binary(Op::kAnd, x, y); }
inline Num operator|(Num x, Num y) { return binary(Op::kOr, x, y); }
inline Num operator^(Num x, Num y) { return binary(Op::kXor, x, y); }
inline Num operator&(Num x, int64_t y) { return x & x.integer(y); }
inline Num operator|(Num x, int64_t y) { return x | x.integer(y); }
inline Num operator^(Num x, int64_t y) { return x ^ x.integer(y); }
inline Num shl(Num x, int64_t count) { return binary(Op::kShl, x, x.integer(count)); }
inline Num shr_u(Num x, int64_t count) { return binary(Op::kShrU, x, x.integer(count)); }
inline Num shr_s(Num x, int64_t count) { return binary(Op::kShrS, x, x.integer(count)); }
inline Num shl(Num x, Num count) { return binary(Op::kShl, x, count); }
inline Num shr_u(Num x, Num count) { return binary(Op::kShrU, x, count); }
inline Num shr_s(Num x, Num count) { return binary(Op::kShrS, x, count); }
inline Num mul_high(Num x, Num y) { return binary(Op::kMulHighU, x, y); }

inline Num equal(Num x, Num y) { return binary(Op::kEq, x, y); }
inline Num not_equal(Num x, Num y) { return binary(Op::kNe, x, y); }
inline Num equal(Num x, int64_t y) { return equal(x, x.integer(y)); }
inline Num not_equal(Num x, int64_t y) { return not_equal(x, x.integer(y)); }
inline Num operator<(Num x, Num y) { return binary(Op::kLt, x, y); }
inline Num operator<=(Num x, Num y) { return binary(Op::kLe, x, y); }
inline Num operator>(Num x, Num y) { return y < x; }
inline Num operator>=(Num x, Num y) { return y <= x; }
inline Num operator<(Num x, double y) { return x < x.constant(y); }
inline Num operator<=(Num x, double y) { return x <= x.constant(y); }
inline Num operator>(Num x, double y) { return x > x.constant(y); }
inline Num operator>=(Num x, double y) { return x >= x.constant(y); }
inline Num less_s(Num x, Num y) { return binary(Op::kLtS, x, y); }
inline Num less_u(Num x, Num y) { return binary(Op::kLtU, x, y); }
inline Num less_s(Num x, int64_t y) { return less_s(x, x.integer(y)); }
inline Num less_u(Num x, int64_t y) { return less_u(x, x.integer(y)); }
inline Num logical_not(Num x) { return {*x.b, x.b->logical_not(x.v)}; }

inline Num select(Num condition, Num x, Num y) {
  return {*x.b, x.b->select(condition.v, x.v, y.v)};
}
inline Num select(Num condition, Num x, double y) { return select(condition, x, x.constant(y)); }
inline Num select(Num condition, double x, Num y) { return select(condition, y.constant(x), y); }
// x * y + z; rounded once or twice.
inline Num fma(Num x, Num y, Num z) { return {*x.b, x.b->fma(x.v, y.v, z.v)}; }
inline Num fma(Num x, double y, Num z) { return fma(x, x.constant(y), z); }
inline Num fma(Num x, Num y, double z) { return fma(x, y, x.constant(z)); }
inline Num abs(Num x) { return unary(Op::kAbs, x); }
inline Num sqrt(Num x) { return unary(Op::kSqrt, x); }
inline Num is_nan(Num x) { return not_equal(x, x); }
// clang-format on

// The results of `compute` at points where `condition` holds, `otherwise` at others: a loop of one
// or no trip, so that the work is skipped where no point needs it. `compute` gets the values of
// `arguments`, on which all of its work must depend: the rest is done outside.
inline std::vector<Num> when(
    Num condition, const std::vector<Num>& arguments, const std::vector<Num>& otherwise,
    const std::function<std::vector<Num>(const std::vector<Num>& arguments)>& compute) {
  Builder& b = *condition.b;
  std::vector<Value> initial;
  for (const Num& x : arguments) initial.push_back(x.v);
  for (const Num& x : otherwise) initial.push_back(x.v);
  const Num count = convert(Op::kBoolToInt, b.index_type(), condition);
  const std::vector<Value> last =
      b.loop(count.v, initial, [&](Value, const std::vector<Value>& carried) {
        std::vector<Num> inside;
        for (size_t i = 0; i < arguments.size(); ++i) inside.emplace_back(b, carried[i]);
        std::vector<Value> next(carried.begin(), carried.begin() + arguments.size());
        for (const Num& result : compute(inside)) next.push_back(result.v);
        return next;
      });
  std::vector<Num> results;
  for (size_t i = arguments.size(); i < last.size(); ++i) results.emplace_back(b, last[i]);
  return results;
}

// What lies behind a float type: the layout of its bits.
struct FloatLayout {
  ScalarType bits;  // the integer type of the same width
  int width;
  int mantissa;  // stored bits
  int bias;
  int64_t sign_mask;
  int64_t infinity;  // bits of +inf
};
inline FloatLayout layout(ScalarType type) {
  if (type == ScalarType::kF32) return {ScalarType::kI32, 32, 23, 127, 0x80000000, 0x7f800000};
  return {ScalarType::kI64, 64, 52, 1023, std::numeric_limits<int64_t>::min(), 0x7ff0000000000000};
}
inline Num bits_of(Num x) { return convert(Op::kBitcast, layout(x.type()).bits, x); }
inline Num float_of(ScalarType type, Num bits) { return convert(Op::kBitcast, type, bits); }
// The magnitude of `x` with the sign bit of `sign`.
inline Num copy_sign(Num x, Num sign) {
  const FloatLayout f = layout(x.type());
  return float_of(x.type(), (bits_of(x) & ~f.sign_mask) | (bits_of(sign) & f.sign_mask));
}

}  // namespace hekla::kernel
