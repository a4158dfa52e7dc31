// SPDX-License-Identifier: Apache-2.0
// MatrixUnit: what a device's matrix units do at once, as far as kernels with sums of products
// (scalar.h) depend on it. Plain data.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace hekla::kernel {

// Sums[rows, columns] in f32 of products of `depth` operands, by a subgroup of `lanes` points.
struct MatrixUnit {
  DType operands = DType::kF16;
  int64_t rows = 0, columns = 0, depth = 0;
  int64_t lanes = 0;
  // Such products that stand in the code of one block: software takes long to compile each.
  int64_t most_products = 0;
};

}  // namespace hekla::kernel
