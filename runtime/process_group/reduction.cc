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

// The other float formats, by the functions of dtype.h.
template <DType kDType, typename Bits>
struct AnyFloat {
  using Stored = Bits;
  using Folded = float;
  static float load(Bits bits) { return static_cast<float>(float_from_bits(kDType, bits)); }
  static Bits store(float value) { return static_cast<Bits>(float_to_bits(kDType, value)); }
};

// Those of a byte, read from tables. A format with at most four bits of mantissa is decided by a
// float's sign, exponent and first seven bits of mantissa, and by whether any is set behind them:
// the numbers halfway between two neighbours have none there.
template <DType kDType>
class ByteFloat {
 public:
  using Stored = uint8_t;
  using Folded = float;
  float load(uint8_t bits) const { return values_[bits]; }
  uint8_t store(float value) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return stored_[(bits >> kBehind) * 2 + ((bits & ((1U << kBehind) - 1)) != 0 ? 1 : 0)];
  }

 private:
  using Exact = AnyFloat<kDType, uint8_t>;
  static constexpr int kBehind = 16;  // bits of a float
  static const float* values() {
    static const std::array<float, 256> kValues = [] {
      std::array<float, 256> values = {};
      for (size_t i = 0; i < values.size(); ++i) values[i] = Exact::load(static_cast<uint8_t>(i));
      return values;
    }();
    return kValues.data();
  }
  static const uint8_t* stored() {
    static const std::vector<uint8_t> kStored = [] {
      std::vector<uint8_t> stored(size_t{2} << (32 - kBehind));
      for (size_t i = 0; i < stored.size(); ++i) {
        const auto bits = static_cast<uint32_t>(i) << (kBehind - 1);
        stored[i] = Exact::store(std::bit_cast<float>(bits));
      }
      return stored;
    }();
    return kStored.data();
  }
  const float* const values_ = values();
  const uint8_t* const stored_ = stored();
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
typename Format::Folded term(const Format& format, const std::byte* from, int64_t i,
                             double factor) {
  const auto value = format.load(element<typename Format::Stored>(from, i));
  if constexpr (kOp == ReduceOp::kPremulSum) return scaled(value, factor);
  return value;
}

template <typename Format, ReduceOp kOp>
void put(const Format& format, std::byte* to, int64_t i, typename Format::Folded value,
         size_t ranks) {
  if constexpr (kOp == ReduceOp::kAvg) value = divided(value, ranks);
  const typename Format::Stored stored = format.store(value);
  std::memcpy(to + static_cast<size_t>(i) * sizeof(stored), &stored, sizeof(stored));
}

// What a fold begins with and ends in.
struct Ends {
  const std::byte* before = nullptr;  // folded already, of the ranks to the left; null: of none
  size_t ranks = 0;                   // that make finished elements; 0: they come out folded
};

template <typename Format, ReduceOp kOp>
void fold(double factor, int64_t count, const Ends& ends, std::span<const std::byte* const> inputs,
          std::byte* out) {
  using Folded = typename Format::Folded;
  const Format format;
  if (inputs.size() == 2 && ends.before == nullptr && ends.ranks == 2) {
    const std::byte *const left = inputs[0], *const right = inputs[1];
    // An element is written after it has been read, should `out` be an input.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < count; ++i) {
      put<Format, kOp>(format, out, i,
                       step<kOp>(term<Format, kOp>(format, left, i, factor),
                                 term<Format, kOp>(format, right, i, factor)),
                       2);
    }
    return;
  }
  Folded sums[kAtOnce];
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const int64_t size = std::min(kAtOnce, count - at);
    const size_t offset = static_cast<size_t>(at) * sizeof(typename Format::Stored);
    const size_t folded_offset = static_cast<size_t>(at) * sizeof(Folded);
    const size_t folded_bytes = static_cast<size_t>(size) * sizeof(Folded);
    size_t rank = 0;
    if (ends.before != nullptr) {
      std::memcpy(sums, ends.before + folded_offset, folded_bytes);
    } else {
      const std::byte* const from = inputs[rank++] + offset;
      for (int64_t i = 0; i < size; ++i) sums[i] = term<Format, kOp>(format, from, i, factor);
    }
    for (; rank < inputs.size(); ++rank) {
      const std::byte* const from = inputs[rank] + offset;
      for (int64_t i = 0; i < size; ++i) {
        sums[i] = step<kOp>(sums[i], term<Format, kOp>(format, from, i, factor));
      }
    }
    if (ends.ranks == 0) {
      std::memcpy(out + folded_offset, sums, folded_bytes);
      continue;
    }
    std::byte* const to = out + offset;
    for (int64_t i = 0; i < size; ++i) put<Format, kOp>(format, to, i, sums[i], ends.ranks);
  }
}

// What averages of integers are folded in.
__extension__ using WideSum = __int128;

template <typename T>
void average_integers(int64_t count, const Ends& ends, std::span<const std::byte* const> inputs,
                      std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    WideSum sum = ends.before == nullptr ? 0 : element<WideSum>(ends.before, i);
    for (const std::byte* input : inputs) sum += element<T>(input, i);
    if (ends.ranks == 0) {
      std::memcpy(out + static_cast<size_t>(i) * sizeof(sum), &sum, sizeof(sum));
      continue;
    }
    // An average of values of a type is one of them, also of those with fewer than eight bits.
    const T result = static_cast<T>(sum / static_cast<int64_t>(ends.ranks));
    std::memcpy(out + static_cast<size_t>(i) * sizeof(T), &result, sizeof(T));
  }
}

