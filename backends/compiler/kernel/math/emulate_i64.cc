// SPDX-License-Identifier: Apache-2.0
// 64-bit integers as two words.
#include "backends/compiler/kernel/math/num.h"
#include "backends/compiler/kernel/math/rewrite.h"

namespace hekla::kernel {
namespace {

using enum ScalarType;

struct Wide {
  Num low, high;
};

Num as_word(Num flag) { return convert(Op::kBoolToInt, kI32, flag); }

Wide select(Num condition, const Wide& x, const Wide& y) {
  return {select(condition, x.low, y.low), select(condition, x.high, y.high)};
}

Wide add(const Wide& x, const Wide& y) {
  const Num low = x.low + y.low;
  return {low, x.high + y.high + as_word(less_u(low, x.low))};
}
Wide sub(const Wide& x, const Wide& y) {
  return {x.low - y.low, x.high - y.high - as_word(less_u(x.low, y.low))};
}
Wide negate(const Wide& x) {
  const Num zero = x.low.integer(0);
  return sub({zero, zero}, x);
}
Wide product(Num x, Num y) { return {x * y, mul_high(x, y)}; }

Wide mul(const Wide& x, const Wide& y) {
  const Wide low = product(x.low, y.low);
  return {low.low, low.high + x.low * y.high + x.high * y.low};
}

// By words; what is carried out of the second goes into the third.
Wide mul_high_u(const Wide& x, const Wide& y) {
  const Num zero = x.low.integer(0);
  const Wide first = product(x.low, y.low);
  const Wide left = product(x.low, y.high), right = product(x.high, y.low);
  const Wide second = add({first.high, zero}, left);
  const Wide crossed = add({second.low, zero}, {right.low, zero});
  const Wide third = add(product(x.high, y.high), {second.high, zero});
  return add(add(third, {right.high, zero}), {crossed.high, zero});
}

Num is_zero(const Wide& x) { return equal(x.low | x.high, 0); }
Num less(const Wide& x, const Wide& y, bool is_signed) {
  const Num high = is_signed ? less_s(x.high, y.high) : less_u(x.high, y.high);
  return high | (equal(x.high, y.high) & less_u(x.low, y.low));
}

// Counts are below 64. A shift by 32 - 0 is done in two steps, each below 32.
Wide shift_left(const Wide& x, Num count) {
  const Num within = count & 31;
  const Num low = shl(x.low, within);
  const Num high = shl(x.high, within) | shr_u(shr_u(x.low, 1), 31 - within);
  const Num is_far = less_u(count.integer(31), count);
  return {select(is_far, low.integer(0), low), select(is_far, low, high)};
}
Wide shift_right(const Wide& x, Num count, bool is_signed) {
  const Num within = count & 31;
  const Num low = shr_u(x.low, within) | shl(shl(x.high, 1), 31 - within);
  const Num high = is_signed ? shr_s(x.high, within) : shr_u(x.high, within);
  const Num is_far = less_u(count.integer(31), count);
  return {select(is_far, high, low),
          select(is_far, is_signed ? shr_s(x.high, 31) : high.integer(0), high)};
}

struct Division {
  Wide quotient, rest;
};

// Bit by bit, and at once where both are below 2^32. The divisor is not 0.
Division divide_u(const Wide& x, const Wide& y) {
  Builder& b = *x.low.b;
  const Num zero = x.low.integer(0);
  const Num is_long = not_equal(x.high | y.high, 0);
  // A dividend below 2^32 with a longer divisor divides by something else than 0 in vain.
  const Num divisor = select(is_long, x.low.integer(1), y.low);
  const Num quotient = binary(Op::kDivU, x.low, divisor);
  const Num rest = binary(Op::kRemU, x.low, divisor);
  const Num count = shl(convert(Op::kBoolToInt, b.index_type(), is_long), 6);
  // The dividend leaves its place for the quotient, bit by bit.
  const std::vector<Value> last = b.loop(
      count.v, {x.low.v, x.high.v, zero.v, zero.v}, [&](Value, const std::vector<Value>& carried) {
        const Wide all{{b, carried[0]}, {b, carried[1]}};
        const Wide left{{b, carried[2]}, {b, carried[3]}};
        const Num out = shr_u(left.high, 31);
        const Wide next{shl(left.low, 1) | shr_u(all.high, 31),
                        shl(left.high, 1) | shr_u(left.low, 31)};
        const Num fits = not_equal(out, 0) | logical_not(less(next, y, false));
        const Wide rest = select(fits, sub(next, y), next);
        return std::vector<Value>{(shl(all.low, 1) | as_word(fits)).v,
                                  (shl(all.high, 1) | shr_u(all.low, 31)).v, rest.low.v,
                                  rest.high.v};
      });
  return {select(is_long, Wide{{b, last[0]}, {b, last[1]}}, Wide{quotient, zero}),
          select(is_long, Wide{{b, last[2]}, {b, last[3]}}, Wide{rest, zero})};
}

Wide magnitude(const Wide& x) { return select(less_s(x.high, 0), negate(x), x); }

Division divide_s(const Wide& x, const Wide& y) {
  const Division d = divide_u(magnitude(x), magnitude(y));
  const Num differ = less_s(x.high ^ y.high, 0);
  return {select(differ, negate(d.quotient), d.quotient),
          select(less_s(x.high, 0), negate(d.rest), d.rest)};
}

// Rounded to nearest even: the upper 32 significant bits, the last of which also stands for what
// is below them, are converted, and scaled without rounding.
Num f32_of_wide(const Wide& x) {
  const ScalarType kF32 = ScalarType::kF32;
  Num high = x.high, zeros = x.high.integer(0);
  for (const int step : {16, 8, 4, 2, 1}) {
    const Num is_short = less_u(high, int64_t{1} << (32 - step));
    high = select(is_short, shl(high, step), high);
    zeros = zeros + select(is_short, zeros.integer(step), zeros.integer(0));
  }
  const Num is_small = equal(x.high, 0);
  const Num count = select(is_small, zeros.integer(0), 32 - zeros);
  const Num top = shift_right(x, count, false).low;
  // What the shift drops.
  const Wide back = shift_left({top, x.low.integer(0)}, count);
  const Num rest = as_word(not_equal(x.low ^ back.low, 0));
  const Num scale = float_of(kF32, shl(count + 127, 23));
  return convert(Op::kUIntToFloat, kF32, top | rest) * scale;
}

// Truncated; the value fits.
Wide wide_of_f32(Num x) {
  const Num bits = bits_of(x);
  const Num exponent = (shr_u(bits, 23) & 0xff) - 127;
  const Num mantissa = (bits & 0x7fffff) | 0x800000;
  const Wide all{mantissa, mantissa.integer(0)};
  const Num left = (exponent - 23) & 63;
  const Num right = (23 - exponent) & 31;
  const Wide shifted =
      select(less_s(exponent, 23), Wide{shr_u(mantissa, right), all.high}, shift_left(all, left));
  const Num zero = mantissa.integer(0);
  return select(less_s(exponent, 0), Wide{zero, zero}, shifted);
}

class WithoutI64 : public Rewriter {
 public:
  WithoutI64(const Kernel& kernel, size_t most_instructions)
      : Rewriter(kernel, kI32, most_instructions), was_(kernel.index_type) {}

