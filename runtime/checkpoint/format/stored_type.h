// SPDX-License-Identifier: Apache-2.0
// How each element type lies in a checkpoint: its number, its name for people and which HDF5 type
// stands for it. The numbers are part of the format and never change.
// Pure functions; unknown numbers and names give kInvalid.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/dtype.h"

namespace hekla::checkpoint {

// The HDF5 type that a dtype is stored as.
enum class StoredAs : uint8_t {
  kNative,   // the standard little-endian type of the same kind and size
  kBool,     // enum of int8 {FALSE = 0, TRUE = 1}, h5py's convention
  kComplex,  // compound {r, i}, h5py's convention
  kBf16,     // custom 16-bit float, sign 15, exponent 7..14, bias 127
  kF8E5M2,   // custom 8-bit float, sign 7, exponent 2..6, bias 15
  kBytes,    // uint8 of the same shape: 8-bit floats that a custom type would show wrongly
  kPacked,   // uint8 of rank 1, elements packed, first one in the lowest bits
};

struct StoredType {
  DType dtype = DType::kInvalid;
  int32_t code = 0;
  std::string_view name;  // "bfloat16", "float8_e4m3fn", "int4": numpy's and ml_dtypes' names
  StoredAs as = StoredAs::kNative;
};

// Nullptr for kInvalid.
const StoredType* stored_type(DType dtype);
DType dtype_from_code(int32_t code);
DType dtype_from_stored_name(std::string_view name);
// The bit pattern of a quiet NaN, or nothing where the type has none. Complex types: of one part.
std::optional<uint64_t> nan_bits(DType dtype);

}  // namespace hekla::checkpoint
