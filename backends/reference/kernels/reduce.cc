// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/reduction.h"
#include "backends/reference/kernels/region.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {
namespace {

// Elements folded one after the other before the partial results are combined: short enough that
// the error of a float sum grows with the logarithm of its length.
constexpr int64_t kRun = 32;
// From this width on rows are folded as they lie; narrower data is first spread over more columns.
constexpr int64_t kWide = 64;

using Arrays = std::vector<HostArray>;

Result<Arrays> allocate_all(const ReducerRegion& region, const Dims& dims) {
  Arrays result;
  for (size_t i = 0; i < region.count(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(region.dtype(i), dims, false));
    result.push_back(std::move(array));
  }
  return result;
}

// Folds `rows` rows of `width` elements in order into one row. The rows of array i start at in[i],
// `width` elements apart; the result goes to out[i].
Status fold_rows(const ReducerRegion& region, int64_t rows, int64_t width,
                 const std::vector<const std::byte*>& in, const std::vector<std::byte*>& out) {
  const size_t n = region.count();
  std::vector<std::vector<std::byte>> scratch(2 * n);
  for (size_t i = 0; i < 2 * n; ++i) {
    scratch[i].resize(
        static_cast<size_t>(std::min(width, kRegionBlock) * dtype_bytes(region.dtype(i % n))));
  }
  std::vector<const std::byte*> left(n), right(n);
  std::vector<std::byte*> target(n);
  for (int64_t start = 0; start < width; start += kRegionBlock) {
    const int64_t count = std::min(kRegionBlock, width - start);
    for (size_t i = 0; i < n; ++i) left[i] = in[i] + start * dtype_bytes(region.dtype(i));
    for (int64_t row = 1; row < rows; ++row) {
      for (size_t i = 0; i < n; ++i) {
        const int64_t bytes = dtype_bytes(region.dtype(i));
        right[i] = in[i] + (row * width + start) * bytes;
        target[i] = row + 1 == rows ? out[i] + start * bytes
                                    : scratch[static_cast<size_t>(row % 2) * n + i].data();
      }
      HEKLA_RETURN_IF_ERROR(region.combine(count, left, right, target));
      for (size_t i = 0; i < n; ++i) left[i] = target[i];
    }
    if (rows == 1) {
      for (size_t i = 0; i < n; ++i) {
        const int64_t bytes = dtype_bytes(region.dtype(i));
        std::memcpy(out[i] + start * bytes, left[i], static_cast<size_t>(count * bytes));
      }
    }
  }
  return ok_status();
}

// Arrays of [length, width] -> [1, width].
Result<Arrays> reduce_rows(const ReducerRegion& region, Arrays arrays, int64_t length,
                           int64_t width) {
  while (length > 1) {
    const int64_t run = std::min(kRun, length);
    const int64_t partials = length / run;
    const int64_t rest = length % run;
    HEKLA_ASSIGN_OR_RETURN(Arrays next, allocate_all(region, {partials + rest, width}));
    std::vector<const std::byte*> in(arrays.size());
    std::vector<std::byte*> out(arrays.size());
    for (int64_t p = 0; p < partials; ++p) {
      for (size_t i = 0; i < arrays.size(); ++i) {
        const int64_t row_bytes = width * dtype_bytes(region.dtype(i));
        in[i] = arrays[i].data() + p * run * row_bytes;
        out[i] = next[i].mutable_data() + p * row_bytes;
      }
      HEKLA_RETURN_IF_ERROR(fold_rows(region, run, width, in, out));
    }
    for (size_t i = 0; i < arrays.size(); ++i) {
      const int64_t row_bytes = width * dtype_bytes(region.dtype(i));
      std::memcpy(next[i].mutable_data() + partials * row_bytes,
                  arrays[i].data() + partials * run * row_bytes,
                  static_cast<size_t>(rest * row_bytes));
    }
    arrays = std::move(next);
    length = partials + rest;
  }
  return arrays;
}

// Arrays of [width, length] -> [width, 1]. Runs of each row become columns, so that a call of the
// region gets width * length / run elements.
Result<Arrays> reduce_narrow(const ReducerRegion& region, Arrays arrays, int64_t length,
                             int64_t width) {
  while (length > 1) {
    const int64_t run = std::min(kRun, length);
    const int64_t partials = length / run;
    const int64_t rest = length % run;
    const int64_t columns = width * partials;
    HEKLA_ASSIGN_OR_RETURN(Arrays spread, allocate_all(region, {run, columns}));
    HEKLA_ASSIGN_OR_RETURN(Arrays folded, allocate_all(region, {columns}));
    HEKLA_ASSIGN_OR_RETURN(Arrays next, allocate_all(region, {width, partials + rest}));
    std::vector<const std::byte*> in(arrays.size());
    std::vector<std::byte*> out(arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      copy_strided(region.dtype(i), Dims{run, width, partials}, arrays[i].data(),
                   Dims{1, length, run}, spread[i].mutable_data(), Dims{columns, partials, 1});
      in[i] = spread[i].data();
      out[i] = folded[i].mutable_data();
    }
    HEKLA_RETURN_IF_ERROR(fold_rows(region, run, columns, in, out));
    for (size_t i = 0; i < arrays.size(); ++i) {
      const int64_t bytes = dtype_bytes(region.dtype(i));
      std::byte* target = next[i].mutable_data();
      copy_strided(region.dtype(i), Dims{width, partials}, folded[i].data(), Dims{partials, 1},
                   target, Dims{partials + rest, 1});
      copy_strided(region.dtype(i), Dims{width, rest}, arrays[i].data() + partials * run * bytes,
                   Dims{length, 1}, target + partials * bytes, Dims{partials + rest, 1});
    }
    arrays = std::move(next);
    length = partials + rest;
  }
  return arrays;
}

}  // namespace

