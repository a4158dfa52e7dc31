// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backends/reference/kernels/dispatch.h"
#include "backends/reference/kernels/gather_scatter.h"
#include "backends/reference/kernels/index_space.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {

Result<HostArray> gather(const HostArray& operand, const HostArray& start_indices,
                         const GatherConfig& config) {
  const auto bad = [&](std::string_view what) {
    return invalid_argument("gather of {} by {}: {}", operand.shape(), start_indices.shape(), what);
  };
  HEKLA_ASSIGN_OR_RETURN(const IndexVectors indices,
                         index_vectors(start_indices, config.index_vector_dim));
  const int64_t rank = operand.rank();
  Dims dropped = config.collapsed_slice_dims;
  dropped.insert(dropped.end(), config.operand_batching_dims.begin(),
                 config.operand_batching_dims.end());
  const size_t result_rank = indices.batch_dims.size() + config.offset_dims.size();
  if (static_cast<int64_t>(config.slice_sizes.size()) != rank || !are_unique_dims(dropped, rank) ||
      config.offset_dims.size() + dropped.size() != static_cast<size_t>(rank) ||
      !are_unique_dims(config.offset_dims, static_cast<int64_t>(result_rank)) ||
      !std::is_sorted(config.offset_dims.begin(), config.offset_dims.end()) ||
      !are_unique_dims(config.start_index_map, rank) ||
      static_cast<int64_t>(config.start_index_map.size()) != indices.vector_size ||
      config.operand_batching_dims.size() != config.start_indices_batching_dims.size() ||
      !are_unique_dims(config.start_indices_batching_dims, start_indices.rank())) {
    return bad("the dimension numbers do not fit the shapes");
  }
  for (int64_t d = 0; d < rank; ++d) {
    if (config.slice_sizes[d] < 0 || config.slice_sizes[d] > operand.dims()[d] ||
        (contains(dropped, d) && config.slice_sizes[d] > 1)) {
      return bad(
          fmt::format("slice size {} in dimension {} does not fit", config.slice_sizes[d], d));
    }
  }
  for (size_t i = 0; i < config.operand_batching_dims.size(); ++i) {
    const int64_t d = config.start_indices_batching_dims[i];
    if (d == config.index_vector_dim ||
        start_indices.dims()[d] != operand.dims()[config.operand_batching_dims[i]]) {
      return bad("the batching dimensions of operand and indices differ");
    }
  }
  // Result dimensions: offset dims where they are named, batch dims in the others.
  Dims result_dims(result_rank), kept_dims, result_batch_dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (!contains(dropped, d)) kept_dims.push_back(d);
  }
  for (size_t i = 0; i < config.offset_dims.size(); ++i) {
    result_dims[config.offset_dims[i]] = config.slice_sizes[kept_dims[i]];
  }
  for (size_t d = 0; d < result_rank; ++d) {
    if (contains(config.offset_dims, static_cast<int64_t>(d))) continue;
    result_dims[d] = indices.batch_dims[result_batch_dims.size()];
    result_batch_dims.push_back(static_cast<int64_t>(d));
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), result_dims, false));
  if (result.size() == 0) return result;

  const Dims strides = row_major_strides(operand.dims());
  const Dims result_strides = row_major_strides(result_dims);
  Dims sizes, window_strides, window_result_strides, batch_result_strides;
  for (size_t i = 0; i < kept_dims.size(); ++i) {
    sizes.push_back(config.slice_sizes[kept_dims[i]]);
    window_strides.push_back(strides[kept_dims[i]]);
    window_result_strides.push_back(result_strides[config.offset_dims[i]]);
  }
  for (int64_t dim : result_batch_dims) batch_result_strides.push_back(result_strides[dim]);
  // What a batch index adds to the operand offset through the batching dimensions.
  Dims batching_strides(indices.batch_dims.size(), 0);
  for (size_t i = 0; i < config.operand_batching_dims.size(); ++i) {
    const int64_t d = config.start_indices_batching_dims[i];
    batching_strides[d > config.index_vector_dim ? d - 1 : d] +=
        strides[config.operand_batching_dims[i]];
  }
  const WindowRuns runs = window_runs(sizes, window_strides, window_result_strides);
  std::byte* const out_bytes = result.mutable_data();
  visit_element_size(operand.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* in = operand.as<T>();
    T* out = reinterpret_cast<T*>(out_bytes);
    for_each_index<3>(indices.batch_dims,
                      {indices.batch_strides, batch_result_strides, batching_strides},
                      [&](const std::array<int64_t, 3>& at) {
                        int64_t start = at[2];
                        for (int64_t k = 0; k < indices.vector_size; ++k) {
                          const int64_t d = config.start_index_map[k];
                          const int64_t index = indices.values[at[0] + k * indices.vector_stride];
                          const int64_t last = operand.dims()[d] - config.slice_sizes[d];
                          start += std::clamp<int64_t>(index, 0, last) * strides[d];
                        }
                        for (size_t r = 0; r < runs.array_offsets.size(); ++r) {
                          const T* from = in + start + runs.array_offsets[r];
                          T* to = out + at[1] + runs.other_offsets[r];
                          if (runs.run == 1) {
                            *to = *from;
                          } else {
                            std::memcpy(to, from, static_cast<size_t>(runs.run) * sizeof(T));
                          }
                        }
                      });
  });
  return result;
}

Result<HostArray> torch_index_select(const HostArray& operand, const HostArray& index, int64_t dim,
                                     int64_t batch_dims) {
  const auto bad = [&]() {
    return invalid_argument("torch_index_select of {} by {}: dim {} and {} batch dims do not fit",
                            operand.shape(), index.shape(), dim, batch_dims);
  };
  if (batch_dims < 0 || batch_dims > index.rank() || dim < batch_dims || dim >= operand.rank()) {
    return bad();
  }
  for (int64_t d = 0; d < batch_dims; ++d) {
    if (operand.dims()[d] != index.dims()[d]) return bad();
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> values, index_values(index));
  const auto product = [](const Dims& dims, int64_t from, int64_t to) {
    return element_count(
        std::span(dims).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
  };
  const int64_t batches = product(operand.dims(), 0, batch_dims);
  const int64_t before = product(operand.dims(), batch_dims, dim);
  const int64_t size = operand.dims()[dim];
  const int64_t after = product(operand.dims(), dim + 1, operand.rank());
  const int64_t picks = product(index.dims(), batch_dims, index.rank());
  Dims result_dims(operand.dims().begin(), operand.dims().begin() + dim);
  result_dims.insert(result_dims.end(), index.dims().begin() + batch_dims, index.dims().end());
  result_dims.insert(result_dims.end(), operand.dims().begin() + dim + 1, operand.dims().end());
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), result_dims, false));
  if (result.size() == 0) return result;
  if (size == 0) return bad();
  const size_t row_bytes = static_cast<size_t>(after * dtype_bytes(operand.dtype()));
  std::byte* out = result.mutable_data();
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t p = 0; p < before; ++p) {
      for (int64_t i = 0; i < picks; ++i, out += row_bytes) {
        const int64_t at = std::clamp<int64_t>(values[b * picks + i], 0, size - 1);
        std::memcpy(out,
                    operand.data() + static_cast<size_t>((b * before + p) * size + at) * row_bytes,
                    row_bytes);
      }
    }
  }
  return result;
}

}  // namespace hekla::reference
