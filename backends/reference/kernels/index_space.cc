// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/index_space.h"

#include "backends/reference/kernels/movement.h"

namespace hekla::reference {

Result<std::vector<int64_t>> index_values(const HostArray& indices) {
  if (!is_integer(indices.dtype())) {
    return invalid_argument("indices must be integers, not {}", indices.shape());
  }
  std::vector<int64_t> values(static_cast<size_t>(indices.size()));
  for (int64_t i = 0; i < indices.size(); ++i) values[i] = index_at(indices, i);
  return values;
}

Result<IndexVectors> index_vectors(const HostArray& indices, int64_t index_vector_dim) {
  if (index_vector_dim < 0 || index_vector_dim > indices.rank()) {
    return invalid_argument("index_vector_dim {} is not within the rank of the indices {}",
                            index_vector_dim, indices.shape());
  }
  IndexVectors result;
  HEKLA_ASSIGN_OR_RETURN(result.values, index_values(indices));
  const Dims strides = row_major_strides(indices.dims());
  result.vector_size = 1;
  result.vector_stride = 0;
  for (int64_t d = 0; d < indices.rank(); ++d) {
    if (d == index_vector_dim) {
      result.vector_size = indices.dims()[d];
      result.vector_stride = strides[d];
    } else {
      result.batch_dims.push_back(indices.dims()[d]);
      result.batch_strides.push_back(strides[d]);
    }
  }
  return result;
}

WindowRuns window_runs(std::span<const int64_t> sizes, std::span<const int64_t> array_strides,
                       std::span<const int64_t> other_strides) {
  WindowRuns runs;
  size_t outer = sizes.size();
  while (outer > 0) {
    const size_t d = outer - 1;
    if (sizes[d] != 1 && (array_strides[d] != runs.run || other_strides[d] != runs.run)) break;
    runs.run *= sizes[d];
    outer = d;
  }
  for_each_index<2>(sizes.first(outer), {array_strides.first(outer), other_strides.first(outer)},
                    [&](const std::array<int64_t, 2>& at) {
                      runs.array_offsets.push_back(at[0]);
                      runs.other_offsets.push_back(at[1]);
                    });
  return runs;
}

}  // namespace hekla::reference