Result<std::vector<HostArray>> reduce(std::span<const HostArray> inputs,
                                      std::span<const HostArray> init_values,
                                      std::span<const int64_t> dimensions, ScalarFunction& body) {
  if (inputs.empty() || inputs.size() != init_values.size()) {
    return invalid_argument("reduce: {} inputs and {} init values", inputs.size(),
                            init_values.size());
  }
  HEKLA_ASSIGN_OR_RETURN(ReducerRegion region,
                         ReducerRegion::create("reduce", body, inputs.size()));
  const Dims& dims = inputs.front().dims();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dims() != dims || init_values[i].size() != 1) {
      return invalid_argument("reduce: input {} is {}, input 0 is {}, the init value is {}", i,
                              inputs[i].shape(), inputs.front().shape(), init_values[i].shape());
    }
  }
  if (!are_unique_dims(dimensions, inputs.front().rank())) {
    return invalid_argument("reduce of {}: [{}] are not unique dimensions of it",
                            inputs.front().shape(), fmt::join(dimensions, ","));
  }
  Dims kept, reduced, result_dims;
  for (int64_t d = 0; d < inputs.front().rank(); ++d) {
    const bool is_reduced = std::find(dimensions.begin(), dimensions.end(), d) != dimensions.end();
    (is_reduced ? reduced : kept).push_back(d);
    if (!is_reduced) result_dims.push_back(dims[d]);
  }
  int64_t length = 1;
  for (int64_t d : reduced) length *= dims[d];
  const int64_t width = element_count(result_dims);
  HEKLA_ASSIGN_OR_RETURN(Arrays results, allocate_all(region, result_dims));
  HEKLA_ASSIGN_OR_RETURN(const Arrays inits, region.widen(init_values));
  if (width == 0) return results;
  Arrays starts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray start,
                           HostArray::allocate(region.dtype(i), result_dims, false));
    fill_elements(region.dtype(i), inits[i].data(), start.mutable_data(), width);
    starts.push_back(std::move(start));
  }
  if (length == 0) return starts;

  HEKLA_ASSIGN_OR_RETURN(Arrays arrays, region.widen(inputs));
  Dims order = width >= kWide ? reduced : kept;
  const Dims& second = width >= kWide ? kept : reduced;
  order.insert(order.end(), second.begin(), second.end());
  for (HostArray& array : arrays) {
    HEKLA_ASSIGN_OR_RETURN(array, transpose(array, order));
  }
  if (width >= kWide) {
    HEKLA_ASSIGN_OR_RETURN(arrays, reduce_rows(region, std::move(arrays), length, width));
  } else {
    HEKLA_ASSIGN_OR_RETURN(arrays, reduce_narrow(region, std::move(arrays), length, width));
  }
  std::vector<const std::byte*> left, right;
  std::vector<std::byte*> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    left.push_back(starts[i].data());
    right.push_back(arrays[i].data());
    out.push_back(results[i].mutable_data());
  }
  HEKLA_RETURN_IF_ERROR(region.combine(width, left, right, out));
  return results;
}

Result<HostArray> map(std::span<const HostArray> inputs, ScalarFunction& computation) {
  const std::vector<DType>& in = computation.input_dtypes();
  if (inputs.empty() || in.size() != inputs.size() || computation.output_dtypes().size() != 1) {
    return invalid_argument("map: {} inputs for a computation of {} values with {} results",
                            inputs.size(), in.size(), computation.output_dtypes().size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dims() != inputs.front().dims() || inputs[i].dtype() != in[i]) {
      return invalid_argument("map: input {} is {}, input 0 is {}, the computation takes {}", i,
                              inputs[i].shape(), inputs.front().shape(), dtype_name(in[i]));
    }
  }
  const DType dtype = computation.output_dtypes()[0];
  HEKLA_ASSIGN_OR_RETURN(HostArray result,
                         HostArray::allocate(dtype, inputs.front().dims(), false));
  const BlockBody body(computation);
  std::byte* const data = result.mutable_data();
  std::vector<const std::byte*> at(inputs.size());
  for (int64_t start = 0; start < result.size(); start += kRegionBlock) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      at[i] = inputs[i].data() + start * dtype_bytes(in[i]);
    }
    std::byte* out = data + start * dtype_bytes(dtype);
    HEKLA_RETURN_IF_ERROR(body->apply(std::min(kRegionBlock, result.size() - start), at,
                                      std::span<std::byte* const>(&out, 1)));
  }
  return result;
}

}  // namespace hekla::reference