 private:
  Values index(Value v) override {
    if (was_ == kI32) return {v};
    return {v, b_.constant_bits(kI32, 0)};
  }
  Values constant(ScalarType type, uint64_t bits) override {
    if (type != ScalarType::kI64) return {b_.constant_bits(type, bits)};
    return {b_.constant_bits(kI32, bits & 0xffffffff), b_.constant_bits(kI32, bits >> 32)};
  }
  std::vector<ScalarType> types(ScalarType type) const override {
    if (type == ScalarType::kI64) return {kI32, kI32};
    return {type};
  }
  Wide wide(Value v) {
    const Values parts = of(v);
    return {{b_, parts[0]}, {b_, parts[1]}};
  }
  static Values values(const Wide& x) { return {x.low.v, x.high.v}; }
  Num num(Value v) { return {b_, one(v)}; }

  Values rewrite(Value v) override {
    const Instruction& inst = f_[v];
    const bool makes = inst.type == ScalarType::kI64;
    switch (inst.op) {
      case Op::kLoad: {
        Access access = unpack_access(inst.immediate);
        if (!makes) return {b_.load(inst.type, access, one(inst.arguments[0]))};
        access.bytes = 4;
        const Num place = shl(num(inst.arguments[0]), 1);
        return {b_.load(kI32, access, place.v), b_.load(kI32, access, (place + 1).v)};
      }
      case Op::kStore: {
        Access access = unpack_access(inst.immediate);
        if (f_.type(inst.arguments[1]) != ScalarType::kI64) return copy(inst);
        access.bytes = 4;
        const Num place = shl(num(inst.arguments[0]), 1);
        const Wide x = wide(inst.arguments[1]);
        b_.store(access, place.v, x.low.v);
        b_.store(access, (place + 1).v, x.high.v);
        return {};
      }
      case Op::kSelect: {
        if (!makes) return copy(inst);
        return values(
            select(num(inst.arguments[0]), wide(inst.arguments[1]), wide(inst.arguments[2])));
      }
      case Op::kSignExtend: {
        const Num x = num(inst.arguments[0]);
        return values({x, shr_s(x, 31)});
      }
      case Op::kZeroExtend: {
        const Num x = num(inst.arguments[0]);
        return values({x, x.integer(0)});
      }
      case Op::kTruncate:
        return {wide(inst.arguments[0]).low.v};
      case Op::kBoolToInt: {
        if (!makes) return copy(inst);
        const Num x = as_word(num(inst.arguments[0]));
        return values({x, x.integer(0)});
      }
      case Op::kFloatToSInt:
      case Op::kFloatToUInt: {
        if (!makes) return copy(inst);
        const Num x = num(inst.arguments[0]);
        const Wide result = wide_of_f32(x);
        if (inst.op == Op::kFloatToUInt) return values(result);
        return values(select(less_s(bits_of(x), 0), negate(result), result));
      }
      default:
        break;
    }
    if (f_.type(inst.arguments[0]) != ScalarType::kI64) return copy(inst);
    const Wide x = wide(inst.arguments[0]);
    if (inst.op == Op::kUIntToFloat) return {f32_of_wide(x).v};
    if (inst.op == Op::kSIntToFloat) {
      const Num result = f32_of_wide(magnitude(x));
      return {select(less_s(x.high, 0), -result, result).v};
    }
    return arithmetic(inst.op, x, wide(inst.arguments[1]));
  }

