// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/exact.h"

#include <bit>

namespace hekla::vulkan::codegen {
namespace {

using kernel::Op;
using kernel::ScalarType;

// The parts of an IEEE format.
struct Format {
  explicit Format(ScalarType type)
      : type(type),
        width(type == ScalarType::kF32 ? 32 : 64),
        mantissa(type == ScalarType::kF32 ? 23 : 52),
        bias(type == ScalarType::kF32 ? 127 : 1023),
        max_exponent(2 * bias + 1),
        sign(uint64_t{1} << (width - 1)),
        hidden(uint64_t{1} << mantissa),
        infinity(max_exponent << mantissa),
        nan(sign | infinity | hidden >> 1) {}
  ScalarType type;
  int width;
  uint64_t mantissa;  // stored bits
  uint64_t bias;
  uint64_t max_exponent;
  uint64_t sign;
  uint64_t hidden;
  uint64_t infinity;
  // With the sign that x86 processors give a new one, which f4 and f6 store as that of a zero.
  uint64_t nan;
};

// Position of the highest one; -1 for 0.
Bits highest_bit(Bits x) {
  Module& m = x.module();
  auto find = [&](Bits half) {
    return Bits(&m, 32, m.extended(GLSLstd450FindUMsb, m.uint_type(32), {half.id()}));
  };
  if (x.width() == 32) return find(x);
  const Bits high = (x >> 32).resized(32);
  const Bits position = select(high == 0, find(x.resized(32)), find(high) + 32);
  return {&m, 64, m.op(spv::OpSConvert, m.uint_type(64), {position.id()})};
}

// |value| = mantissa * 2^(exponent - bias - F.mantissa), mantissa in [hidden, 2 * hidden), also of
// denormals. Not for 0, infinity and NaN.
struct Unpacked {
  Bits mantissa;
  Bits exponent;  // two's complement
};

Unpacked unpack(const Format& f, Bits magnitude) {
  const Bits raw = magnitude >> f.mantissa;
  const Bits fraction = magnitude & (f.hidden - 1);
  const Flag is_denormal = raw == 0;
  const Bits shift = fraction.like(f.mantissa) - highest_bit(fraction);
  // The hidden bit of 0 is wrong, and keeps what is computed in vain among ordinary numbers.
  return {fraction << select(is_denormal, shift, 0) | f.hidden,
          select(is_denormal, shift.like(1) - shift, raw)};
}

// The magnitude 2^(exponent - bias) * (significand + something below 1) / (2 * hidden), rounded to
// nearest even. significand is in [2 * hidden, 4 * hidden); `has_rest`: something is not 0.
Bits pack(const Format& f, Bits significand, Flag has_rest, Bits exponent) {
  const Bits one = exponent.like(1);
  const Flag is_denormal = less_signed(exponent, one);
  Bits n = significand << 1 | number(has_rest, f.width);
  const Bits most = one.like(f.mantissa + 3);
  Bits shift = one - exponent;
  shift = select(shift < most, shift, most);
  shift = select(is_denormal, shift, 0);
  const Bits lost = n & ((one << shift) - 1);
  n = n >> shift | number(lost != 0, f.width);
  const Bits whole = n >> 2;
  const Bits rounded = whole + (n >> 1 & 1 & (n | whole));
  // Adding carries the hidden bit, and a carry of the rounding, into the exponent.
  const Bits result = rounded + select(is_denormal, one.like(0), (exponent - 1) << f.mantissa);
  const Flag overflows = less_signed(one.like(f.max_exponent - 1), exponent);
  return select(overflows, f.infinity, result);
}

// Floats that estimate: operations of the device on ordinary numbers.
struct Estimate {
  Module& m;
  spv::Id type;
  const Format& f;
  spv::Id op(spv::Op opcode, spv::Id a, spv::Id b) { return m.float_op(opcode, type, {a, b}); }
  spv::Id of_unsigned(Bits x) { return m.float_op(spv::OpConvertUToF, type, {x.id()}); }
  spv::Id of_signed(Bits x) { return m.float_op(spv::OpConvertSToF, type, {x.id()}); }
  spv::Id value(double v) {
    return m.constant(f.type, f.width == 32 ? std::bit_cast<uint32_t>(static_cast<float>(v))
                                            : std::bit_cast<uint64_t>(v));
  }
  spv::Id power_of_two(int64_t exponent) {
    return m.constant(f.type, (static_cast<uint64_t>(exponent) + f.bias) << f.mantissa);
  }
  Bits to_signed(spv::Id x) {
    return {&m, f.width, m.float_op(spv::OpConvertFToS, m.uint_type(f.width), {x})};
  }
};

Estimate estimate(const Format& f, Module& m) { return {m, m.type(f.type), f}; }

Bits divide_by_integers(ScalarType type, Bits a, Bits b) {
  const Format f(type);
  Module& m = a.module();
  const Bits sign = (a ^ b) & f.sign;
  const Bits x = a & (f.sign - 1);
  const Bits y = b & (f.sign - 1);
  const Unpacked ux = unpack(f, x);
  const Unpacked uy = unpack(f, y);
  // Numerator in [denominator, 2 * denominator): the quotient is in [1, 2).
  const Flag is_less = ux.mantissa < uy.mantissa;
  const Bits numerator = ux.mantissa << number(is_less, f.width);
  const Bits denominator = uy.mantissa;
  const Bits exponent = ux.exponent - uy.exponent + f.bias - number(is_less, f.width);

  Estimate e = estimate(f, m);
  // 1 / denominator, scaled to [1, 2) so that no step leaves the range of ordinary numbers.
  const auto stored = static_cast<int64_t>(f.mantissa);
  const spv::Id d = e.op(spv::OpFMul, e.of_unsigned(denominator), e.power_of_two(-stored));
  spv::Id reciprocal = e.op(spv::OpFDiv, e.value(1), d);
  for (int step = 0; step < (f.width == 64 ? 2 : 0); ++step) {
    const spv::Id error = e.op(spv::OpFSub, e.value(1), e.op(spv::OpFMul, d, reciprocal));
    reciprocal = e.op(spv::OpFAdd, reciprocal, e.op(spv::OpFMul, reciprocal, error));
  }
  // quotient = floor(numerator * 2 * hidden / denominator), in [2 * hidden, 4 * hidden).
  Bits quotient = e.to_signed(
      e.op(spv::OpFMul, e.of_unsigned(numerator), e.op(spv::OpFMul, reciprocal, e.value(2))));
  Bits rest = (numerator << (f.mantissa + 1)) - quotient * denominator;  // modulo 2^width
  const Bits correction = e.to_signed(
      e.op(spv::OpFMul, e.of_signed(rest), e.op(spv::OpFMul, reciprocal, e.power_of_two(-stored))));
  quotient = quotient + correction;
  rest = rest - correction * denominator;
  const Bits zero = rest.like(0);
  for (int step = 0; step < 2; ++step) {
    const Flag low = less_signed(rest, zero);
    quotient = quotient - number(low, f.width);
    rest = rest + select(low, denominator, zero);
  }
  for (int step = 0; step < 2; ++step) {
    const Flag high = !less_signed(rest, denominator);
    quotient = quotient + number(high, f.width);
    rest = rest - select(high, denominator, zero);
  }
  Bits result = pack(f, quotient, rest != 0, exponent);

  const Flag x_infinite = x == f.infinity;
  const Flag y_infinite = y == f.infinity;
  result = select(x_infinite | (y == 0), f.infinity, result);
  result = select((x == 0) | y_infinite, uint64_t{0}, result);
  const Flag invalid =
      ((x == 0) & (y == 0)) | (x_infinite & y_infinite) | (x > f.infinity) | (y > f.infinity);
  return select(invalid, f.nan, result | sign);
}

// Of f32 with a fused multiply-add, where no step leaves the range of ordinary numbers: a
// reciprocal refined by Newton's step, and a quotient corrected twice by its exact remainder
// (Markstein, 1990).
Bits divide_by_remainders(Bits a, Bits b) {
  Module& m = a.module();
  const spv::Id type = m.type(ScalarType::kF32);
  const auto number = [&](Bits x) { return m.op(spv::OpBitcast, type, {x.id()}); };
  const auto fma = [&](spv::Id x, spv::Id y, spv::Id z) {
    return m.float_extended(GLSLstd450Fma, type, {x, y, z});
  };
  const spv::Id one = m.constant(ScalarType::kF32, std::bit_cast<uint32_t>(1.0F));
  const spv::Id x = number(a), y = number(b), minus_y = number(b ^ 0x80000000);
  const spv::Id estimate = m.float_op(spv::OpFDiv, type, {one, y});
  const spv::Id reciprocal = fma(fma(minus_y, estimate, one), estimate, estimate);
  spv::Id quotient = m.float_op(spv::OpFMul, type, {x, reciprocal});
  for (int step = 0; step < 2; ++step) {
    quotient = fma(fma(minus_y, quotient, x), reciprocal, quotient);
  }
  return {&m, 32, m.op(spv::OpBitcast, m.uint_type(32), {quotient})};
}

}  // namespace

Bits exact_divide(ScalarType type, Bits a, Bits b) {
  Module& m = a.module();
  if (type != ScalarType::kF32 || !m.floats(type).fused_multiply_add) {
    return divide_by_integers(type, a, b);
  }
  // Exponents from -61 to 61, so that remainders are no denormals either.
  const auto is_ordinary = [](Bits bits) { return (bits >> 23 & 0xff) - 66 < 123; };
  spv::Id takes_quick = (is_ordinary(a) & is_ordinary(b)).id;
  // Where lanes pass values to each other behind the division, none may fall behind in a branch.
  if (m.keeps_lanes_together()) takes_quick = m.true_in_all_lanes(takes_quick);
  spv::Builder::If branch(takes_quick, spv::SelectionControlMaskNone, m.builder());
  const Bits quick = divide_by_remainders(a, b);
  spv::Block* quick_end = m.builder().getBuildPoint();
  branch.makeBeginElse();
  const Bits slow = divide_by_integers(type, a, b);
  spv::Block* slow_end = m.builder().getBuildPoint();
  branch.makeEndIf();
  spv::Instruction* result = m.phi(m.uint_type(32));
  Module::add_incoming(result, quick.id(), quick_end);
  Module::add_incoming(result, slow.id(), slow_end);
  return {&m, 32, result->getResultId()};
}

Bits exact_square_root(ScalarType type, Bits a) {
  const Format f(type);
  Module& m = a.module();
  const Bits x = a & (f.sign - 1);
  const Unpacked u = unpack(f, x);
  const Bits unbiased = u.exponent - f.bias;
  const Bits odd = unbiased & 1;
  const Bits radicand = u.mantissa << odd;  // in [hidden, 4 * hidden), scale an even power
  const Bits exponent = unbiased.shifted_right_signed(unbiased.like(1)) + f.bias;

  Estimate e = estimate(f, m);
  const auto stored = static_cast<int64_t>(f.mantissa);
  const spv::Id g = e.op(spv::OpFMul, e.of_unsigned(radicand), e.power_of_two(-stored));
  spv::Id root = m.float_extended(GLSLstd450Sqrt, e.type, {g});  // in [1, 2)
  const spv::Id half_reciprocal = e.op(spv::OpFDiv, e.value(0.5), root);
  for (int step = 0; step < (f.width == 64 ? 2 : 0); ++step) {
    const spv::Id error = e.op(spv::OpFSub, g, e.op(spv::OpFMul, root, root));
    root = e.op(spv::OpFAdd, root, e.op(spv::OpFMul, error, half_reciprocal));
  }
  // s = floor(sqrt(radicand * 4 * hidden)), in [2 * hidden, 4 * hidden).
  Bits s = e.to_signed(e.op(spv::OpFMul, root, e.power_of_two(stored + 1)));
  Bits rest = (radicand << (f.mantissa + 2)) - s * s;  // modulo 2^width
  const Bits correction =
      e.to_signed(e.op(spv::OpFMul, e.of_signed(rest),
                       e.op(spv::OpFMul, half_reciprocal, e.power_of_two(-stored - 1))));
  rest = rest - correction * ((s << 1) + correction);
  s = s + correction;
  const Bits zero = rest.like(0);
  for (int step = 0; step < 2; ++step) {
    const Flag low = less_signed(rest, zero);
    rest = rest + select(low, (s << 1) - 1, zero);
    s = s - number(low, f.width);
  }
  for (int step = 0; step < 2; ++step) {
    const Flag high = less_signed(s << 1, rest);
    rest = rest - select(high, (s << 1) + 1, zero);
    s = s + number(high, f.width);
  }
  Bits result = pack(f, s, rest != 0, exponent);
  result = select(a == f.infinity, f.infinity, result);
  result = select(x == 0, a, result);
  const Flag invalid = (x > f.infinity) | ((x != 0) & (a >= f.sign));
  return select(invalid, f.nan, result);
}

Bits exact_round(Op op, ScalarType type, Bits a) {
  const Format f(type);
  const Bits magnitude = a & (f.sign - 1);
  const Bits sign = a & f.sign;
  const Flag is_negative = sign != 0;
  const Bits raw = magnitude >> f.mantissa;
  const Flag is_below_one = raw < f.bias;
  const Flag is_whole = raw >= f.bias + f.mantissa;  // or infinite, or NaN
  // Number of bits of the fraction, where there is an integer part.
  Bits count = raw.like(f.bias + f.mantissa) - raw;
  count = select(is_below_one | is_whole, uint64_t{0}, count);
  const Bits unit = raw.like(1) << count;  // the weight of 1
  const Bits mask = unit - 1;
  const Bits fraction = select(is_below_one, magnitude, magnitude & mask);
  const uint64_t one = f.bias << f.mantissa;
  const Bits down = select(is_below_one, uint64_t{0}, magnitude & (mask ^ ~uint64_t{0}));
  const Bits up = select(is_below_one, raw.like(one), down + unit);
  Flag goes_up{};
  switch (op) {
    case Op::kFloor:
      goes_up = is_negative & (fraction != 0);
      break;
    case Op::kCeil:
      goes_up = (fraction != 0) & !is_negative;
      break;
    case Op::kRoundEven: {
      // Below 1 the half is the number 0.5 itself, and the even neighbour is 0. In [1, 2) the
      // lowest bit of the integer part is the lowest bit of the biased exponent, which is 1.
      const Bits half = select(is_below_one, raw.like(one - f.hidden), unit >> 1);
      const Flag is_odd = (!is_below_one) & ((magnitude & unit) != 0);
      goes_up = (fraction > half) | ((fraction == half) & is_odd);
      break;
    }
    default:  // kTrunc
      return select(is_whole, a, down | sign);
  }
  return select(is_whole, a, select(goes_up, up, down) | sign);
}

}  // namespace hekla::vulkan::codegen
