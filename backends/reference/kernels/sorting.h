// SPDX-License-Identifier: Apache-2.0
// sort and top-k.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/scalar_function.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// Sorts all inputs (equal dims) together along `dimension` (negative counts from the end).
// comparator: (left of input 0, right of input 0, left of input 1, ...) -> i1, true where left
// comes first. Always stable. A comparator that is no strict weak order gives some permutation of
// the elements. O(n log n) comparisons in O(log^2 n) calls of the comparator.
Result<std::vector<HostArray>> sort(std::span<const HostArray> inputs, int64_t dimension,
                                    ScalarFunction& comparator);

// The k largest (or smallest) elements along the last dimension, best first, and their indices
// (i32). Equal elements come in the order of their indices. Floats are in total order: every NaN is
// above infinity when its sign is clear and below -infinity when it is set, and -0 is below +0.
// Not for complex dtypes.
struct TopK {
  HostArray values;
  HostArray indices;
};
Result<TopK> top_k(const HostArray& operand, int64_t k, bool largest = true);

}  // namespace hekla::reference
