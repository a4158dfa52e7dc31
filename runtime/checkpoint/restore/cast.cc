// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/cast.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

namespace hekla::checkpoint {
namespace {

bool is_whole(DType dtype) { return dtype == DType::kI1 || is_integer(dtype); }

uint64_t load_bits(const std::byte* from, int64_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, static_cast<size_t>(size));
  return bits;
}

void store_bits(uint64_t bits, std::byte* to, int64_t size) {
  std::memcpy(to, &bits, static_cast<size_t>(size));
}

// An integer as sign and magnitude: holds all of i64 and ui64.
struct Whole {
  bool is_negative = false;
  uint64_t magnitude = 0;
};

Whole load_whole(const std::byte* from, DType dtype) {
  const int64_t size = dtype_bytes(dtype);
  uint64_t bits = load_bits(from, size);
  if (!is_signed_integer(dtype)) return {false, bits};
  const int unused = static_cast<int>(64 - 8 * size);
  const int64_t value = static_cast<int64_t>(bits << unused) >> unused;
  return value < 0 ? Whole{true, 0 - static_cast<uint64_t>(value)}
                   : Whole{false, static_cast<uint64_t>(value)};
}

// Rounded so that rounding once more to a narrower float (f64's own 53 bits: none) gives what one
// rounding would: bits that do not fit are or-ed into the last one that does.
double to_double(Whole value, bool is_final) {
  uint64_t magnitude = value.magnitude;
  if (!is_final && magnitude >> 53 != 0) {
    const uint64_t lost = magnitude & 0xfff;
    magnitude = (magnitude & ~uint64_t{0xfff}) | (lost != 0 ? 0x1000 : 0);
  }
  const auto result = static_cast<double>(magnitude);
  return value.is_negative ? -result : result;
}

// The bits of an integer type, or nothing when it cannot hold the value.
std::optional<uint64_t> to_whole(Whole value, DType dtype) {
  const int bits = dtype_bits(dtype);
  const int value_bits = is_signed_integer(dtype) ? bits - 1 : bits;
  const uint64_t largest = value_bits == 64 ? ~uint64_t{0} : (uint64_t{1} << value_bits) - 1;
  if (!value.is_negative) {
    if (value.magnitude > largest) return std::nullopt;
    return value.magnitude;
  }
  if (!is_signed_integer(dtype) || value.magnitude > largest + 1) return std::nullopt;
  return 0 - value.magnitude;
}

// `count` real floats. 16 bits and fewer go through a table of all values, when there are more
// elements than that.
void cast_floats(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype,
                 int64_t count) {
  const int64_t from_size = dtype_bytes(from_dtype);
  const int64_t to_size = dtype_bytes(to_dtype);
  const auto convert = [=](uint64_t bits) {
    return float_to_bits(to_dtype, float_from_bits(from_dtype, bits));
  };
  const int64_t values = int64_t{1} << std::min(dtype_bits(from_dtype), 32);
  if (values <= 1 << 16 && count > values) {
    std::vector<uint64_t> table(static_cast<size_t>(values));
    for (size_t bits = 0; bits < table.size(); ++bits) table[bits] = convert(bits);
    const uint64_t mask = table.size() - 1;
    for (int64_t i = 0; i < count; ++i) {
      store_bits(table[load_bits(from + i * from_size, from_size) & mask], to + i * to_size,
                 to_size);
    }
    return;
  }
  if (from_dtype == DType::kF32 && to_dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, from + i * 4, 4);
      const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
      bits =
          is_nan ? static_cast<uint32_t>(convert(bits)) : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
      store_bits(bits, to + i * 2, 2);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    store_bits(convert(load_bits(from + i * from_size, from_size)), to + i * to_size, to_size);
  }
}

}  // namespace

bool can_cast(DType from, DType to) {
  if (from == DType::kInvalid || to == DType::kInvalid) return false;
  if (from == to || is_whole(from)) return true;
  if (is_float(from)) return is_float(to) || is_complex(to);
  return is_complex(from) && is_complex(to);
}

Result<HostArray> cast(const HostArray& array, DType to) {
  const DType from = array.dtype();
  if (from == to) return array;
  if (!can_cast(from, to)) {
    return invalid_argument("{} cannot be cast to {}: read it as stored and convert it yourself",
                            array.shape(), dtype_name(to));
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(to, array.dims(), is_complex(to)));
  const std::byte* source = array.data();
  std::byte* target = result.mutable_data();
  const int64_t from_size = dtype_bytes(from);
  const int64_t to_size = dtype_bytes(to);
  if (is_complex(from)) {
    cast_floats(source, complex_part(from), target, complex_part(to), 2 * array.size());
    return result;
  }
  if (is_float(from) && is_float(to)) {
    cast_floats(source, from, target, to, array.size());
    return result;
  }
  const DType part = complex_part(to);
  for (int64_t i = 0; i < array.size(); ++i) {
    const std::byte* element = source + i * from_size;
    uint64_t bits = 0;
    if (is_float(from)) {
      bits = float_to_bits(part, float_from_bits(from, load_bits(element, from_size)));
    } else if (is_whole(to)) {
      const Whole value = load_whole(element, from);
      const std::optional<uint64_t> whole = to_whole(value, to);
      if (!whole.has_value()) {
        return out_of_range("element {} of {} is {}{}, which {} cannot hold", i, array.shape(),
                            value.is_negative ? "-" : "", value.magnitude, dtype_name(to));
      }
      bits = *whole;
    } else {
      bits = float_to_bits(part, to_double(load_whole(element, from), part == DType::kF64));
    }
    // The imaginary part, where there is one, is zero already.
    store_bits(bits, target + i * to_size, dtype_bytes(part));
  }
  return result;
}

}  // namespace hekla::checkpoint