  Values arithmetic(Op op, const Wide& x, const Wide& y) {
    switch (op) {
      case Op::kAdd:
        return values(add(x, y));
      case Op::kSub:
        return values(sub(x, y));
      case Op::kMul:
        return values(mul(x, y));
      case Op::kMulHighU:
        return values(mul_high_u(x, y));
      case Op::kDivU:
        return values(divide_u(x, y).quotient);
      case Op::kRemU:
        return values(divide_u(x, y).rest);
      case Op::kDivS:
        return values(divide_s(x, y).quotient);
      case Op::kRemS:
        return values(divide_s(x, y).rest);
      case Op::kShl:
        return values(shift_left(x, y.low));
      case Op::kShrU:
        return values(shift_right(x, y.low, false));
      case Op::kShrS:
        return values(shift_right(x, y.low, true));
      case Op::kEq:
        return {is_zero({x.low ^ y.low, x.high ^ y.high}).v};
      case Op::kNe:
        return {logical_not(is_zero({x.low ^ y.low, x.high ^ y.high})).v};
      case Op::kLtS:
        return {less(x, y, true).v};
      case Op::kLtU:
        return {less(x, y, false).v};
      case Op::kLeS:
        return {logical_not(less(y, x, true)).v};
      case Op::kLeU:
        return {logical_not(less(y, x, false)).v};
      default:  // kAnd, kOr, kXor
        return values({binary(op, x.low, y.low), binary(op, x.high, y.high)});
    }
  }

  const ScalarType was_;  // of indices
};

}  // namespace

Result<Function> without_i64(const Kernel& kernel, size_t most_instructions) {
  return WithoutI64(kernel, most_instructions).run();
}

}  // namespace hekla::kernel
