// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "backends/reference/kernels/conflict_batch.h"
#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/reduction.h"
#include "backends/reference/kernels/region.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {
namespace {

using Arrays = std::vector<HostArray>;

// Numbers of a window beyond this are refused: sums and products of two stay far from overflow.
constexpr int64_t kLimit = int64_t{1} << 30;

// Fills in the defaults and checks against the rank.
Result<WindowConfig> complete(const char* op, const HostArray& operand, const WindowConfig& given) {
  WindowConfig config = given;
  const size_t rank = static_cast<size_t>(operand.rank());
  if (config.window_strides.empty()) config.window_strides.assign(rank, 1);
  if (config.base_dilations.empty()) config.base_dilations.assign(rank, 1);
  if (config.window_dilations.empty()) config.window_dilations.assign(rank, 1);
  if (config.padding.empty()) config.padding.assign(rank, {0, 0});
  bool fits = config.window_dimensions.size() == rank && config.window_strides.size() == rank &&
              config.base_dilations.size() == rank && config.window_dilations.size() == rank &&
              config.padding.size() == rank;
  for (size_t d = 0; fits && d < rank; ++d) {
    for (int64_t value : {config.window_dimensions[d], config.window_strides[d],
                          config.base_dilations[d], config.window_dilations[d]}) {
      fits = fits && value >= 1 && value <= kLimit;
    }
    for (int64_t value : config.padding[d]) fits = fits && value >= -kLimit && value <= kLimit;
    fits = fits && operand.dims()[d] <= kLimit;
  }
  if (!fits) {
    return invalid_argument(
        "{} of {}: window [{}], strides [{}], base dilations [{}], window dilations [{}] or the "
        "padding do not fit (each entry within 1 .. 2^30)",
        op, operand.shape(), fmt::join(config.window_dimensions, ","),
        fmt::join(config.window_strides, ","), fmt::join(config.base_dilations, ","),
        fmt::join(config.window_dilations, ","));
  }
  return config;
}

int64_t window_count(int64_t padded, int64_t window, int64_t dilation, int64_t stride) {
  const int64_t extent = (window - 1) * dilation + 1;
  return padded <= 0 || extent > padded ? 0 : (padded - extent) / stride + 1;
}

// array[begin : begin + size] along a dimension.
Result<HostArray> part(const HostArray& array, size_t dim, int64_t begin, int64_t size,
                       int64_t stride = 1) {
  SliceConfig config{Dims(array.dims().size(), 0), array.dims(), Dims(array.dims().size(), 1)};
  config.start_indices[dim] = begin;
  config.limit_indices[dim] = size == 0 ? begin : begin + (size - 1) * stride + 1;
  config.strides[dim] = stride;
  return slice(array, config);
}

Result<Arrays> combine_arrays(const ReducerRegion& region, const Arrays& left,
                              const Arrays& right) {
  Arrays results;
  std::vector<const std::byte*> l, r;
  std::vector<std::byte*> out;
  for (size_t i = 0; i < left.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray result,
                           HostArray::allocate(region.dtype(i), left[i].dims(), false));
    results.push_back(std::move(result));
    l.push_back(left[i].data());
    r.push_back(right[i].data());
  }
  for (HostArray& result : results) out.push_back(result.mutable_data());
  HEKLA_RETURN_IF_ERROR(region.combine(results.front().size(), l, r, out));
  return results;
}

Result<Arrays> parts(const Arrays& arrays, size_t dim, int64_t begin, int64_t size,
                     int64_t stride = 1) {
  Arrays result;
  for (const HostArray& array : arrays) {
    HEKLA_ASSIGN_OR_RETURN(HostArray piece, part(array, dim, begin, size, stride));
    result.push_back(std::move(piece));
  }
  return result;
}

