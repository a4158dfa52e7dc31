// SPDX-License-Identifier: Apache-2.0
// Changing the element type of whole arrays, for kernels that compute in a wider type than they
// store, and for regions whose types are wider than the operands.
#pragma once

#include "runtime/base/host_array.h"

namespace hekla::reference {

// Element-wise conversion by StableHLO's `convert`: floats round to nearest even (once, from their
// exact value), float to integer truncates and saturates with NaN = 0, integers wrap, to i1 is
// x != 0, complex to real drops the imaginary part. The same dtype returns the array itself.
Result<HostArray> convert_elements(const HostArray& array, DType dtype);

// The dtype that the kernels compute `dtype` in: f32 for smaller floats, else the dtype itself.
DType compute_dtype(DType dtype);

}  // namespace hekla::reference
