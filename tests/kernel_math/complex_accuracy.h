// SPDX-License-Identifier: Apache-2.0
// Measures the error of the complex functions against libquadmath.
#pragma once

#include <complex>
#include <string>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "runtime/base/dtype.h"
#include "runtime/program/ir/op_code.h"

namespace hekla::kernel {

struct ComplexAccuracy {
  // Of the greater part's ULP, the distance of the result; and of each part's own.
  double max_norm = 0;
  double max_part = 0;
  std::string where_norm, where_part;
  int64_t points = 0;
};

std::vector<ir::OpCode> measured_complex_functions();
ComplexAccuracy measure_complex(ir::OpCode code, DType dtype, Fma fma, int points);

}  // namespace hekla::kernel
