// SPDX-License-Identifier: Apache-2.0
#include "tools/run/input_rule.h"

#include <cmath>

#include "runtime/base/hash.h"

namespace hekla::tools {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

// The lowest and the first too high value of an integer dtype, as doubles.
bool fits(DType dtype, double value) {
  if (dtype == DType::kI1) return value == 0 || value == 1;
  if (!is_integer(dtype)) return true;
  const int bits = dtype_bits(dtype);
  if (is_signed_integer(dtype)) {
    return value >= -std::ldexp(1.0, bits - 1) && value < std::ldexp(1.0, bits - 1);
  }
  return value >= 0 && value < std::ldexp(1.0, bits);
}

}  // namespace

void set_element(HostArray& array, int64_t k, double value) {
  const DType dtype = complex_part(array.dtype());
  uint64_t bits = 0;
  if (dtype == DType::kI1) {
    bits = value != 0;
  } else if (is_signed_integer(dtype)) {
    bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  } else if (is_unsigned_integer(dtype)) {
    bits = static_cast<uint64_t>(value);
  } else {
    bits = float_to_bits(dtype, value);
  }
  // Little-endian host: the low bytes come first.
  const int64_t bytes = dtype_bytes(dtype);
  std::memcpy(array.mutable_data() + k * bytes, &bits, static_cast<size_t>(bytes));
}

Result<HostArray> make_input(const InputRule& rule) {
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(rule.dtype, rule.dims, false));
  const double last = rule.kind == InputRule::Kind::kIntegers ? rule.high - 1 : rule.low;
  if (!fits(rule.dtype, std::trunc(rule.low)) || !fits(rule.dtype, std::trunc(last))) {
    return invalid_argument("an input rule for {} from {} to {}", dtype_name(rule.dtype), rule.low,
                            rule.high);
  }
  const int64_t count = array.size() * (is_complex(rule.dtype) ? 2 : 1);
  const uint64_t start = rule.seed * kGolden;
  for (int64_t k = 0; k < count; ++k) {
    const double r =
        static_cast<double>(splitmix64(start + static_cast<uint64_t>(k)) >> 11) * 0x1p-53;
    double value = rule.low;
    if (rule.kind == InputRule::Kind::kUniform) value = rule.low + (rule.high - rule.low) * r;
    if (rule.kind == InputRule::Kind::kIntegers) {
      value = rule.low + std::floor(r * (rule.high - rule.low));
    }
    set_element(array, k, value);
  }
  return array;
}

}  // namespace hekla::tools
