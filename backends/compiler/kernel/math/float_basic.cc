// SPDX-License-Identifier: Apache-2.0
// The float operations that have one right answer: minimum and maximum, rounding, remainder.
#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/polynomial.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

// Equal values have equal bits, but for zeros: AND keeps -0 only where both are, OR where one is.
enum class Zeros : uint8_t { kPositive, kNegative };
Num merge_equal(Zeros prefer, Num x, Num y) {
  const Op op = prefer == Zeros::kPositive ? Op::kAnd : Op::kOr;
  const Num x_bits = bits_of(x);  // first: compilers differ in which argument they evaluate first
  return float_of(x.type(), binary(op, x_bits, bits_of(y)));
}

Num round_half_away(Num x) {
  // The difference is exact. Infinities give NaN there and stay.
  const Num whole = unary(Op::kTrunc, x);
  return select(abs(x - whole) >= 0.5, whole + copy_sign(x.constant(1), x), whole);
}

Num sign(Num x) {
  const Num one = copy_sign(x.constant(1), x);
  return select(abs(x) > 0.0, one, x);  // zeros and NaN stay
}

// A positive number as mantissa * 2^exponent with the mantissa's top bit at its normal place.
struct Parts {
  Num mantissa;  // integers
  Num exponent;  // biased, of the mantissa's top bit; below 1 for subnormals
};
Parts take_apart(Num magnitude) {
  const FloatLayout f = layout(magnitude.type());
  // Subnormals: their bits as an integer are converted exactly, which normalizes them.
  const Num bits = bits_of(magnitude);
  const int64_t hidden = int64_t{1} << f.mantissa;
  const Num scaled = bits_of(convert(Op::kSIntToFloat, magnitude.type(), bits));
  const Num is_small = less_s(bits, hidden);
  const Num field = select(is_small, scaled, bits);
  const Num exponent = shr_u(field, f.mantissa);
  // The value is bits * 2^(1 - bias - mantissa), and `scaled` has the exponent of `bits` itself.
  const Num shift =
      select(is_small, exponent.integer(1 - f.bias - f.mantissa), exponent.integer(0));
  return {(field & (hidden - 1)) | hidden, exponent + shift};
}

}  // namespace

Num maximum(Num x, Num y) {
  Num result = select(x < y, y, x);
  const Num is_equal = equal(x, y);  // before merge_equal's operations, as above
  result = select(is_equal, merge_equal(Zeros::kPositive, x, y), result);
  return select(is_nan(y), y, result);
}

Num minimum(Num x, Num y) {
  Num result = select(y < x, y, x);
  const Num is_equal = equal(x, y);  // before merge_equal's operations, as above
  result = select(is_equal, merge_equal(Zeros::kNegative, x, y), result);
  return select(is_nan(y), y, result);
}

Num is_finite(Num x) {
  const FloatLayout f = layout(x.type());
  return less_s(bits_of(x) & ~f.sign_mask, f.infinity);
}

