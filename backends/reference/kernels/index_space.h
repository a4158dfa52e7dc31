// SPDX-License-Identifier: Apache-2.0
// What gather and scatter share: the indices as int64, and the window of one index as runs of
// consecutive elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/kernels/strides.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// All values of an integer array; ui64 values above the largest int64 saturate. INVALID_ARGUMENT
// for other dtypes.
Result<std::vector<int64_t>> index_values(const HostArray& indices);

// The index array seen as [batch..., index vector].
struct IndexVectors {
  std::vector<int64_t> values;
  Dims batch_dims;      // the dimensions without index_vector_dim
  Dims batch_strides;   // of `values`
  int64_t vector_size;  // elements of one index vector
  int64_t vector_stride;
};
Result<IndexVectors> index_vectors(const HostArray& indices, int64_t index_vector_dim);

// A window of an array on each side of a copy, cut into runs that are consecutive on both.
struct WindowRuns {
  int64_t run = 1;  // elements
  std::vector<int64_t> array_offsets;
  std::vector<int64_t> other_offsets;
};
WindowRuns window_runs(std::span<const int64_t> sizes, std::span<const int64_t> array_strides,
                       std::span<const int64_t> other_strides);

}  // namespace hekla::reference
