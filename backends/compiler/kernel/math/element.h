// SPDX-License-Identifier: Apache-2.0
// Elements of StableHLO dtypes as values of the scalar IR, and what every elementwise op computes.
//
// The one place where numeric meaning is spelled out for all devices. How an element of a dtype
// lives in scalar values:
//
//   i1                       kBool
//   i2 .. i32, ui2 .. ui32   kI32, sign- or zero-extended from the dtype's width
//   i64, ui64                kI64
//   f4 .. f8, bf16, f16,     kF32 holding a value that the dtype can represent: every op is
//   tf32                     computed in f32 and rounded to the dtype
//   f32, f64                 kF32, kF64
//   complex                  two of the above, in `re` and `im`
//
// Functions append instructions to the Builder and return values; they are pure but for stores.
// nullopt says that there is no expansion for this op and dtype; nothing is appended that anybody
// would use. Integers wrap, x / 0 is -1 and x % 0 is x, shifts beyond the width give 0 or the sign,
// float to integer saturates with NaN = 0, minimum and maximum propagate NaN and order -0 < +0.
// Accuracy of the functions: docs/numerics.md. One thread per Builder; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "backends/compiler/kernel/builder.h"
#include "runtime/base/dtype.h"
#include "runtime/program/ir/op_code.h"

namespace hekla::kernel {

struct Element {
  Value re = kNoValue;
  Value im = kNoValue;  // complex dtypes only
};

// The type of an element's values (of each part, for complex dtypes).
ScalarType scalar_type(DType dtype);

// Memory is as in runtime/base/dtype.h; `index` counts elements and has an integer type, in which
// twice the index fits for complex dtypes. Values stored must be elements of the dtype, as every
// function here returns them.
Element load_element(Builder& b, DType dtype, int32_t operand, Value index);
void store_element(Builder& b, DType dtype, int32_t operand, Value index, const Element& element);
// From dtype_bytes(dtype) bytes in memory form.
Element constant_element(Builder& b, DType dtype, const std::byte* bytes);
// Of an integer, wrapped, or a float, rounded; 0 and 1 in any dtype.
Element integer_element(Builder& b, DType dtype, int64_t value);

// `value` (kF32 for dtypes below 64 bits) rounded to a float dtype, once, to nearest even. What
// does not fit becomes infinity, NaN or the largest value as float_to_bits of dtype.h says.
Value round_to_dtype(Builder& b, DType dtype, Value value);
// The bits of an element that is no complex number, zero-extended, and back: kI32 below 64 bits.
Value element_bits(Builder& b, DType dtype, const Element& element);
Element element_from_bits(Builder& b, DType dtype, Value bits);

// StableHLO's `convert`: floats round once, to nearest even; to an integer they truncate and
// saturate; a complex number loses its imaginary part; i1 is "not zero".
Element convert_element(Builder& b, const Element& x, DType from, DType to);

// abs ... tanh, real, imag, is_finite, not, popcnt. `dtype` is the operand's; abs, real and imag of
// a complex number give its part's dtype, is_finite gives i1.
std::optional<Element> unary(Builder& b, ir::OpCode code, DType dtype, const Element& x);
// add ... xor, power, remainder, atan2, shifts, complex (of two floats).
std::optional<Element> binary(Builder& b, ir::OpCode code, DType dtype, const Element& x,
                              const Element& y);

enum class Direction : uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };
// From "EQ" and so on.
std::optional<Direction> direction_from_name(std::string_view name);
// An i1. `total_order`: floats by sign and magnitude, -NaN < -inf < ... < -0 < +0 < ... < NaN.
// Complex numbers: by real part, then by imaginary part.
Value compare(Builder& b, Direction direction, bool total_order, DType dtype, const Element& x,
              const Element& y);

Element select(Builder& b, Value predicate, const Element& on_true, const Element& on_false);
// minimum(maximum(x, low), high).
std::optional<Element> clamp(Builder& b, DType dtype, const Element& low, const Element& x,
                             const Element& high);
// Rounds a float to a format of that many bits and back; nullopt for other dtypes.
std::optional<Element> reduce_precision(Builder& b, DType dtype, const Element& x,
                                        int64_t exponent_bits, int64_t mantissa_bits);
// The same bits as another dtype of the same width; nullopt for other pairs.
std::optional<Element> bitcast(Builder& b, const Element& x, DType from, DType to);

}  // namespace hekla::kernel
