// SPDX-License-Identifier: Apache-2.0
// Integers of two and four bits as they come from outside: clients leave anything in the bits of a
// byte above them, as ml_dtypes has done since 0.6; arrays of ours extend them (dtype.h). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace hekla {

inline bool is_narrow_integer(DType dtype) { return is_integer(dtype) && dtype_bits(dtype) < 8; }

// Does nothing to elements of other types.
inline void extend_narrow_integers(DType dtype, std::span<std::byte> elements) {
  if (!is_narrow_integer(dtype)) return;
  const int shift = 8 - dtype_bits(dtype);
  const bool is_signed = is_signed_integer(dtype);
  for (std::byte& element : elements) {
    const auto high = static_cast<uint8_t>(element << shift);
    const int value = is_signed ? static_cast<int8_t>(high) >> shift : high >> shift;
    element = static_cast<std::byte>(value);
  }
}

}  // namespace hekla
