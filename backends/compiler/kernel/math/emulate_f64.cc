// SPDX-License-Identifier: Apache-2.0
// f64 as its bits in an i64: IEEE arithmetic by integers, rounded to nearest even, denormals kept.
//
// Significands have three bits more than the format while an operation rounds: two below the last
// place, and one that stands for all that is below those.
#include "backends/compiler/kernel/math/num.h"
#include "backends/compiler/kernel/math/rewrite.h"

namespace hekla::kernel {
namespace {

using enum ScalarType;
constexpr int kStored = 52;
constexpr int kGuard = 3;
constexpr int kTop = kStored + kGuard;  // the hidden bit of a significand that is to be rounded
constexpr int64_t kHidden = int64_t{1} << kStored;
constexpr int64_t kBias = 1023;
constexpr int64_t kMagnitude = std::numeric_limits<int64_t>::max();
constexpr int64_t kSign = std::numeric_limits<int64_t>::min();
constexpr int64_t kInfinity = 0x7ff0000000000000;
constexpr int64_t kNan = 0x7ff8000000000000;

Num as_long(Num flag) { return convert(Op::kBoolToInt, kI64, flag); }
Num least(Num x, int64_t most) { return select(less_s(x, most), x, x.integer(most)); }
Num is_nan_bits(Num x) { return less_s(x.integer(kInfinity), x & kMagnitude); }

// Shifted right by any count that is not negative; bits that fall out leave a one in the last.
Num shift_and_note(Num x, Num count) {
  count = least(count, 63);
  const Num kept = shr_u(x, count);
  return kept | as_long(not_equal(shl(kept, count), x));
}

struct Shifted {
  Num value, count;
};
// The highest one moved up to this place; it is not above. Of 0: 0, and 63.
Shifted normalised(Num x, int top) {
  Num count = x.integer(0);
  for (const int step : {32, 16, 8, 4, 2, 1}) {
    if (step > top) continue;
    const Num is_short =
        less_u(x, x.integer(static_cast<int64_t>(uint64_t{1} << (top + 1 - step))));
    x = select(is_short, shl(x, step), x);
    count = count + as_long(is_short) * static_cast<double>(step);
  }
  return {x, count};
}

struct Format {
  int stored;
  int64_t most;  // exponent field of infinity
};
constexpr Format kF64Format = {kStored, 2047};
constexpr Format kF32Format = {23, 255};

// The magnitude of significand * 2^(exponent - bias - stored - guard). The significand has its
// highest one at `stored + guard`, or below for exponents of 1 and less.
Num rounded(Num exponent, Num significand, const Format& f) {
  const Num one = exponent.integer(1);
  const Num is_low = less_s(exponent, one);
  significand =
      select(is_low, shift_and_note(significand, select(is_low, one - exponent, 0)), significand);
  const Num field = select(is_low, one, least(exponent, f.most));
  const Num last = shr_u(significand, kGuard);
  // The hidden bit, and a carry of the rounding, count for the exponent.
  Num bits = shl(field - 1, f.stored) + last;
  const Num is_half = shr_u(significand, 2) & 1;
  const Num is_more = as_long(not_equal(significand & 3, 0)) | (last & 1);
  bits = bits + (is_half & is_more);
  const Num infinity = bits.integer(f.most << f.stored);
  return select(less_s(bits, infinity), bits, infinity);
}

struct F64Parts {
  Num exponent;     // of denormals: 1
  Num significand;  // with the hidden bit
};
F64Parts parts(Num magnitude) {
  const Num field = shr_u(magnitude, kStored);
  const Num is_denormal = equal(field, 0);
  return {field + as_long(is_denormal),
          (magnitude & (kHidden - 1)) | select(is_denormal, 0, field.integer(kHidden))};
}
// With the hidden bit in its place also for denormals; of 0 anything.
F64Parts normal_parts(Num magnitude) {
  const F64Parts p = parts(magnitude);
  const Shifted s = normalised(p.significand, kStored);
  return {p.exponent - s.count, s.value};
}

Num add(Num x, Num y) {
  const Num is_swapped = less_s(x & kMagnitude, y & kMagnitude);
  const Num large = select(is_swapped, y, x), small = select(is_swapped, x, y);
  const Num large_magnitude = large & kMagnitude;
  const F64Parts a = parts(large_magnitude), b = parts(small & kMagnitude);
  const Num top = shl(a.significand, kGuard);
  const Num other = shift_and_note(shl(b.significand, kGuard), a.exponent - b.exponent);
  const Num differ = less_s(x ^ y, 0);
  const Num sum = select(differ, top - other, top + other);
  // One more bit, or some less; as low as the exponent goes.
  const Num carries = less_s(sum.integer((int64_t{1} << (kTop + 1)) - 1), sum);
  const Shifted s = normalised(sum, kTop);
  const Num most = a.exponent - 1;
  const Num back = select(less_s(most, s.count), s.count - most, 0);
  const Num significand =
      select(carries, shift_and_note(sum, sum.integer(1)), shr_u(s.value, least(back, 63)));
  const Num exponent = a.exponent + as_long(carries) - select(carries, 0, s.count - back);
  Num result = rounded(exponent, significand, kF64Format) | (large & kSign);
  // A difference of equals is +0, a sum of zeros has their common sign.
  result = select(equal(sum, 0), x & y & kSign, result);
  result = select(equal(large_magnitude, kInfinity), large, result);
  const Num is_invalid = is_nan_bits(large) | (equal(small & kMagnitude, kInfinity) & differ);
  return select(is_invalid, result.integer(kNan), result);
}

Num mul(Num x, Num y) {
  const Num sign = (x ^ y) & kSign;
  const Num left = x & kMagnitude, right = y & kMagnitude;
  const F64Parts a = normal_parts(left), b = normal_parts(right);
  // Both with their highest one at 63: the product has its at 127 or 126.
  const Num u = shl(a.significand, 63 - kStored), v = shl(b.significand, 63 - kStored);
  const Num high = mul_high(u, v);
  const Num is_long = less_s(high, 0);
  const Num rest = as_long(not_equal(u * v, 0));
  const Num significand =
      shift_and_note(high, select(is_long, high.integer(63 - kTop), high.integer(62 - kTop))) |
      rest;
  Num result = rounded(a.exponent + b.exponent - static_cast<double>(kBias) + as_long(is_long),
                       significand, kF64Format);
  const Num has_zero = equal(left, 0) | equal(right, 0);
  const Num has_infinity = equal(left, kInfinity) | equal(right, kInfinity);
  result = select(has_zero, 0, select(has_infinity, result.integer(kInfinity), result)) | sign;
  const Num is_invalid = is_nan_bits(x) | is_nan_bits(y) | (has_zero & has_infinity);
  return select(is_invalid, result.integer(kNan), result);
}

Num div(Num x, Num y) {
  Builder& builder = *x.b;
  const Num sign = (x ^ y) & kSign;
  const Num left = x & kMagnitude, right = y & kMagnitude;
  const F64Parts a = normal_parts(left), b = normal_parts(right);
  const Num is_less = less_s(a.significand, b.significand);
  const Num numerator = select(is_less, shl(a.significand, 1), a.significand);
  // Bit by bit from the highest, which is one.
  const std::vector<Value> last = builder.loop(
      builder.index(kTop + 1), {numerator.v, numerator.integer(0).v},
      [&](Value, const std::vector<Value>& carried) {
        const Num rest{builder, carried[0]}, quotient{builder, carried[1]};
        const Num fits = logical_not(less_s(rest, b.significand));
        const Num next = select(fits, rest - b.significand, rest);
        return std::vector<Value>{shl(next, 1).v, (shl(quotient, 1) | as_long(fits)).v};
      });
  const Num quotient{builder, last[1]};
  const Num rest = as_long(not_equal({builder, last[0]}, 0));
  Num result = rounded(a.exponent - b.exponent + static_cast<double>(kBias) - as_long(is_less),
                       quotient | rest, kF64Format);
  const Num by_zero = equal(right, 0), of_zero = equal(left, 0);
  const Num by_infinity = equal(right, kInfinity), of_infinity = equal(left, kInfinity);
  result = select(by_zero | of_infinity, result.integer(kInfinity), result);
  result = select(of_zero | by_infinity, 0, result) | sign;
  const Num is_invalid =
      is_nan_bits(x) | is_nan_bits(y) | (by_zero & of_zero) | (by_infinity & of_infinity);
  return select(is_invalid, result.integer(kNan), result);
}

Num square_root(Num x) {
  Builder& builder = *x.b;
  const F64Parts p = normal_parts(x & kMagnitude);
  // An even power of two times a significand of 53 or 54 bits.
  const Num power = p.exponent - static_cast<double>(kBias + kStored);
  const Num odd = power & 1;
  const Num radicand = shl(shl(p.significand, odd), 62 - kStored);
  // Two bits of the radicand give one of the root.
  const std::vector<Value> last = builder.loop(
      builder.index(kTop + 1), {radicand.v, x.integer(0).v, x.integer(0).v},
      [&](Value, const std::vector<Value>& carried) {
        const Num bits{builder, carried[0]}, left{builder, carried[1]}, root{builder, carried[2]};
        const Num rest = shl(left, 2) | shr_u(bits, 62);
        const Num trial = shl(root, 2) | 1;
        const Num fits = logical_not(less_s(rest, trial));
        return std::vector<Value>{shl(bits, 2).v, select(fits, rest - trial, rest).v,
                                  (shl(root, 1) | as_long(fits)).v};
      });
  const Num rest = as_long(not_equal({builder, last[1]}, 0));
  // 2^((power - odd) / 2), and 29 bits of the root are behind the point.
  constexpr double kRootBias = kBias + kTop - 29;
  const Num exponent = shr_s(power - odd, 1) + kRootBias;
  Num result = rounded(exponent, Num{builder, last[2]} | rest, kF64Format);
  result = select(equal(x, kInfinity), x, result);
  const Num is_zero = equal(x & kMagnitude, 0);
  result = select(is_zero, x, result);
  const Num is_invalid = is_nan_bits(x) | (less_s(x, 0) & logical_not(is_zero));
  return select(is_invalid, result.integer(kNan), result);
}

Num round_to_integer(Op op, Num x) {
  const Num magnitude = x & kMagnitude, sign = x & kSign;
  const Num is_negative = less_s(x, 0);
  const Num field = shr_u(magnitude, kStored);
  const Num is_below_one = less_s(field, kBias);
  const Num is_whole = logical_not(less_s(field, kBias + kStored));
  const Num count = select(is_below_one | is_whole, 0, field.integer(kBias + kStored) - field);
  const Num unit = shl(x.integer(1), count);
  const Num mask = unit - 1;
  const Num fraction = select(is_below_one, magnitude, magnitude & mask);
  const Num down = select(is_below_one, 0, magnitude & (mask ^ -1));
  const Num up = select(is_below_one, x.integer(kBias << kStored), down + unit);
  Num goes_up = is_negative;  // kTrunc: never, below
  switch (op) {
    case Op::kFloor:
      goes_up = is_negative & not_equal(fraction, 0);
      break;
    case Op::kCeil:
      goes_up = logical_not(is_negative) & not_equal(fraction, 0);
      break;
    case Op::kRoundEven: {
      // Below 1 the half is the number 0.5 itself, and 0 is even. In [1, 2) the lowest bit of the
      // whole part is the lowest of the exponent, which is one.
      const Num half = select(is_below_one, x.integer((kBias - 1) << kStored), shr_u(unit, 1));
      const Num is_odd = logical_not(is_below_one) & not_equal(magnitude & unit, 0);
      goes_up = less_s(half, fraction) | (equal(fraction, half) & is_odd);
      break;
    }
    default:
      return select(is_whole, x, down | sign);
  }
  return select(is_whole, x, select(goes_up, up, down) | sign);
}

// Of an integer below 2^63 or, without sign, below 2^64.
Num from_integer(Num x) {
  const Shifted s = normalised(x, 63);
  const Num significand = shift_and_note(s.value, x.integer(63 - kTop));
  const Num bits = rounded(x.integer(kBias + 63) - s.count, significand, kF64Format);
  return select(equal(x, 0), 0, bits);
}
Num from_signed(Num x) {
  const Num is_negative = less_s(x, 0);
  const Num bits = from_integer(select(is_negative, x.integer(0) - x, x));
  return bits | select(is_negative, x.integer(kSign), x.integer(0));
}

// Truncated magnitude; it is below 2^64.
Num to_integer(Num x) {
  const Num magnitude = x & kMagnitude;
  const Num power = shr_u(magnitude, kStored) - static_cast<double>(kBias);
  const Num significand = (magnitude & (kHidden - 1)) | kHidden;
  const Num is_long = less_s(power.integer(kStored), power);
  const Num left = shl(significand, (power - static_cast<double>(kStored)) & 63);
  const Num right = shr_u(significand, (power.integer(kStored) - power) & 63);
  return select(less_s(power, 0), 0, select(is_long, left, right));
}

Num f64_of_f32(Num x) {
  const Num bits = convert(Op::kZeroExtend, kI64, bits_of(x));
  const Num magnitude = bits & 0x7fffffff;
  const Num field = shr_u(magnitude, 23);
  const Num is_denormal = equal(field, 0);
  const Shifted s =
      normalised((magnitude & 0x7fffff) | select(is_denormal, 0, field.integer(0x800000)), 23);
  const Num exponent = field + as_long(is_denormal) - s.count + static_cast<double>(kBias - 127);
  Num result = shl(exponent - 1, kStored) + shl(s.value, kStored - 23);
  result = select(equal(magnitude, 0), 0, result);
  const Num is_special = equal(field, 255);
  result = select(is_special, shl(magnitude & 0x7fffff, kStored - 23) | kInfinity, result);
  return result | shl(shr_u(bits, 31), 63);
}

Num f32_of_f64(Num x) {
  const Num magnitude = x & kMagnitude;
  const F64Parts p = parts(magnitude);
  const Num significand =
      shift_and_note(p.significand, x.integer(kStored - kF32Format.stored - kGuard));
  Num result = rounded(p.exponent - static_cast<double>(kBias - 127), significand, kF32Format);
  result = select(equal(magnitude, 0), 0, result);
  // The rounding takes infinity for a number too large, and so it becomes infinity.
  result = select(is_nan_bits(x), result.integer(0x7fc00000), result);
  return float_of(ScalarType::kF32, convert(Op::kTruncate, kI32, result | shl(shr_u(x, 63), 31)));
}

// Negative numbers in the order of their values; zeros are equal.
Num ordered(Num x) {
  const Num is_negative = less_s(x, 0);
  return select(is_negative, x.integer(0) - (x & kMagnitude), x);
}

class WithoutF64 : public Rewriter {
 public:
  using Rewriter::Rewriter;

