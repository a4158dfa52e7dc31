// SPDX-License-Identifier: Apache-2.0
// Complex arithmetic by parts.
#include "backends/compiler/kernel/math/functions.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

struct Complex {
  Num re, im;
};

Complex operator+(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
Complex operator-(Complex x, Complex y) { return {x.re - y.re, x.im - y.im}; }
// The textbook formula, without C's repair of infinities, as XLA has it.
Complex operator*(Complex x, Complex y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

Element element(Complex z) { return {z.re.v, z.im.v}; }

Num is_nan(Complex z) { return binary(Op::kOr, is_nan(z.re), is_nan(z.im)); }
Num less(Complex x, Complex y) { return (x.re < y.re) | (equal(x.re, y.re) & (x.im < y.im)); }
Complex select(Num condition, Complex x, Complex y) {
  return {select(condition, x.re, y.re), select(condition, x.im, y.im)};
}

}  // namespace

std::optional<Element> unary_complex(Builder& b, OpCode code, DType dtype, const Element& x) {
  (void)dtype;
  const Complex z{Num(b, x.re), Num(b, x.im)};
  switch (code) {
    case OpCode::kReal:
      return Element{x.re};
    case OpCode::kImag:
      return Element{x.im};
    case OpCode::kNegate:
      return element({-z.re, -z.im});
    default:
      return std::nullopt;
  }
}

std::optional<Element> binary_complex(Builder& b, OpCode code, const Element& x, const Element& y) {
  const Complex p{Num(b, x.re), Num(b, x.im)};
  const Complex q{Num(b, y.re), Num(b, y.im)};
  switch (code) {
    case OpCode::kAdd:
      return element(p + q);
    case OpCode::kSubtract:
      return element(p - q);
    case OpCode::kMultiply:
      return element(p * q);
    case OpCode::kMaximum:
      return element(select(is_nan(p), p, select(is_nan(q), q, select(less(p, q), q, p))));
    case OpCode::kMinimum:
      return element(select(is_nan(p), p, select(is_nan(q), q, select(less(q, p), q, p))));
    default:
      return std::nullopt;
  }
}

}  // namespace hekla::kernel
