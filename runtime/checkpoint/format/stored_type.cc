// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/stored_type.h"

#include <array>
#include <cmath>
#include <limits>

namespace hekla::checkpoint {
namespace {

// Custom floats only where readers decode them by the IEEE rule: f8E4M3FN as a custom float shows
// 14 codes wrongly, and HDF5 2 takes the layout of f8E4M3 for f8E4M3FN, so these are bytes.
constexpr auto kTypes = std::to_array<StoredType>({
    {DType::kI1, 1, "bool", StoredAs::kBool},
    {DType::kI8, 2, "int8", StoredAs::kNative},
    {DType::kI16, 3, "int16", StoredAs::kNative},
    {DType::kI32, 4, "int32", StoredAs::kNative},
    {DType::kI64, 5, "int64", StoredAs::kNative},
    {DType::kUI8, 6, "uint8", StoredAs::kNative},
    {DType::kUI16, 7, "uint16", StoredAs::kNative},
    {DType::kUI32, 8, "uint32", StoredAs::kNative},
    {DType::kUI64, 9, "uint64", StoredAs::kNative},
    {DType::kF16, 10, "float16", StoredAs::kNative},
    {DType::kF32, 11, "float32", StoredAs::kNative},
    {DType::kF64, 12, "float64", StoredAs::kNative},
    {DType::kTF32, 13, "tf32", StoredAs::kNative},
    {DType::kC64, 14, "complex64", StoredAs::kComplex},
    {DType::kC128, 15, "complex128", StoredAs::kComplex},
    {DType::kBF16, 16, "bfloat16", StoredAs::kBf16},
    {DType::kF8E5M2, 17, "float8_e5m2", StoredAs::kF8E5M2},
    {DType::kF8E4M3FN, 18, "float8_e4m3fn", StoredAs::kBytes},
    {DType::kF8E4M3FNUZ, 19, "float8_e4m3fnuz", StoredAs::kBytes},
    {DType::kF8E4M3B11FNUZ, 20, "float8_e4m3b11fnuz", StoredAs::kBytes},
    {DType::kF8E5M2FNUZ, 21, "float8_e5m2fnuz", StoredAs::kBytes},
    {DType::kF8E8M0FNU, 22, "float8_e8m0fnu", StoredAs::kBytes},
    {DType::kF8E4M3, 23, "float8_e4m3", StoredAs::kBytes},
    {DType::kF8E3M4, 24, "float8_e3m4", StoredAs::kBytes},
    {DType::kF4E2M1FN, 25, "float4_e2m1fn", StoredAs::kPacked},
    {DType::kF6E2M3FN, 26, "float6_e2m3fn", StoredAs::kPacked},
    {DType::kF6E3M2FN, 27, "float6_e3m2fn", StoredAs::kPacked},
    {DType::kI4, 28, "int4", StoredAs::kPacked},
    {DType::kUI4, 29, "uint4", StoredAs::kPacked},
    {DType::kI2, 30, "int2", StoredAs::kPacked},
    {DType::kUI2, 31, "uint2", StoredAs::kPacked},
});
static_assert(kTypes.size() == kDTypeCount - 1, "every dtype but kInvalid has a row");

}  // namespace

const StoredType* stored_type(DType dtype) {
  for (const StoredType& type : kTypes) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

DType dtype_from_code(int32_t code) {
  if (code < 1 || code > static_cast<int32_t>(kTypes.size())) return DType::kInvalid;
  return kTypes[code - 1].dtype;
}

DType dtype_from_stored_name(std::string_view name) {
  for (const StoredType& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  return DType::kInvalid;
}

std::optional<uint64_t> nan_bits(DType dtype) {
  const DType part = complex_part(dtype);
  if (!is_float(part)) return std::nullopt;
  const uint64_t bits = float_to_bits(part, std::numeric_limits<double>::quiet_NaN());
  if (!std::isnan(float_from_bits(part, bits))) return std::nullopt;
  return bits;
}

}  // namespace hekla::checkpoint
