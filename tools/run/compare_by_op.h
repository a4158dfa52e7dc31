// SPDX-License-Identifier: Apache-2.0
// compare_by_op: which operation of a program a device computes otherwise than another one.
//
// The reference device runs the program and gives all values of its entry function. Then the device
// runs each operation as a program of its own on the reference's operands: the first one whose
// result differs is the first wrong one, whatever came before. Operations inside loops, branches
// and called functions belong to the one that holds them. Blocking; equal operations on equal
// shapes are compiled once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/client/client.h"
#include "tools/run/compare.h"

namespace hekla::tools {

struct OpComparison {
  int64_t operations = 0;  // that were compared
  int64_t skipped = 0;     // with values that are no tensors of static shape
  // The first that differs: "stablehlo.add (operation 7 of 12, f.py:3:5), result 0 f32[2]: element
  // [1]: got 3, want 4, tolerance ...". Empty when none does.
  std::string difference;
};

// Tolerances that are not given are those of the dtype, in the size of the result's greatest value.
// Errors name the device or the operation.
Result<OpComparison> compare_by_op(std::string_view program, const std::vector<HostArray>& inputs,
                                   const runtime::Client& device, const runtime::Client& reference,
                                   std::optional<double> rtol, std::optional<double> atol);

}  // namespace hekla::tools
