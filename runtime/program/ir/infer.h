// SPDX-License-Identifier: Apache-2.0
// infer_result_types: StableHLO's constraints on one operation, and the result types that follow.
//
// For ops whose result types follow from operands and attributes they are computed; for the others
// (reshape, convert, iota, custom_call ...) the declared ones are checked and returned. A dimension
// that cannot be known is kDynamic. Every failure is INVALID_ARGUMENT and names the op, what it
// wants, what it has, and the location. Pure and thread-safe.
#pragma once

#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir {

Result<std::vector<Type>> infer_result_types(const Operation& op);

// The extent of a window's output along one dimension, after StableHLO's definition: the dilated,
// padded base holds that many windows of the dilated size at the given stride. kDynamic if `base`
// is; 0 when the window does not fit. Strides and dilations are positive, the size may be 0.
int64_t window_output_size(int64_t base, int64_t base_dilation, int64_t pad_low, int64_t pad_high,
                           int64_t window, int64_t window_dilation, int64_t stride);

// Whether a value of type `actual` may stand where `expected` is wanted: equal up to dimensions
// that one of them does not know, and up to bounds.
bool are_compatible(const Type& actual, const Type& expected);

}  // namespace hekla::ir
