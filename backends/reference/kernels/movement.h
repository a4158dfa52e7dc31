// SPDX-License-Identifier: Apache-2.0
// Kernels that move elements and compute nothing: they work on any dtype. Names and meanings of the
// arguments are those of StableHLO's ops and attributes.
//
// Arguments that do not fit the operand's shape give INVALID_ARGUMENT, a result that does not fit
// into memory RESOURCE_EXHAUSTED or OUT_OF_RANGE.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/host_array.h"

namespace hekla::reference {

struct PadConfig {
  Dims edge_padding_low;   // may be negative: crops, after interior padding
  Dims edge_padding_high;  // may be negative
  Dims interior_padding;   // not negative; empty: all 0
};
// `padding_value` is a scalar of the operand's dtype.
Result<HostArray> pad(const HostArray& operand, const HostArray& padding_value,
                      const PadConfig& config);

struct SliceConfig {
  Dims start_indices;
  Dims limit_indices;  // exclusive
  Dims strides;        // positive; empty: all 1
};
Result<HostArray> slice(const HostArray& operand, const SliceConfig& config);

// One input or more, of equal dtype and equal dims but for `dimension`.
Result<HostArray> concatenate(std::span<const HostArray> inputs, int64_t dimension);

Result<HostArray> reverse(const HostArray& operand, std::span<const int64_t> dimensions);

// Result dimension d is operand dimension permutation[d].
Result<HostArray> transpose(const HostArray& operand, std::span<const int64_t> permutation);

// Operand dimension d goes to result dimension broadcast_dimensions[d], in any order; size 1
// expands.
Result<HostArray> broadcast_in_dim(const HostArray& operand,
                                   std::span<const int64_t> broadcast_dimensions,
                                   const Dims& result_dims);

// Values are computed in the element type: integers wrap, floats round; imaginary parts are 0.
Result<HostArray> iota(DType dtype, const Dims& dims, int64_t iota_dimension);

// One scalar integer index per dimension, of any integer dtype, clamped so that the slice fits.
Result<HostArray> dynamic_slice(const HostArray& operand, std::span<const HostArray> start_indices,
                                std::span<const int64_t> slice_sizes);
// Writes in place when `operand` is the only owner of its bytes: move it in.
Result<HostArray> dynamic_update_slice(HostArray operand, const HostArray& update,
                                       std::span<const HostArray> start_indices);

// Element `position` of an integer array of any dtype; ui64 above the largest int64 saturates.
int64_t index_at(const HostArray& indices, int64_t position);

}  // namespace hekla::reference
