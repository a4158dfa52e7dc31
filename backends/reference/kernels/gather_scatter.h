// SPDX-License-Identifier: Apache-2.0
// gather, scatter and torch_index_select. Indices may have any integer dtype; unsigned values are
// never read as negative ones. Names and meanings of the fields are those of StableHLO's
// attributes. A configuration that does not fit the shapes gives INVALID_ARGUMENT.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/scalar_function.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

inline bool contains(const Dims& dims, int64_t d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

struct GatherConfig {
  Dims offset_dims;
  Dims collapsed_slice_dims;
  Dims operand_batching_dims;
  Dims start_indices_batching_dims;
  Dims start_index_map;
  int64_t index_vector_dim = 0;
  Dims slice_sizes;
};
// Start indices are clamped so that each slice lies inside the operand.
Result<HostArray> gather(const HostArray& operand, const HostArray& start_indices,
                         const GatherConfig& config);

struct ScatterConfig {
  Dims update_window_dims;
  Dims inserted_window_dims;
  Dims input_batching_dims;
  Dims scatter_indices_batching_dims;
  Dims scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
};
// Variadic: inputs[i] is combined with updates[i] by update_computation(current..., update...) ->
// new values. Windows are applied in row-major order of their index, so the last one of an
// assignment wins. A window of which any part lies outside the operand is dropped whole, as XLA
// does (the specification drops single elements; the two differ only where a window straddles the
// edge). The result has the dtypes that update_computation returns.
Result<std::vector<HostArray>> scatter(std::span<const HostArray> inputs,
                                       const HostArray& scatter_indices,
                                       std::span<const HostArray> updates,
                                       const ScatterConfig& config,
                                       ScalarFunction& update_computation);

// result[batch..., i..., rest] = operand[batch..., index[batch..., i...], rest] along dimension
// `dim`; the first `batch_dims` dimensions are common. Indices are clamped, as XLA does.
Result<HostArray> torch_index_select(const HostArray& operand, const HostArray& index, int64_t dim,
                                     int64_t batch_dims);

}  // namespace hekla::reference
