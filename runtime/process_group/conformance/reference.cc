// SPDX-License-Identifier: Apache-2.0
// The oracle of reductions: by the words of reduction.h, through dtype.h's exact conversions, one
// element at a time in double and in 64-bit integers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/base/hash.h"
#include "runtime/process_group/conformance/conformance.h"

namespace hekla::process_group {
namespace {

using enum ReduceOp;

uint64_t bits_at(const HostArray& array, int64_t i, int64_t width) {
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + i * width, static_cast<size_t>(width));
  return bits;
}

void put_bits(std::byte* data, int64_t i, int64_t width, uint64_t bits) {
  std::memcpy(data + i * width, &bits, static_cast<size_t>(width));
}

// A sum or product of two floats in double, rounded to float, is that in float.
double rounded(double value, DType part) {
  return part == DType::kF64 ? value : static_cast<double>(static_cast<float>(value));
}

double reduce_floats(const Reduction& by, const std::vector<double>& values, DType part) {
  const double factor = rounded(by.factor, part);
  double result = 0;
  for (size_t r = 0; r < values.size(); ++r) {
    const double value = by.op == kPremulSum ? rounded(values[r] * factor, part) : values[r];
    if (r == 0) {
      result = value;
    } else if (by.op == kMin || by.op == kMax) {
      const bool is_better = by.op == kMin ? value < result : value > result;
      if (!std::isnan(result) && (is_better || std::isnan(value))) result = value;
    } else if (by.op == kProduct) {
      result = rounded(result * value, part);
    } else {
      result = rounded(result + value, part);
    }
  }
  if (by.op == kAvg) result = rounded(result / static_cast<double>(values.size()), part);
  return result;
}

std::pair<double, double> multiply_complex(std::pair<double, double> a, std::pair<double, double> b,
                                           DType part) {
  const auto times = [&](double x, double y) { return rounded(x * y, part); };
  return {rounded(times(a.first, b.first) - times(a.second, b.second), part),
          rounded(times(a.first, b.second) + times(a.second, b.first), part)};
}

uint64_t low_bits_of(uint64_t value, int bits) {
  return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

int64_t sign_extended(uint64_t value, int bits) {
  const int shift = 64 - bits;
  return static_cast<int64_t>(value << shift) >> shift;
}

uint64_t reduce_integers(const Reduction& by, const std::vector<uint64_t>& values, int bits,
                         bool is_signed) {
  const auto as_signed = [&](uint64_t value) { return sign_extended(value, bits); };
  if (by.op == kAvg) {
    __extension__ __int128 sum = 0;
    for (const uint64_t value : values) {
      if (is_signed) {
        sum += as_signed(value);
      } else {
        sum += low_bits_of(value, bits);
      }
    }
    return static_cast<uint64_t>(sum / static_cast<int64_t>(values.size()));
  }
  uint64_t result = low_bits_of(values[0], bits);
  for (size_t r = 1; r < values.size(); ++r) {
    const uint64_t value = low_bits_of(values[r], bits);
    const bool is_less = is_signed ? as_signed(value) < as_signed(result) : value < result;
    if (by.op == kMin) result = is_less ? value : result;
    if (by.op == kMax) result = is_less ? result : value;
    if (by.op == kSum) result += value;
    if (by.op == kProduct) result *= value;
    if (by.op == kBitAnd) result &= value;
    if (by.op == kBitOr) result |= value;
    if (by.op == kBitXor) result ^= value;
    result = low_bits_of(result, bits);
  }
  return result;
}

uint64_t reduce_booleans(const Reduction& by, const std::vector<uint64_t>& values) {
  const auto set = static_cast<size_t>(std::count(values.begin(), values.end(), 1));
  if (by.op == kBitXor) return set % 2;
  const bool is_or = by.op == kSum || by.op == kMax || by.op == kBitOr;
  return is_or ? set > 0 : set == values.size();
}

// The bits of an element in memory, of a value that was computed modulo 2^bits.
uint64_t stored_integer(uint64_t value, DType dtype) {
  const int bits = dtype_bits(dtype);
  return is_signed_integer(dtype) ? static_cast<uint64_t>(sign_extended(value, bits))
                                  : low_bits_of(value, bits);
}

}  // namespace

HostArray reference_reduce(const Reduction& by, const std::vector<HostArray>& ranks) {
  const DType dtype = ranks[0].dtype(), part = complex_part(dtype);
  const int64_t width = dtype_bytes(part);
  HostArray result(dtype, ranks[0].dims());
  if (result.size() == 0) return result;
  std::byte* const out = result.mutable_data();
  const auto float_at = [&](const HostArray& array, int64_t i) {
    return float_from_bits(part, bits_at(array, i, width));
  };
  for (int64_t i = 0; i < result.size(); ++i) {
    if (is_complex(dtype) && by.op == kProduct) {
      std::pair<double, double> product = {float_at(ranks[0], 2 * i),
                                           float_at(ranks[0], 2 * i + 1)};
      for (size_t r = 1; r < ranks.size(); ++r) {
        product = multiply_complex(
            product, {float_at(ranks[r], 2 * i), float_at(ranks[r], 2 * i + 1)}, part);
      }
      put_bits(out, 2 * i, width, float_to_bits(part, product.first));
      put_bits(out, 2 * i + 1, width, float_to_bits(part, product.second));
      continue;
    }
    const int parts = is_complex(dtype) ? 2 : 1;
    for (int p = 0; p < parts; ++p) {
      const int64_t at = parts * i + p;
      if (is_float(part)) {
        std::vector<double> values;
        for (const HostArray& rank : ranks) values.push_back(float_at(rank, at));
        put_bits(out, at, width, float_to_bits(part, reduce_floats(by, values, part)));
        continue;
      }
      std::vector<uint64_t> values;
      for (const HostArray& rank : ranks) values.push_back(bits_at(rank, at, width));
      put_bits(out, at, width,
               dtype == DType::kI1 ? reduce_booleans(by, values)
                                   : stored_integer(reduce_integers(by, values, dtype_bits(dtype),
                                                                    is_signed_integer(dtype)),
                                                    dtype));
    }
  }
  return result;
}

HostArray reused(DType dtype, int64_t count) {
  constexpr size_t kLarge = size_t{1} << 20, kMost = size_t{1} << 29;
  struct Shelf {
    std::mutex mutex;
    std::multimap<size_t, std::shared_ptr<void>> memories;  // by size; guarded by mutex, as `bytes`
    size_t bytes = 0;                                       // of all
  };
  static Shelf& shelf = *new Shelf;  // for arrays that live as long as the process
  const auto size = static_cast<size_t>(count * dtype_bytes(dtype));
  if (size < kLarge) return HostArray(dtype, {count});
  std::shared_ptr<void> memory;
  {
    const std::lock_guard lock(shelf.mutex);
    if (auto node = shelf.memories.extract(size); !node.empty()) {
      memory = std::move(node.mapped());
      shelf.bytes -= size;
    }
  }
  if (memory == nullptr) memory.reset(new std::byte[size], std::default_delete<std::byte[]>());
  void* const data = memory.get();
  const auto give_back = [size, memory](void*) {
    const std::lock_guard lock(shelf.mutex);
    if (shelf.bytes + size > kMost) {
      shelf.memories.clear();
      shelf.bytes = 0;
    }
    if (size > kMost) return;
    shelf.memories.emplace(size, memory);
    shelf.bytes += size;
  };
  return HostArray::adopt(dtype, {count}, std::shared_ptr<void>(data, give_back));
}

HostArray repeated(const HostArray& period, int64_t count) {
  HostArray all = reused(period.dtype(), count);
  if (count == 0) return all;
  std::byte* const data = all.mutable_data();
  for (int64_t at = 0; at < all.size_bytes(); at += period.size_bytes()) {
    std::copy_n(period.data(), std::min(period.size_bytes(), all.size_bytes() - at), data + at);
  }
  return all;
}

HostArray conformance_input(DType dtype, int64_t count, int rank, std::string_view check) {
  if (count > kInputPeriod) {
    return repeated(conformance_input(dtype, kInputPeriod, rank, check), count);
  }
  const DType part = complex_part(dtype);
  const int64_t width = dtype_bytes(part), parts = is_complex(dtype) ? 2 * count : count;
  HostArray array(dtype, {count});
  if (count == 0) return array;
  std::byte* const data = array.mutable_data();
  uint64_t state = fnv1a(check) + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15U;
  for (int64_t i = 0; i < parts; ++i) {
    // splitmix64 (Steele, Lea, Flood 2014).
    uint64_t random = state += 0x9e3779b97f4a7c15U;
    random = (random ^ (random >> 30)) * 0xbf58476d1ce4e5b9U;
    random = (random ^ (random >> 27)) * 0x94d049bb133111ebU;
    random ^= random >> 31;
    if (dtype == DType::kI1) {
      put_bits(data, i, width, random >> 63);
    } else if (!is_float(part)) {
      put_bits(data, i, width, stored_integer(random, dtype));
    } else if (random % 32 == 0 && part != DType::kTF32) {
      // Any bits: infinities, NaNs, subnormal numbers.
      put_bits(data, i, width, low_bits_of(random >> 5, dtype_bits(part)));
    } else {
      const double value = static_cast<double>(static_cast<int64_t>(random)) * 0x1p-61;
      put_bits(data, i, width, float_to_bits(part, value));
    }
  }
  return array;
}

std::string difference(const HostArray& got, const HostArray& wanted) {
  if (got.identical(wanted)) return {};
  const DType part = complex_part(wanted.dtype());
  const int64_t width = dtype_bytes(part);
  for (int64_t i = 0; i < wanted.size_bytes() / width; ++i) {
    const uint64_t a = bits_at(got, i, width), b = bits_at(wanted, i, width);
    if (a == b) continue;
    if (is_float(part) && std::isnan(float_from_bits(part, a)) &&
        std::isnan(float_from_bits(part, b))) {
      continue;
    }
    return fmt::format("element {} of {} has the bits {:x} instead of {:x}", i, wanted.shape(), a,
                       b);
  }
  return {};
}

}  // namespace hekla::process_group
