// SPDX-License-Identifier: Apache-2.0
// Arrays made by a rule: reproducible inputs without files.
//
// Element k (row-major) of seed s comes from u = splitmix64(s * 0x9E3779B97F4A7C15 + k) in unsigned
// 64-bit arithmetic (runtime/base/hash.h) and r = (u >> 11) * 2^-53 in [0, 1).
// tests/programs/rules.py makes the same numbers. Pure.
#pragma once

#include <cstdint>

#include "runtime/base/host_array.h"

namespace hekla::tools {

struct InputRule {
  enum class Kind {
    kUniform,   // low + (high - low) * r in f64, rounded once to the dtype
    kIntegers,  // low + floor(r * (high - low))
    kConstant,  // low
  };
  DType dtype = DType::kF32;
  Dims dims;
  uint64_t seed = 0;
  Kind kind = Kind::kUniform;
  double low = 0;
  double high = 1;
};

// INVALID_ARGUMENT for values that the dtype cannot hold; OUT_OF_RANGE, RESOURCE_EXHAUSTED for
// shapes that memory cannot. Complex numbers take two elements each, real part first.
Result<HostArray> make_input(const InputRule& rule);

// Sets element k, of a complex type part k. Integers take the value truncated to their range.
void set_element(HostArray& array, int64_t k, double value);

}  // namespace hekla::tools