using Fold = void (*)(double, int64_t, const Ends&, std::span<const std::byte* const>, std::byte*);

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
void run(const Reduction& reduction, int64_t count, const Ends& ends,
         std::span<const std::byte* const> inputs, std::byte* out) {
  if constexpr (std::is_integral_v<typename Format::Folded>) {
    if (reduction.op == ReduceOp::kAvg) {
      return average_integers<typename Format::Stored>(count, ends, inputs, out);
    }
  }
  const Fold fold = fold_of<Format>(reduction.op);
  if (fold == nullptr) {
    die_of_bad_result(internal_error("{} was not checked", reduction.to_string()));
  }
  fold(reduction.factor, count, ends, inputs, out);
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
using Byte = ByteFloat<kDType>;

template <typename T>
struct FormatTag {
  using Type = T;
};

// use(FormatTag<...>()) of the dtype's.
template <typename Use>
auto with_format(DType dtype, const Use& use) {
  using enum DType;
  switch (dtype) {
    case kInvalid:
      break;
    case kI1:
      return use(FormatTag<Plain<uint8_t>>());
    case kI2:
      return use(FormatTag<Narrow<2, true>>());
    case kI4:
      return use(FormatTag<Narrow<4, true>>());
    case kI8:
      return use(FormatTag<Plain<int8_t>>());
    case kI16:
      return use(FormatTag<Plain<int16_t>>());
    case kI32:
      return use(FormatTag<Plain<int32_t>>());
    case kI64:
      return use(FormatTag<Plain<int64_t>>());
    case kUI2:
      return use(FormatTag<Narrow<2, false>>());
    case kUI4:
      return use(FormatTag<Narrow<4, false>>());
    case kUI8:
      return use(FormatTag<Plain<uint8_t>>());
    case kUI16:
      return use(FormatTag<Plain<uint16_t>>());
    case kUI32:
      return use(FormatTag<Plain<uint32_t>>());
    case kUI64:
      return use(FormatTag<Plain<uint64_t>>());
    case kF4E2M1FN:
      return use(FormatTag<Byte<kF4E2M1FN>>());
    case kF6E2M3FN:
      return use(FormatTag<Byte<kF6E2M3FN>>());
    case kF6E3M2FN:
      return use(FormatTag<Byte<kF6E3M2FN>>());
    case kF8E3M4:
      return use(FormatTag<Byte<kF8E3M4>>());
    case kF8E4M3:
      return use(FormatTag<Byte<kF8E4M3>>());
    case kF8E4M3FN:
      return use(FormatTag<Byte<kF8E4M3FN>>());
    case kF8E4M3FNUZ:
      return use(FormatTag<Byte<kF8E4M3FNUZ>>());
    case kF8E4M3B11FNUZ:
      return use(FormatTag<Byte<kF8E4M3B11FNUZ>>());
    case kF8E5M2:
      return use(FormatTag<Byte<kF8E5M2>>());
    case kF8E5M2FNUZ:
      return use(FormatTag<Byte<kF8E5M2FNUZ>>());
    case kF8E8M0FNU:
      return use(FormatTag<Byte<kF8E8M0FNU>>());
    case kBF16:
      return use(FormatTag<Bf16>());
    case kF16:
      return use(FormatTag<F16>());
    case kTF32:
      return use(FormatTag<AnyFloat<kTF32, uint32_t>>());
    case kF32:
      return use(FormatTag<Plain<float>>());
    case kF64:
      return use(FormatTag<Plain<double>>());
    case kC64:
      return use(FormatTag<Plain<Complex<float>>>());
    case kC128:
      return use(FormatTag<Plain<Complex<double>>>());
  }
  die_of_bad_result(internal_error("a reduction of {}", dtype_name(dtype)));
}

void run(const Reduction& reduction, DType dtype, int64_t count, const Ends& ends,
         std::span<const std::byte* const> inputs, std::byte* out) {
  const Reduction by = dtype == DType::kI1 ? of_booleans(reduction) : reduction;
  with_format(dtype, [&](auto format) {
    run<typename decltype(format)::Type>(by, count, ends, inputs, out);
  });
}

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
  run(reduction, dtype, count, {nullptr, inputs.size()}, inputs, out);
}

int64_t partial_bytes(const Reduction& reduction, DType dtype) {
  return with_format(dtype, [&](auto format) -> int64_t {
    using Folded = typename decltype(format)::Type::Folded;
    const bool is_wide = std::is_integral_v<Folded> && reduction.op == ReduceOp::kAvg;
    return is_wide ? sizeof(WideSum) : sizeof(Folded);
  });
}

void reduce_partly(const Reduction& reduction, DType dtype, int64_t count, const std::byte* before,
                   std::span<const std::byte* const> inputs, std::byte* partials) {
  run(reduction, dtype, count, {before, 0}, inputs, partials);
}

void reduce_rest(const Reduction& reduction, DType dtype, int64_t count, const std::byte* before,
                 std::span<const std::byte* const> inputs, int ranks, std::byte* out) {
  run(reduction, dtype, count, {before, static_cast<size_t>(ranks)}, inputs, out);
}

}  // namespace hekla::process_group
