// SPDX-License-Identifier: Apache-2.0
// The parameters of a program, read with the compiler's own reader; for inputs made at random.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::tools {

struct ParameterShape {
  DType dtype = DType::kInvalid;
  Dims dims;
};

// INVALID_ARGUMENT: the program does not read, has no entry, or a parameter without static shape.
Result<std::vector<ParameterShape>> parameter_shapes(std::string_view program);

// One array per parameter: floats uniform in [-1, 1), integers in [0, 10) or what the dtype holds,
// booleans at random.
Result<std::vector<HostArray>> random_inputs(const std::vector<ParameterShape>& shapes,
                                             uint64_t seed);

}  // namespace hekla::tools
