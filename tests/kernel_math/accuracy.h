// SPDX-License-Identifier: Apache-2.0
// Measures the error of the shared functions in units of the last place (ULP).
//
// f32 is compared with the C library's double functions, whose own error is below 2^-28 ULP of
// f32, f64 with libquadmath's. One ULP is the distance of neighbouring numbers at the exact result.
#pragma once

#include <string>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "runtime/base/dtype.h"
#include "runtime/program/ir/op_code.h"

namespace hekla::kernel {

// A result that should be infinite, NaN or zero of the other sign and is not counts as this much.
inline constexpr double kWrong = 1e30;

struct Accuracy {
  double max_ulp = 0;
  double x = 0, y = 0;  // where; y for two arguments
  double result = 0;
  double wanted = 0;
  int64_t points = 0;
};

// The functions measured: one or two arguments, kF32 and kF64.
std::vector<ir::OpCode> measured_functions();
// `density`: points per binade of each sign, for f32; f64 takes a part of it.
Accuracy measure(ir::OpCode code, DType dtype, Fma fma, int density);

}  // namespace hekla::kernel
