// SPDX-License-Identifier: Apache-2.0
// The type in which the compiler takes sums, which bits of results depend on. Pure.
#pragma once

#include "runtime/base/dtype.h"

namespace hekla::ir {

// Of elements of `result`, and of products that are added up to one: floats of less than 64 bits in
// f32, all else in its own type.
inline DType accumulator_dtype(DType result) {
  return is_float(result) && result != DType::kF64 ? DType::kF32 : result;
}

}  // namespace hekla::ir