// Long division of the mantissas, some bits a step: exact, and as long as the quotient is.
Num remainder(Num x, Num y) {
  Builder& b = *x.b;
  const ScalarType type = x.type();
  const FloatLayout f = layout(type);
  const Num ax = abs(x);
  const Num ay = abs(y);
  const Num is_proper = binary(Op::kAnd, is_finite(x), ay > 0.0);
  const Num is_long = binary(Op::kAnd, binary(Op::kAnd, is_proper, is_finite(y)), ax >= ay);
  // Anything in place of arguments that take another way out.
  const Parts n = take_apart(select(is_long, ax, 1.0));
  const Parts d = take_apart(select(is_long, ay, 1.0));

  const int step = f.width - f.mantissa - 1;  // 8 or 11
  const Num reciprocal = 1.0 / convert(Op::kSIntToFloat, type, d.mantissa);
  // r < divisor on entry and exit. The estimate of the quotient, below 2^12, is off by one at most.
  const auto divide = [&](Num r, Num divisor, Num inverse) {
    const Num estimate = unary(Op::kTrunc, convert(Op::kUIntToFloat, type, r) * inverse);
    const Num quotient = convert(Op::kFloatToSInt, f.bits, estimate);
    r = r - quotient * divisor;
    r = select(less_s(r, 0), r + divisor, r);
    return select(less_s(r, divisor), r, r - divisor);
  };
  const Num first = divide(n.mantissa, d.mantissa, reciprocal);
  const Num shift = n.exponent - d.exponent;
  Num count = binary(Op::kDivU, shift + static_cast<double>(step - 1), shift.integer(step));
  if (b.index_type() != f.bits) {
    count = convert(f.bits == ScalarType::kI32 ? Op::kSignExtend : Op::kTruncate, b.index_type(),
                    count);
  }
  const auto results = b.loop(
      count.v, {first.v, shift.v},
      [&](Value, const std::vector<Value>& carried) -> std::vector<Value> {
        const Num r(b, carried[0]), left(b, carried[1]);
        const Num count = select(less_s(left, step), left, left.integer(step));
        return {divide(binary(Op::kShl, r, count), d.mantissa, reciprocal).v, (left - count).v};
      });
  const Num r(b, results[0]);

  // r * 2^(exponent - bias - mantissa), exact, in three factors of which none leaves the normal
  // range: the exponent goes from below -bias to bias.
  const Num scale = d.exponent - static_cast<double>(f.bias + f.mantissa);
  const Num half = shr_s(scale, 1);
  const auto power = [&](Num e) {
    return float_of(type, shl(e + static_cast<double>(f.bias), f.mantissa));
  };
  const Num value = convert(Op::kSIntToFloat, type, r) * power(half) * power(scale - half);
  const Num result = select(is_long, copy_sign(value, x), x);
  const Num nan = quiet_nan(type, b);
  return select(binary(Op::kOr, is_nan(x), is_nan(y)), x + y, select(is_proper, result, nan));
}

std::optional<Num> unary_float(OpCode code, Num x) {
  switch (code) {
    case OpCode::kAbs:
      return abs(x);
    case OpCode::kNegate:
      return -x;
    case OpCode::kCeil:
      return unary(Op::kCeil, x);
    case OpCode::kFloor:
      return unary(Op::kFloor, x);
    case OpCode::kSqrt:
      return sqrt(x);
    case OpCode::kRoundNearestEven:
      return unary(Op::kRoundEven, x);
    case OpCode::kRoundNearestAfz:
      return round_half_away(x);
    case OpCode::kSign:
      return sign(x);
    case OpCode::kReal:
      return x;
    case OpCode::kImag:
      return x.constant(0);
    case OpCode::kExponential:
      return exp(x);
    case OpCode::kExponentialMinusOne:
      return expm1(x);
    case OpCode::kLog:
      return log(x);
    case OpCode::kLogPlusOne:
      return log1p(x);
    case OpCode::kTanh:
      return tanh(x);
    case OpCode::kLogistic:
      return logistic(x);
    case OpCode::kRsqrt:
      return rsqrt(x);
    case OpCode::kSine:
      return sin(x);
    case OpCode::kCosine:
      return cos(x);
    case OpCode::kTan:
      return tan(x);
    case OpCode::kCbrt:
      return cbrt(x);
    default:
      return std::nullopt;
  }
}

std::optional<Num> binary_float(OpCode code, Num x, Num y) {
  switch (code) {
    case OpCode::kAdd:
      return x + y;
    case OpCode::kSubtract:
      return x - y;
    case OpCode::kMultiply:
      return x * y;
    case OpCode::kDivide:
      return x / y;
    case OpCode::kMaximum:
      return maximum(x, y);
    case OpCode::kMinimum:
      return minimum(x, y);
    case OpCode::kRemainder:
      return remainder(x, y);
    case OpCode::kPower:
      return pow(x, y);
    case OpCode::kAtan2:
      return atan2(x, y);
    default:
      return std::nullopt;
  }
}

}  // namespace hekla::kernel
