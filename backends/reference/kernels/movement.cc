// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/reference/kernels/dispatch.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {
namespace {

std::string list(std::span<const int64_t> values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

int64_t offset_of(std::span<const int64_t> index, std::span<const int64_t> strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

Result<Dims> clamped_starts(const char* op, const HostArray& operand,
                            std::span<const HostArray> start_indices,
                            std::span<const int64_t> sizes) {
  if (static_cast<int64_t>(start_indices.size()) != operand.rank() ||
      static_cast<int64_t>(sizes.size()) != operand.rank()) {
    return invalid_argument("{} of {}: {} start indices and {} sizes do not fit the rank", op,
                            operand.shape(), start_indices.size(), sizes.size());
  }
  Dims starts(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!is_integer(start_indices[d].dtype()) || start_indices[d].size() != 1) {
      return invalid_argument("{} of {}: start index {} is {}, not an integer scalar", op,
                              operand.shape(), d, start_indices[d].shape());
    }
    if (sizes[d] < 0 || sizes[d] > operand.dims()[d]) {
      return invalid_argument("{} of {}: size {} in dimension {} is not within the operand", op,
                              operand.shape(), sizes[d], d);
    }
    starts[d] = std::clamp<int64_t>(index_at(start_indices[d], 0), 0, operand.dims()[d] - sizes[d]);
  }
  return starts;
}

}  // namespace

int64_t index_at(const HostArray& indices, int64_t position) {
  return visit_dtype(indices.dtype(), [&](auto codec) -> int64_t {
    using Codec = decltype(codec);
    const auto value = codec.load(indices.as<typename Codec::Storage>()[position]);
    if constexpr (std::is_same_v<typename Codec::Compute, uint64_t>) {
      return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
    } else if constexpr (std::is_integral_v<typename Codec::Compute>) {
      return static_cast<int64_t>(value);
    } else {
      die_of_bad_result(internal_error("indices of dtype {}", dtype_name(indices.dtype())));
    }
  });
}

Result<HostArray> pad(const HostArray& operand, const HostArray& padding_value,
                      const PadConfig& config) {
  const size_t rank = static_cast<size_t>(operand.rank());
  Dims interior = config.interior_padding;
  if (interior.empty()) interior.assign(rank, 0);
  if (config.edge_padding_low.size() != rank || config.edge_padding_high.size() != rank ||
      interior.size() != rank) {
    return invalid_argument("pad of {}: low {}, high {}, interior {} do not fit the rank",
                            operand.shape(), list(config.edge_padding_low),
                            list(config.edge_padding_high), list(interior));
  }
  if (padding_value.dtype() != operand.dtype() || padding_value.size() != 1) {
    return invalid_argument("pad of {}: the padding value is {}, not a scalar of that dtype",
                            operand.shape(), padding_value.shape());
  }
  Dims result_dims(rank), counts(rank), first(rank), in_strides(rank), out_strides(rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = operand.dims()[d];
    int64_t dilated = 0;
    int64_t step = 0;
    if (interior[d] < 0 || __builtin_add_overflow(interior[d], 1, &step) ||
        __builtin_mul_overflow(std::max<int64_t>(size - 1, 0), step, &dilated) ||
        __builtin_add_overflow(dilated, size > 0 ? 1 : 0, &dilated) ||
        __builtin_add_overflow(dilated, config.edge_padding_low[d], &result_dims[d]) ||
        __builtin_add_overflow(result_dims[d], config.edge_padding_high[d], &result_dims[d]) ||
        result_dims[d] < 0) {
      return invalid_argument(
          "pad of {}: low {}, high {}, interior {} give no size in dimension {}", operand.shape(),
          config.edge_padding_low[d], config.edge_padding_high[d], interior[d], d);
    }
    // The operand elements i with 0 <= low + i * step < result size.
    const int64_t low = config.edge_padding_low[d];
    first[d] = low >= 0 ? 0 : (-low + step - 1) / step;
    const int64_t room = result_dims[d] - 1 - low;  // the largest allowed i * step
    const int64_t last = room < 0 ? -1 : std::min(size - 1, room / step);
    counts[d] = std::max<int64_t>(0, last - first[d] + 1);
    out_strides[d] = step;
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), result_dims, false));
  std::byte* out = result.mutable_data();
  fill_elements(operand.dtype(), padding_value.data(), out, result.size());
  if (element_count(counts) == 0) return result;
  const Dims operand_strides = row_major_strides(operand.dims());
  const Dims result_strides = row_major_strides(result_dims);
  int64_t in_offset = 0;
  int64_t out_offset = 0;
  for (size_t d = 0; d < rank; ++d) {
    in_offset += first[d] * operand_strides[d];
    out_offset += (config.edge_padding_low[d] + first[d] * out_strides[d]) * result_strides[d];
    out_strides[d] *= result_strides[d];
  }
  const int64_t bytes = dtype_bytes(operand.dtype());
  copy_strided(operand.dtype(), counts, operand.data() + in_offset * bytes, operand_strides,
               out + out_offset * bytes, out_strides);
  return result;
}

