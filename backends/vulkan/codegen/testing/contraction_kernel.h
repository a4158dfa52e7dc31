// SPDX-License-Identifier: Apache-2.0
// Contractions as the compiler lowers them, of random sizes, for tests of tiled schedules.
#pragma once

#include "backends/compiler/kernel/testing/random_kernel.h"

namespace hekla::vulkan::testing {

struct ContractionShape {
  int64_t batch = 1, rows = 1, columns = 1, depth = 1;
  int64_t tile_rows = 1;       // rows of one grid point; the last of the grid repeats rows
  bool is_float = true;        // f32 by mul and add, else i32
  bool is_narrow = false;      // the right operand has elements of 2 bytes
  bool is_transposed = false;  // the right operand is [columns, depth]
  bool is_nested = false;      // the depth is cut in two loops, the inner of 4 iterations
};
// Sizes from 1 to a little above the tiles of any schedule.
ContractionShape random_contraction(uint64_t seed);
// out[b, m, n] = bias[n] + sum over k of left[b, m, k] * right[b, k, n].
kernel::testing::TestKernel contraction_kernel(const ContractionShape& shape, uint64_t seed);

}  // namespace hekla::vulkan::testing