// All windows along one dimension. Windows of 1, 2, 4 ... elements are made by doubling, and those
// that the binary digits of the window size name are joined from left to right.
Result<Arrays> reduce_dim(const ReducerRegion& region, Arrays arrays, size_t dim, int64_t window,
                          int64_t dilation, int64_t stride) {
  const int64_t count = window_count(arrays.front().dims()[dim], window, dilation, stride);
  Arrays result;  // the first `done` elements of every window
  int64_t done = 0;
  Arrays power = arrays;  // windows of `size` elements, at every start
  for (int64_t size = 1;; size *= 2) {
    if ((window & size) != 0) {
      HEKLA_ASSIGN_OR_RETURN(Arrays piece, parts(power, dim, done * dilation, count, stride));
      if (done == 0) {
        result = std::move(piece);
      } else {
        HEKLA_ASSIGN_OR_RETURN(result, combine_arrays(region, result, piece));
      }
      done += size;
    }
    if (done == window) return result;
    const int64_t shift = size * dilation;
    const int64_t length = power.front().dims()[dim] - shift;
    HEKLA_ASSIGN_OR_RETURN(Arrays left, parts(power, dim, 0, length));
    HEKLA_ASSIGN_OR_RETURN(Arrays right, parts(power, dim, shift, length));
    HEKLA_ASSIGN_OR_RETURN(power, combine_arrays(region, left, right));
  }
}

}  // namespace

Result<std::vector<HostArray>> reduce_window(std::span<const HostArray> inputs,
                                             std::span<const HostArray> init_values,
                                             const WindowConfig& given, ScalarFunction& body) {
  if (inputs.empty() || inputs.size() != init_values.size()) {
    return invalid_argument("reduce_window: {} inputs and {} init values", inputs.size(),
                            init_values.size());
  }
  const HostArray& first = inputs.front();
  HEKLA_ASSIGN_OR_RETURN(const WindowConfig config, complete("reduce_window", first, given));
  HEKLA_ASSIGN_OR_RETURN(ReducerRegion region,
                         ReducerRegion::create("reduce_window", body, inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dims() != first.dims() || init_values[i].size() != 1) {
      return invalid_argument("reduce_window: input {} is {}, input 0 is {}, the init value is {}",
                              i, inputs[i].shape(), first.shape(), init_values[i].shape());
    }
  }
  HEKLA_ASSIGN_OR_RETURN(Arrays arrays, region.widen(inputs));
  HEKLA_ASSIGN_OR_RETURN(const Arrays inits, region.widen(init_values));
  const size_t rank = first.dims().size();
  Dims result_dims(rank);
  PadConfig padding;
  bool is_empty = false;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = first.dims()[d];
    const int64_t dilated = size == 0 ? 0 : (size - 1) * config.base_dilations[d] + 1;
    const int64_t padded = dilated + config.padding[d][0] + config.padding[d][1];
    result_dims[d] = window_count(padded, config.window_dimensions[d], config.window_dilations[d],
                                  config.window_strides[d]);
    is_empty = is_empty || result_dims[d] == 0;
    padding.edge_padding_low.push_back(config.padding[d][0]);
    padding.edge_padding_high.push_back(config.padding[d][1]);
    padding.interior_padding.push_back(config.base_dilations[d] - 1);
  }
  Arrays starts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray start,
                           HostArray::allocate(region.dtype(i), result_dims, false));
    fill_elements(region.dtype(i), inits[i].data(), start.mutable_data(), start.size());
    starts.push_back(std::move(start));
  }
  if (is_empty) return starts;
  for (size_t i = 0; i < arrays.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(arrays[i], pad(arrays[i], inits[i], padding));
  }
  // Innermost first: each result is then a fold of the window in row-major order.
  for (size_t d = rank; d-- > 0;) {
    HEKLA_ASSIGN_OR_RETURN(arrays,
                           reduce_dim(region, std::move(arrays), d, config.window_dimensions[d],
                                      config.window_dilations[d], config.window_strides[d]));
  }
  return combine_arrays(region, starts, arrays);
}