 private:
  static ScalarType now(ScalarType type) { return type == ScalarType::kF64 ? kI64 : type; }
  Values constant(ScalarType type, uint64_t bits) override {
    return {b_.constant_bits(now(type), bits)};
  }
  std::vector<ScalarType> types(ScalarType type) const override { return {now(type)}; }
  Num num(Value v) { return {b_, one(v)}; }

  Values rewrite(Value v) override {
    const Instruction& inst = f_[v];
    const auto from_f64 = [&](size_t i) { return f_.type(inst.arguments[i]) == ScalarType::kF64; };
    const bool makes = inst.type == ScalarType::kF64;
    const Num x = num(inst.arguments[0]);
    switch (inst.op) {
      case Op::kLoad:
        return {b_.load(now(inst.type), unpack_access(inst.immediate), x.v)};
      case Op::kStore:
      case Op::kSelect:
        return copy(inst);
      case Op::kSIntToFloat:
      case Op::kUIntToFloat: {
        if (!makes) return copy(inst);
        const bool is_signed = inst.op == Op::kSIntToFloat;
        const Num wide =
            x.type() == kI64 ? x : convert(is_signed ? Op::kSignExtend : Op::kZeroExtend, kI64, x);
        return {(is_signed ? from_signed(wide) : from_integer(wide)).v};
      }
      case Op::kFloatToSInt:
      case Op::kFloatToUInt: {
        if (!from_f64(0)) return copy(inst);
        const Num whole = to_integer(x);
        const Num result = inst.op == Op::kFloatToSInt
                               ? select(less_s(x, 0), whole.integer(0) - whole, whole)
                               : whole;
        if (inst.type == kI64) return {result.v};
        return {convert(Op::kTruncate, kI32, result).v};
      }
      case Op::kFloatResize:
        return {(makes ? f64_of_f32(x) : f32_of_f64(x)).v};
      case Op::kBitcast:
        if (makes || from_f64(0)) return {x.v};
        return copy(inst);
      default:
        break;
    }
    if (!from_f64(0)) return copy(inst);
    return {inst.arguments.size() == 1 ? unary(inst.op, x).v : operation(inst, x).v};
  }

