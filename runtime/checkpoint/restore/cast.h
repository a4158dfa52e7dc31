// SPDX-License-Identifier: Apache-2.0
// Changing the element type of an array on its way out of a checkpoint, with one rounding.
//
// Pure functions; any thread.
#pragma once

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"

namespace hekla::checkpoint {

// Whether cast knows a way: float to float, complex to complex, real to complex, integer or boolean
// to anything. Not float to integer and not complex to real: what becomes of the rest is a decision
// for the program.
bool can_cast(DType from, DType to);

// The array with elements of `to`. Floats are rounded to nearest, ties to even, by float_to_bits of
// dtype.h, also from integers above 2^53. INVALID_ARGUMENT: see can_cast. OUT_OF_RANGE: an integer
// that `to`, an integer or boolean, cannot hold (the first one is named). RESOURCE_EXHAUSTED.
Result<HostArray> cast(const HostArray& array, DType to);

}  // namespace hekla::checkpoint
