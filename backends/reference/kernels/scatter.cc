// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backends/reference/kernels/conflict_batch.h"
#include "backends/reference/kernels/gather_scatter.h"
#include "backends/reference/kernels/index_space.h"
#include "backends/reference/kernels/region.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {

Result<std::vector<HostArray>> scatter(std::span<const HostArray> inputs,
                                       const HostArray& scatter_indices,
                                       std::span<const HostArray> updates,
                                       const ScatterConfig& config,
                                       ScalarFunction& update_computation) {
  if (inputs.empty() || inputs.size() != updates.size()) {
    return invalid_argument("scatter: {} inputs and {} updates", inputs.size(), updates.size());
  }
  const HostArray& input = inputs.front();
  const HostArray& update = updates.front();
  const auto bad = [&](std::string_view what) {
    return invalid_argument("scatter of {} into {} by {}: {}", update.shape(), input.shape(),
                            scatter_indices.shape(), what);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dims() != input.dims() || updates[i].dims() != update.dims()) {
      return bad("the inputs or the updates have different dims");
    }
  }
  HEKLA_ASSIGN_OR_RETURN(ReducerRegion region,
                         ReducerRegion::create("scatter", update_computation, inputs.size()));
  HEKLA_ASSIGN_OR_RETURN(const IndexVectors indices,
                         index_vectors(scatter_indices, config.index_vector_dim));
  const int64_t rank = input.rank();
  Dims dropped = config.inserted_window_dims;
  dropped.insert(dropped.end(), config.input_batching_dims.begin(),
                 config.input_batching_dims.end());
  if (!are_unique_dims(dropped, rank) ||
      config.update_window_dims.size() + dropped.size() != static_cast<size_t>(rank) ||
      !are_unique_dims(config.update_window_dims, update.rank()) ||
      !std::is_sorted(config.update_window_dims.begin(), config.update_window_dims.end()) ||
      update.dims().size() != indices.batch_dims.size() + config.update_window_dims.size() ||
      !are_unique_dims(config.scatter_dims_to_operand_dims, rank) ||
      static_cast<int64_t>(config.scatter_dims_to_operand_dims.size()) != indices.vector_size ||
      config.input_batching_dims.size() != config.scatter_indices_batching_dims.size() ||
      !are_unique_dims(config.scatter_indices_batching_dims, scatter_indices.rank())) {
    return bad("the dimension numbers do not fit the shapes");
  }
  for (size_t i = 0; i < config.input_batching_dims.size(); ++i) {
    const int64_t d = config.scatter_indices_batching_dims[i];
    if (d == config.index_vector_dim ||
        scatter_indices.dims()[d] != input.dims()[config.input_batching_dims[i]]) {
      return bad("the batching dimensions of input and indices differ");
    }
  }
  const Dims strides = row_major_strides(input.dims());
  const Dims update_strides = row_major_strides(update.dims());
  Dims sizes, window_strides, window_update_strides, batch_update_strides;
  Dims window(static_cast<size_t>(rank), 1);  // its size in every dimension of the input
  for (int64_t d = 0; d < rank; ++d) {
    if (contains(dropped, d)) continue;
    const int64_t from = config.update_window_dims[sizes.size()];
    window[d] = update.dims()[from];
    if (window[d] > input.dims()[d]) return bad("the update window is larger than the input");
    sizes.push_back(window[d]);
    window_strides.push_back(strides[d]);
    window_update_strides.push_back(update_strides[from]);
  }
  for (int64_t d = 0; d < update.rank(); ++d) {
    if (contains(config.update_window_dims, d)) continue;
    if (update.dims()[d] != indices.batch_dims[batch_update_strides.size()]) {
      return bad("the updates do not have the batch dims of the indices");
    }
    batch_update_strides.push_back(update_strides[d]);
  }
  Dims batching_strides(indices.batch_dims.size(), 0);
  for (size_t i = 0; i < config.input_batching_dims.size(); ++i) {
    const int64_t d = config.scatter_indices_batching_dims[i];
    batching_strides[d > config.index_vector_dim ? d - 1 : d] +=
        strides[config.input_batching_dims[i]];
  }

  HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> results, region.widen(inputs));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> sources, region.widen(updates));
  if (update.size() == 0) return results;
  HEKLA_ASSIGN_OR_RETURN(ConflictBatch batch, ConflictBatch::create(region, results, sources));
  const WindowRuns runs = window_runs(sizes, window_strides, window_update_strides);
  Status status;
  for_each_index<3>(
      indices.batch_dims, {indices.batch_strides, batch_update_strides, batching_strides},
      [&](const std::array<int64_t, 3>& at) {
        if (!status.ok()) return;
        int64_t start = at[2];
        for (int64_t k = 0; k < indices.vector_size; ++k) {
          const int64_t d = config.scatter_dims_to_operand_dims[k];
          const int64_t index = indices.values[at[0] + k * indices.vector_stride];
          if (index < 0 || index > input.dims()[d] - window[d]) return;
          start += index * strides[d];
        }
        for (size_t r = 0; r < runs.array_offsets.size(); ++r) {
          for (int64_t i = 0; i < runs.run; ++i) {
            status =
                batch.add(start + runs.array_offsets[r] + i, at[1] + runs.other_offsets[r] + i);
            if (!status.ok()) return;
          }
        }
      });
  HEKLA_RETURN_IF_ERROR(status);
  HEKLA_RETURN_IF_ERROR(batch.flush());
  return results;
}

}  // namespace hekla::reference