Result<HostArray> select_and_scatter(const HostArray& operand, const HostArray& source,
                                     const HostArray& init_value, const WindowConfig& given,
                                     ScalarFunction& select, ScalarFunction& scatter) {
  HEKLA_ASSIGN_OR_RETURN(const WindowConfig config, complete("select_and_scatter", operand, given));
  HEKLA_ASSIGN_OR_RETURN(ReducerRegion region,
                         ReducerRegion::create("select_and_scatter", scatter, 1));
  const size_t rank = operand.dims().size();
  Dims windows(rank);
  for (size_t d = 0; d < rank; ++d) {
    windows[d] = window_count(operand.dims()[d] + config.padding[d][0] + config.padding[d][1],
                              config.window_dimensions[d], 1, config.window_strides[d]);
  }
  const bool select_fits = select.input_dtypes().size() == 2 &&
                           select.input_dtypes()[0] == operand.dtype() &&
                           select.input_dtypes()[1] == operand.dtype() &&
                           select.output_dtypes() == std::vector<DType>{DType::kI1};
  if (source.dims() != windows || init_value.size() != 1 || !select_fits) {
    return invalid_argument(
        "select_and_scatter of {}: the source {} does not fit {} windows, or the init value or the "
        "select region do not fit",
        operand.shape(), source.shape(), shape_string(source.dtype(), windows));
  }
  // The chosen element of each window: its offset in the operand (-1: none yet) and its value.
  const int64_t count = source.size();
  std::vector<int64_t> chosen(static_cast<size_t>(count), -1);
  const int64_t bytes = dtype_bytes(operand.dtype());
  HEKLA_ASSIGN_OR_RETURN(HostArray best, HostArray::allocate(operand.dtype(), windows));
  HEKLA_ASSIGN_OR_RETURN(HostArray candidate, HostArray::allocate(operand.dtype(), windows));
  HEKLA_ASSIGN_OR_RETURN(HostArray keeps, HostArray::allocate(DType::kI1, windows));
  std::vector<int64_t> offered(static_cast<size_t>(count));
  std::byte* best_data = best.mutable_data();
  std::byte* candidate_data = candidate.mutable_data();
  const Dims strides = row_major_strides(operand.dims());
  Dims tap(rank, 0);
  // Padding can make windows far larger than the operand; walking them would not end.
  constexpr int64_t kMostTaps = int64_t{1} << 32;
  int64_t taps = count == 0 ? 0 : 1;
  for (int64_t size : config.window_dimensions) {
    if (__builtin_mul_overflow(taps, size, &taps) || taps > kMostTaps) {
      return out_of_range("select_and_scatter of {}: windows of more than 2^32 elements",
                          operand.shape());
    }
  }
  for (int64_t t = 0; t < taps; ++t) {
    int64_t rest = t;
    for (size_t d = rank; d-- > 0;) {
      tap[d] = rest % config.window_dimensions[d];
      rest /= config.window_dimensions[d];
    }
    Dims index(rank, 0);
    for (int64_t w = 0; w < count; ++w) {
      int64_t offset = 0;
      bool is_inside = true;
      for (size_t d = 0; d < rank; ++d) {
        const int64_t at = index[d] * config.window_strides[d] + tap[d] - config.padding[d][0];
        is_inside = is_inside && at >= 0 && at < operand.dims()[d];
        offset += at * strides[d];
      }
      offered[w] = is_inside ? offset : -1;
      if (is_inside) {
        std::copy_n(operand.data() + offset * bytes, bytes, candidate_data + w * bytes);
      }
      for (size_t d = rank; d-- > 0;) {
        if (++index[d] < windows[d]) break;
        index[d] = 0;
      }
    }
    for (int64_t start = 0; start < count; start += kRegionBlock) {
      const std::byte* in[] = {best_data + start * bytes, candidate_data + start * bytes};
      std::byte* out[] = {keeps.mutable_data() + start};
      HEKLA_RETURN_IF_ERROR(select.apply(std::min(kRegionBlock, count - start), in, out));
    }
    const uint8_t* keep = keeps.as<uint8_t>();
    for (int64_t w = 0; w < count; ++w) {
      if (offered[w] < 0 || (chosen[w] >= 0 && keep[w] != 0)) continue;
      chosen[w] = offered[w];
      std::copy_n(candidate_data + w * bytes, bytes, best_data + w * bytes);
    }
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray init, convert_elements(init_value, region.dtype(0)));
  HEKLA_ASSIGN_OR_RETURN(HostArray updates, convert_elements(source, region.dtype(0)));
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(region.dtype(0), operand.dims(), false));
  fill_elements(region.dtype(0), init.data(), result.mutable_data(), result.size());
  HEKLA_ASSIGN_OR_RETURN(ConflictBatch batch,
                         ConflictBatch::create(region, std::span<HostArray>(&result, 1),
                                               std::span<const HostArray>(&updates, 1)));
  for (int64_t w = 0; w < count; ++w) {
    if (chosen[w] >= 0) HEKLA_RETURN_IF_ERROR(batch.add(chosen[w], w));
  }
  HEKLA_RETURN_IF_ERROR(batch.flush());
  return result;
}

}  // namespace hekla::reference