Result<HostArray> slice(const HostArray& operand, const SliceConfig& config) {
  const size_t rank = static_cast<size_t>(operand.rank());
  Dims steps = config.strides;
  if (steps.empty()) steps.assign(rank, 1);
  if (config.start_indices.size() != rank || config.limit_indices.size() != rank ||
      steps.size() != rank) {
    return invalid_argument("slice of {}: starts {}, limits {}, strides {} do not fit the rank",
                            operand.shape(), list(config.start_indices), list(config.limit_indices),
                            list(steps));
  }
  Dims result_dims(rank), in_strides = row_major_strides(operand.dims());
  const int64_t offset = offset_of(config.start_indices, in_strides);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t start = config.start_indices[d];
    const int64_t limit = config.limit_indices[d];
    if (start < 0 || limit < start || limit > operand.dims()[d] || steps[d] < 1) {
      return invalid_argument("slice of {}: {}:{}:{} in dimension {} is not within the operand",
                              operand.shape(), start, limit, steps[d], d);
    }
    result_dims[d] = limit == start ? 0 : (limit - start - 1) / steps[d] + 1;
    in_strides[d] = result_dims[d] > 1 ? in_strides[d] * steps[d] : 0;
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), result_dims, false));
  if (result.size() == 0) return result;
  copy_strided(operand.dtype(), result_dims, operand.data() + offset * dtype_bytes(operand.dtype()),
               in_strides, result.mutable_data(), row_major_strides(result_dims));
  return result;
}

Result<HostArray> concatenate(std::span<const HostArray> inputs, int64_t dimension) {
  if (inputs.empty()) return invalid_argument("concatenate needs one input or more");
  const HostArray& first = inputs.front();
  if (dimension < 0 || dimension >= first.rank()) {
    return invalid_argument("concatenate of {}: there is no dimension {}", first.shape(),
                            dimension);
  }
  Dims result_dims = first.dims();
  result_dims[dimension] = 0;
  for (const HostArray& input : inputs) {
    Dims expected = first.dims();
    if (input.rank() == first.rank()) expected[dimension] = input.dims()[dimension];
    if (input.dtype() != first.dtype() || input.dims() != expected) {
      return invalid_argument("concatenate along {}: {} does not fit {}", dimension, input.shape(),
                              first.shape());
    }
    if (__builtin_add_overflow(result_dims[dimension], input.dims()[dimension],
                               &result_dims[dimension])) {
      return out_of_range("concatenate of {}: the result is too large", first.shape());
    }
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(first.dtype(), result_dims, false));
  std::byte* out = result.mutable_data();
  const Dims result_strides = row_major_strides(result_dims);
  for (const HostArray& input : inputs) {
    copy_strided(first.dtype(), input.dims(), input.data(), row_major_strides(input.dims()), out,
                 result_strides);
    out += input.dims()[dimension] * result_strides[dimension] * dtype_bytes(first.dtype());
  }
  return result;
}

Result<HostArray> reverse(const HostArray& operand, std::span<const int64_t> dimensions) {
  if (!are_unique_dims(dimensions, operand.rank())) {
    return invalid_argument("reverse of {}: dimensions {} are not unique dimensions of it",
                            operand.shape(), list(dimensions));
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), operand.dims(), false));
  if (result.size() == 0) return result;
  const Dims strides = row_major_strides(operand.dims());
  Dims in_strides = strides;
  int64_t offset = 0;
  for (int64_t d : dimensions) {
    offset += (operand.dims()[d] - 1) * strides[d];
    in_strides[d] = -strides[d];
  }
  copy_strided(operand.dtype(), operand.dims(),
               operand.data() + offset * dtype_bytes(operand.dtype()), in_strides,
               result.mutable_data(), strides);
  return result;
}

Result<HostArray> transpose(const HostArray& operand, std::span<const int64_t> permutation) {
  if (static_cast<int64_t>(permutation.size()) != operand.rank() ||
      !is_permutation_of_dims(permutation)) {
    return invalid_argument("transpose of {}: {} is not a permutation of its dimensions",
                            operand.shape(), list(permutation));
  }
  if (std::is_sorted(permutation.begin(), permutation.end())) return operand;
  const Dims strides = row_major_strides(operand.dims());
  Dims result_dims, in_strides;
  for (int64_t d : permutation) {
    result_dims.push_back(operand.dims()[d]);
    in_strides.push_back(strides[d]);
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), result_dims, false));
  copy_strided(operand.dtype(), result_dims, operand.data(), in_strides, result.mutable_data(),
               row_major_strides(result_dims));
  return result;
}

