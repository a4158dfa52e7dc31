// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/reduction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace hekla::process_group {
namespace {

constexpr std::array<std::string_view, kReduceOpCount> kReduceOpNames = {
    "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};

// Elements that are folded at a time: accumulators of 16 KiB at most stay in the first cache.
constexpr int64_t kAtOnce = 1024;

// Formats: how an element is stored (Stored), and what it is folded in (Folded).
template <typename T>
struct Plain {
  using Stored = T;
  using Folded = T;
  static Folded load(Stored value) { return value; }
  static Stored store(Folded value) { return value; }
};

struct Bf16 {
  using Stored = uint16_t;
  using Folded = float;
  static float load(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
  // To nearest, ties to even; a NaN stays one.
  static uint16_t store(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

struct F16 {
  using Stored = uint16_t;
  using Folded = float;
  static float load(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
    const uint32_t rest = bits & 0x7fffU;
    if (rest >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
    if (rest >= 0x400U) return std::bit_cast<float>(sign | ((rest << 13) + (112U << 23)));
    // Subnormal: a multiple of 2^-24, exactly.
    return std::bit_cast<float>(sign |
                                std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24F));
  }
  static uint16_t store(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000U;
    const uint32_t rest = bits & 0x7fffffffU;
    if (rest > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
    if (rest >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // from 65,520 on
    if (rest < 0x38800000U) {
      // Below 2^-14: adding 1/2 leaves the multiple of 2^-24 in the low bits, rounded to even.
      const float shifted = std::bit_cast<float>(rest) + 0.5F;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
    }
    return static_cast<uint16_t>(sign |
                                 ((rest - (112U << 23) + 0xfffU + ((rest >> 13) & 1)) >> 13));
  }
};

// The other float formats, by the functions of dtype.h; those of a byte are read from a table.
template <DType kDType, typename Bits>
struct AnyFloat {
  using Stored = Bits;
  using Folded = float;
  static float load(Bits bits) {
    if constexpr (sizeof(Bits) == 1) {
      static const std::array<float, 256> kValues = [] {
        std::array<float, 256> values = {};
        for (uint64_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<float>(float_from_bits(kDType, i));
        }
        return values;
      }();
      return kValues[bits];
    } else {
      return static_cast<float>(float_from_bits(kDType, bits));
    }
  }
  static Bits store(float value) { return static_cast<Bits>(float_to_bits(kDType, value)); }
};

// Integers of fewer than eight bits in a byte, sign- or zero-extended.
template <int kBits, bool kSigned>
struct Narrow {
  using Stored = std::conditional_t<kSigned, int8_t, uint8_t>;
  using Folded = Stored;
  static Folded load(Stored value) { return value; }
  static Stored store(Folded value) {
    const auto high = static_cast<uint8_t>(static_cast<uint8_t>(value) << (8 - kBits));
    if constexpr (kSigned) {
      return static_cast<int8_t>(static_cast<int8_t>(high) >> (8 - kBits));
    } else {
      return static_cast<uint8_t>(high >> (8 - kBits));
    }
  }
};

template <typename T>
struct Complex {
  T real, imaginary;
};

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<Complex<T>> = true;

// One step of a fold. Integers wrap around, which unsigned ones do by definition.
template <ReduceOp kOp, typename T>
T step(T left, T right) {
  using enum ReduceOp;
  constexpr bool kIsSum = kOp == kSum || kOp == kAvg || kOp == kPremulSum;
  if constexpr (kIsComplex<T>) {
    if constexpr (kIsSum) return {left.real + right.real, left.imaginary + right.imaginary};
    return {left.real * right.real - left.imaginary * right.imaginary,
            left.real * right.imaginary + left.imaginary * right.real};
  } else if constexpr (kOp == kMin) {
    if constexpr (std::is_floating_point_v<T>) {
      if (left != left) return left;
      return right < left || right != right ? right : left;
    }
    return right < left ? right : left;
  } else if constexpr (kOp == kMax) {
    if constexpr (std::is_floating_point_v<T>) {
      if (left != left) return left;
      return right > left || right != right ? right : left;
    }
    return right > left ? right : left;
  } else if constexpr (std::is_floating_point_v<T>) {
    return kIsSum ? left + right : left * right;
  } else {
    // At least 32 bits: products of promoted shorts would overflow int.
    using Promoted = std::make_unsigned_t<std::common_type_t<T, uint32_t>>;
    const auto a = static_cast<Promoted>(left), b = static_cast<Promoted>(right);
    if constexpr (kIsSum) return static_cast<T>(a + b);
    if constexpr (kOp == kProduct) return static_cast<T>(a * b);
    if constexpr (kOp == kBitAnd) return static_cast<T>(a & b);
    if constexpr (kOp == kBitOr) return static_cast<T>(a | b);
    return static_cast<T>(a ^ b);
  }
}

template <typename T>
T scaled(T value, double factor) {
  if constexpr (kIsComplex<T>) {
    using Part = decltype(value.real);
    return {value.real * static_cast<Part>(factor), value.imaginary * static_cast<Part>(factor)};
  } else {
    return value * static_cast<T>(factor);
  }
}

template <typename T>
T divided(T value, size_t by) {
  if constexpr (kIsComplex<T>) {
    using Part = decltype(value.real);
    return {value.real / static_cast<Part>(by), value.imaginary / static_cast<Part>(by)};
  } else {
    return value / static_cast<T>(by);
  }
}

// Element i of memory with any alignment.
template <typename T>
T element(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

template <typename Format, ReduceOp kOp>
typename Format::Folded term(const std::byte* from, int64_t i, double factor) {
  const auto value = Format::load(element<typename Format::Stored>(from, i));
  if constexpr (kOp == ReduceOp::kPremulSum) return scaled(value, factor);
  return value;
}

template <typename Format, ReduceOp kOp>
void put(std::byte* to, int64_t i, typename Format::Folded value, size_t ranks) {
  if constexpr (kOp == ReduceOp::kAvg) value = divided(value, ranks);
  const typename Format::Stored stored = Format::store(value);
  std::memcpy(to + static_cast<size_t>(i) * sizeof(stored), &stored, sizeof(stored));
}

template <typename Format, ReduceOp kOp>
void fold(double factor, int64_t count, std::span<const std::byte* const> inputs, std::byte* out) {
  if (inputs.size() == 2) {
    const std::byte *const left = inputs[0], *const right = inputs[1];
    // An element is written after it has been read, should `out` be an input.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < count; ++i) {
      put<Format, kOp>(
          out, i,
          step<kOp>(term<Format, kOp>(left, i, factor), term<Format, kOp>(right, i, factor)), 2);
    }
    return;
  }
  typename Format::Folded sums[kAtOnce];
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const int64_t size = std::min(kAtOnce, count - at);
    const size_t offset = static_cast<size_t>(at) * sizeof(typename Format::Stored);
    for (int64_t i = 0; i < size; ++i) {
      sums[i] = term<Format, kOp>(inputs[0] + offset, i, factor);
    }
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const std::byte* const from = inputs[rank] + offset;
      for (int64_t i = 0; i < size; ++i) {
        sums[i] = step<kOp>(sums[i], term<Format, kOp>(from, i, factor));
      }
    }
    std::byte* const to = out + offset;
    for (int64_t i = 0; i < size; ++i) put<Format, kOp>(to, i, sums[i], inputs.size());
  }
}

template <typename T>
void average_integers(int64_t count, std::span<const std::byte* const> inputs, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    const size_t offset = static_cast<size_t>(i) * sizeof(T);
    __extension__ __int128 sum = 0;
    for (const std::byte* input : inputs) {
      T value;
      std::memcpy(&value, input + offset, sizeof(T));
      sum += value;
    }
    // An average of values of a type is one of them, also of those with fewer than eight bits.
    const T result = static_cast<T>(sum / static_cast<int64_t>(inputs.size()));
    std::memcpy(out + offset, &result, sizeof(T));
  }
}

using Fold = void (*)(double, int64_t, std::span<const std::byte* const>, std::byte*);

template <typename Format>
Fold fold_of(ReduceOp op) {
  using enum ReduceOp;
  using Folded = typename Format::Folded;
  switch (op) {
    case kSum:
      return fold<Format, kSum>;
    case kProduct:
      return fold<Format, kProduct>;
    case kAvg:
      if constexpr (std::is_integral_v<Folded>) return nullptr;
      return fold<Format, kAvg>;
    case kPremulSum:
      if constexpr (std::is_integral_v<Folded>)
        return nullptr;
      else
        return fold<Format, kPremulSum>;
    case kMin:
      if constexpr (!kIsComplex<Folded>) return fold<Format, kMin>;
      break;
    case kMax:
      if constexpr (!kIsComplex<Folded>) return fold<Format, kMax>;
      break;
    case kBitAnd:
      if constexpr (std::is_integral_v<Folded>) return fold<Format, kBitAnd>;
      break;
    case kBitOr:
      if constexpr (std::is_integral_v<Folded>) return fold<Format, kBitOr>;
      break;
    case kBitXor:
      if constexpr (std::is_integral_v<Folded>) return fold<Format, kBitXor>;
      break;
  }
  return nullptr;
}

template <typename Format>
void run(const Reduction& reduction, int64_t count, std::span<const std::byte* const> inputs,
         std::byte* out) {
  if constexpr (std::is_integral_v<typename Format::Folded>) {
    if (reduction.op == ReduceOp::kAvg) {
      return average_integers<typename Format::Stored>(count, inputs, out);
    }
  }
  const Fold fold = fold_of<Format>(reduction.op);
  if (fold == nullptr) {
    die_of_bad_result(internal_error("{} was not checked", reduction.to_string()));
  }
  fold(reduction.factor, count, inputs, out);
}

// As bits of which the lowest counts.
Reduction of_booleans(const Reduction& reduction) {
  using enum ReduceOp;
  switch (reduction.op) {
    case kSum:
    case kMax:
      return kBitOr;
    case kProduct:
    case kMin:
      return kBitAnd;
    default:
      return reduction;
  }
}

template <DType kDType>
using Byte = AnyFloat<kDType, uint8_t>;

}  // namespace

std::string_view reduce_op_name(ReduceOp op) { return kReduceOpNames[static_cast<size_t>(op)]; }

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
  const auto found = std::find(kReduceOpNames.begin(), kReduceOpNames.end(), name);
  if (found == kReduceOpNames.end()) return {};
  return static_cast<ReduceOp>(found - kReduceOpNames.begin());
}

std::string Reduction::to_string() const {
  if (op != ReduceOp::kPremulSum) return std::string(reduce_op_name(op));
  return fmt::format("premul_sum({})", factor);
}

Status check_reduction(const Reduction& reduction, DType dtype) {
  using enum ReduceOp;
  const auto refuse = [&](std::string_view why) {
    return invalid_argument("{} of {}: {}", reduction.to_string(), dtype_name(dtype), why);
  };
  switch (reduction.op) {
    case kSum:
    case kProduct:
      return ok_status();
    case kAvg:
      return dtype == DType::kI1 ? refuse("booleans have no average") : ok_status();
    case kMin:
    case kMax:
      return is_complex(dtype) ? refuse("complex numbers have no order") : ok_status();
    case kBitAnd:
    case kBitOr:
    case kBitXor:
      return is_integer(dtype) || dtype == DType::kI1 ? ok_status()
                                                      : refuse("bits are those of integers");
    case kPremulSum:
      return is_float(dtype) || is_complex(dtype) ? ok_status() : refuse("a factor is for floats");
  }
  return refuse("no such reduction");
}

void reduce(const Reduction& reduction, DType dtype, int64_t count,
            std::span<const std::byte* const> inputs, std::byte* out) {
  using enum DType;
  switch (dtype) {
    case kInvalid:
      break;
    case kI1:
      return run<Plain<uint8_t>>(of_booleans(reduction), count, inputs, out);
    case kI2:
      return run<Narrow<2, true>>(reduction, count, inputs, out);
    case kI4:
      return run<Narrow<4, true>>(reduction, count, inputs, out);
    case kI8:
      return run<Plain<int8_t>>(reduction, count, inputs, out);
    case kI16:
      return run<Plain<int16_t>>(reduction, count, inputs, out);
    case kI32:
      return run<Plain<int32_t>>(reduction, count, inputs, out);
    case kI64:
      return run<Plain<int64_t>>(reduction, count, inputs, out);
    case kUI2:
      return run<Narrow<2, false>>(reduction, count, inputs, out);
    case kUI4:
      return run<Narrow<4, false>>(reduction, count, inputs, out);
    case kUI8:
      return run<Plain<uint8_t>>(reduction, count, inputs, out);
    case kUI16:
      return run<Plain<uint16_t>>(reduction, count, inputs, out);
    case kUI32:
      return run<Plain<uint32_t>>(reduction, count, inputs, out);
    case kUI64:
      return run<Plain<uint64_t>>(reduction, count, inputs, out);
    case kF4E2M1FN:
      return run<Byte<kF4E2M1FN>>(reduction, count, inputs, out);
    case kF6E2M3FN:
      return run<Byte<kF6E2M3FN>>(reduction, count, inputs, out);
    case kF6E3M2FN:
      return run<Byte<kF6E3M2FN>>(reduction, count, inputs, out);
    case kF8E3M4:
      return run<Byte<kF8E3M4>>(reduction, count, inputs, out);
    case kF8E4M3:
      return run<Byte<kF8E4M3>>(reduction, count, inputs, out);
    case kF8E4M3FN:
      return run<Byte<kF8E4M3FN>>(reduction, count, inputs, out);
    case kF8E4M3FNUZ:
      return run<Byte<kF8E4M3FNUZ>>(reduction, count, inputs, out);
    case kF8E4M3B11FNUZ:
      return run<Byte<kF8E4M3B11FNUZ>>(reduction, count, inputs, out);
    case kF8E5M2:
      return run<Byte<kF8E5M2>>(reduction, count, inputs, out);
    case kF8E5M2FNUZ:
      return run<Byte<kF8E5M2FNUZ>>(reduction, count, inputs, out);
    case kF8E8M0FNU:
      return run<Byte<kF8E8M0FNU>>(reduction, count, inputs, out);
    case kBF16:
      return run<Bf16>(reduction, count, inputs, out);
    case kF16:
      return run<F16>(reduction, count, inputs, out);
    case kTF32:
      return run<AnyFloat<kTF32, uint32_t>>(reduction, count, inputs, out);
    case kF32:
      return run<Plain<float>>(reduction, count, inputs, out);
    case kF64:
      return run<Plain<double>>(reduction, count, inputs, out);
    case kC64:
      return run<Plain<Complex<float>>>(reduction, count, inputs, out);
    case kC128:
      return run<Plain<Complex<double>>>(reduction, count, inputs, out);
  }
  die_of_bad_result(internal_error("a reduction of {}", dtype_name(dtype)));
}

}  // namespace hekla::process_group
