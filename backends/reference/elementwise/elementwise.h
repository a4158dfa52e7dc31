// SPDX-License-Identifier: Apache-2.0
// Elementwise ops on whole arrays, for every dtype that StableHLO allows.
//
// Operands are taken by value: one that is moved in and owns its bytes alone is overwritten with
// the result where the element sizes match. Shapes and dtypes were checked by the verifier; what an
// op does not do for a dtype is UNIMPLEMENTED. Arithmetic follows StableHLO, and XLA's CPU where
// the specification leaves room: integers wrap, x / 0 is -1 and x % 0 is x, shifts beyond the width
// give 0 or the sign, float to integer saturates with NaN = 0. Floats below 32 bits are computed in
// f32, functions of f32 in f64, and each result is rounded once.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/op_code.h"

namespace hekla::reference {

// abs, cbrt, ceil, cosine, count_leading_zeros, exponential, ... tanh, real, imag, is_finite, not,
// popcnt. convert is convert_elements() of the kernels.
Result<HostArray> unary(ir::OpCode code, HostArray x);

// Rounds to a format of that many bits and back; floats only.
Result<HostArray> reduce_precision(HostArray x, int64_t exponent_bits, int64_t mantissa_bits);

// add ... xor, power, remainder, atan2, shifts, and complex (two floats to a complex number).
Result<HostArray> binary(ir::OpCode code, HostArray a, HostArray b);

enum class Direction : uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };
// From "EQ" and so on; INVALID_ARGUMENT for another word.
Result<Direction> direction_from_name(std::string_view name);
// `total_order`: floats by their bits, -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
Result<HostArray> compare(Direction direction, bool total_order, const HostArray& a,
                          const HostArray& b);

// `predicate` has the shape of the others, or one element.
Result<HostArray> select(const HostArray& predicate, HostArray on_true, HostArray on_false);
// `low` and `high` have the shape of `x`, or one element.
Result<HostArray> clamp(const HostArray& low, HostArray x, const HostArray& high);

// The bytes of `x` as another dtype, whose width may differ: the last dimension of the narrower
// side counts the parts. Handles types below eight bits.
Result<HostArray> bitcast_convert(HostArray x, DType result, const Dims& result_dims);

}  // namespace hekla::reference