  static Num unary(Op op, Num x) {
    switch (op) {
      case Op::kNeg:
        return x ^ kSign;
      case Op::kAbs:
        return x & kMagnitude;
      case Op::kSqrt:
        return square_root(x);
      default:
        return round_to_integer(op, x);
    }
  }

  Num operation(const Instruction& inst, Num x) {
    const Num y = num(inst.arguments[1]);
    const Num ordinary = logical_not(is_nan_bits(x) | is_nan_bits(y));
    switch (inst.op) {
      case Op::kAdd:
        return add(x, y);
      case Op::kSub:
        // Not of a NaN's sign, which does not matter.
        return add(x, y ^ kSign);
      case Op::kMul:
        return mul(x, y);
      case Op::kDiv:
        return div(x, y);
      case Op::kFma:
        return add(mul(x, y), num(inst.arguments[2]));
      case Op::kEq:
        return ordinary & equal(ordered(x), ordered(y));
      case Op::kNe:
        return logical_not(ordinary & equal(ordered(x), ordered(y)));
      case Op::kLt:
        return ordinary & less_s(ordered(x), ordered(y));
      default:  // kLe
        return ordinary & logical_not(less_s(ordered(y), ordered(x)));
    }
  }
};

}  // namespace

Result<Function> without_f64(const Kernel& kernel, size_t most_instructions) {
  return WithoutF64(kernel, kernel.index_type, most_instructions).run();
}

}  // namespace hekla::kernel
