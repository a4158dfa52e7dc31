// SPDX-License-Identifier: Apache-2.0
// Quantized values: arrays of their storage integers, as uniform quantization says,
// real = (stored - zero_point) * scale with one scale and zero point per tensor or per index of one
// dimension. Operations on them compute on the real values in the expressed dtype and quantize the
// result; those that only move elements work on the storage.
#pragma once

#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

// `dtype()` of the type, or what its values express when it is quantized.
DType real_dtype(const ir::Type& type);

// The real values, in the expressed dtype. Computed in f32 where that is f32 or smaller.
Result<HostArray> dequantize(const HostArray& stored, const ir::Quantization& quantization);
// round_to_even(clamp(x / scale + zero_point)) to the storage range; NaN becomes the zero point.
// `real` has the expressed dtype.
Result<HostArray> quantize(const HostArray& real, const ir::Quantization& quantization);

// Whether an operand or a result is quantized.
bool has_quantized(const ir::Operation& op);
// Whether the evaluator runs an operation with quantized operands or results; UNIMPLEMENTED with
// the type in words when not.
Status check_quantized(const ir::Operation& op);
// Operations that compute on the real values: elementwise ones, dot, dot_general and convolution.
bool computes_on_real_values(const ir::Operation& op);

}  // namespace hekla::reference
