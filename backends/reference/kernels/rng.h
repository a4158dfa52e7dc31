// SPDX-License-Identifier: Apache-2.0
// Random bits and numbers.
#pragma once

#include <cstdint>

#include "runtime/base/host_array.h"

namespace hekla::reference {

enum class RngAlgorithm : uint8_t { kDefault, kThreeFry, kPhilox };

struct RngBits {
  HostArray output_state;  // dtype and dims of the initial state
  HostArray output;
};
// Bit-exact with XLA's CPU back end, where the default is Philox. The state is ui64[2] for Threefry
// (2x32, 20 rounds) and ui64[2] or ui64[3] for Philox (4x32, 10 rounds), or the same bytes in
// another unsigned dtype. Outputs are integers of 8 to 64 bits, or floats of such widths that
// receive the raw bits.
Result<RngBits> rng_bit_generator(const HostArray& initial_state, RngAlgorithm rng_algorithm,
                                  DType output_dtype, const Dims& output_dims);

enum class RngDistribution : uint8_t { kUniform, kNormal };

// `a` and `b` are scalars of the result's dtype: [a, b) or mean and standard deviation. The numbers
// come from Philox keyed by `seed`: the same seed gives the same numbers on every machine. Uniform:
// floats, integers and i1; normal: floats.
Result<HostArray> rng(const HostArray& a, const HostArray& b, const Dims& dims,
                      RngDistribution rng_distribution, uint64_t seed);

}  // namespace hekla::reference