Result<HostArray> broadcast_in_dim(const HostArray& operand,
                                   std::span<const int64_t> broadcast_dimensions,
                                   const Dims& result_dims) {
  const int64_t result_rank = static_cast<int64_t>(result_dims.size());
  bool fits = static_cast<int64_t>(broadcast_dimensions.size()) == operand.rank() &&
              are_unique_dims(broadcast_dimensions, result_rank);
  for (size_t d = 0; fits && d < broadcast_dimensions.size(); ++d) {
    const int64_t size = operand.dims()[d];
    fits = size == 1 || size == result_dims[broadcast_dimensions[d]];
  }
  if (!fits) {
    return invalid_argument("broadcast_in_dim of {} to {} by dimensions {}: they do not fit",
                            operand.shape(), shape_string(operand.dtype(), result_dims),
                            list(broadcast_dimensions));
  }
  const Dims strides = row_major_strides(operand.dims());
  Dims in_strides(result_dims.size(), 0);
  for (size_t d = 0; d < broadcast_dimensions.size(); ++d) {
    if (operand.dims()[d] != 1) in_strides[broadcast_dimensions[d]] = strides[d];
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(operand.dtype(), result_dims, false));
  copy_strided(operand.dtype(), result_dims, operand.data(), in_strides, result.mutable_data(),
               row_major_strides(result_dims));
  return result;
}

Result<HostArray> iota(DType dtype, const Dims& dims, int64_t iota_dimension) {
  const int64_t rank = static_cast<int64_t>(dims.size());
  if (iota_dimension < 0 || iota_dimension >= rank) {
    return invalid_argument("iota of {}: there is no dimension {}", shape_string(dtype, dims),
                            iota_dimension);
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(dtype, dims, false));
  if (result.size() == 0) return result;
  const int64_t size = dims[iota_dimension];
  const Dims strides = row_major_strides(dims);
  HostArray row(dtype, {size});
  visit_dtype(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Compute = typename Codec::Compute;
    auto* out = row.mutable_as<typename Codec::Storage>();
    for (int64_t i = 0; i < size; ++i) {
      if constexpr (kIsComplex<Compute>) {
        out[i] = Compute(static_cast<typename Compute::value_type>(i), 0);
      } else if constexpr (std::is_same_v<Compute, float> &&
                           !std::is_same_v<typename Codec::Storage, float>) {
        // Through double: a second rounding would be wrong from 2^24 on.
        out[i] = static_cast<typename Codec::Storage>(float_to_bits(dtype, static_cast<double>(i)));
      } else {
        out[i] = codec.store(static_cast<Compute>(i));
      }
    }
  });
  Dims in_strides(dims.size(), 0);
  in_strides[iota_dimension] = 1;
  copy_strided(dtype, dims, row.data(), in_strides, result.mutable_data(), strides);
  return result;
}

Result<HostArray> dynamic_slice(const HostArray& operand, std::span<const HostArray> start_indices,
                                std::span<const int64_t> slice_sizes) {
  HEKLA_ASSIGN_OR_RETURN(Dims starts,
                         clamped_starts("dynamic_slice", operand, start_indices, slice_sizes));
  SliceConfig config{starts, starts, {}};
  for (size_t d = 0; d < slice_sizes.size(); ++d) config.limit_indices[d] += slice_sizes[d];
  return slice(operand, config);
}

Result<HostArray> dynamic_update_slice(HostArray operand, const HostArray& update,
                                       std::span<const HostArray> start_indices) {
  if (update.dtype() != operand.dtype()) {
    return invalid_argument("dynamic_update_slice of {}: the update {} has another dtype",
                            operand.shape(), update.shape());
  }
  HEKLA_ASSIGN_OR_RETURN(
      Dims starts, clamped_starts("dynamic_update_slice", operand, start_indices, update.dims()));
  if (update.size() == 0) return operand;
  const Dims strides = row_major_strides(operand.dims());
  const Dims update_strides = row_major_strides(update.dims());
  std::byte* out = operand.mutable_data();
  copy_strided(operand.dtype(), update.dims(), update.data(), update_strides,
               out + offset_of(starts, strides) * dtype_bytes(operand.dtype()), strides);
  return operand;
}

}  // namespace hekla::reference
