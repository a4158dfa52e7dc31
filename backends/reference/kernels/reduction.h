// SPDX-License-Identifier: Apache-2.0
// reduce, reduce_window, select_and_scatter and map: kernels that run a region over blocks of
// elements. Regions are expected to be associative, as StableHLO asks; operands are combined in
// row-major order but grouped as a tree, so that float sums keep their accuracy and every call of
// the region gets a long block. The grouping depends on shapes alone.
//
// Operands are converted to the region's argument dtypes first; results have the dtypes that the
// region returns. Names and meanings are those of StableHLO's operands and attributes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/scalar_function.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// body: n accumulators, then n elements -> n values. init_values are scalars; each is combined
// once, from the left, into every result.
Result<std::vector<HostArray>> reduce(std::span<const HostArray> inputs,
                                      std::span<const HostArray> init_values,
                                      std::span<const int64_t> dimensions, ScalarFunction& body);

struct WindowConfig {
  Dims window_dimensions;
  Dims window_strides;                          // empty: all 1
  Dims base_dilations;                          // empty: all 1; not of select_and_scatter
  Dims window_dilations;                        // empty: all 1; not of select_and_scatter
  std::vector<std::array<int64_t, 2>> padding;  // low, high; may be negative; empty: all 0
};
// Padding and the holes of base dilation hold the init values. Each dimension costs
// O(elements * log(window size)), so cumulative sums written as windows are cheap.
Result<std::vector<HostArray>> reduce_window(std::span<const HostArray> inputs,
                                             std::span<const HostArray> init_values,
                                             const WindowConfig& config, ScalarFunction& body);

// select: (chosen so far, candidate) -> i1, true keeps the one so far; scatter: (sum so far, source
// element) -> new sum. Padding is never selected; a window that holds only padding drops its source
// element. Source elements are added in row-major order, starting from init_value.
Result<HostArray> select_and_scatter(const HostArray& operand, const HostArray& source,
                                     const HostArray& init_value, const WindowConfig& config,
                                     ScalarFunction& select, ScalarFunction& scatter);

// All inputs have the same dims; the computation returns one value.
Result<HostArray> map(std::span<const HostArray> inputs, ScalarFunction& computation);

}  // namespace hekla::reference
