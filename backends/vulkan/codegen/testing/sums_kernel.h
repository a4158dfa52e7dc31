// SPDX-License-Identifier: Apache-2.0
// Kernels with sums of products that a team owns (kernel::SumsAccess), of every form, with operands
// whose sums are exact in any order. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/kernel.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan::testing {

// Each of `teams` multiplies a block of its own twice, the sums scaled by a factor for each row
// between, and stores them `strip` columns at a time.
struct SumsCase {
  DType dtype = DType::kF16;
  uint32_t teams = 1, subgroups = 1;
  uint32_t rows = 0, columns = 0, depth = 0;
  uint32_t strip = 0;
  bool is_by_column = false;
};
// Those that a device with this shape has.
std::vector<SumsCase> sums_cases(const MatrixShape& shape);

struct SumsKernel {
  kernel::Kernel kernel;
  kernel::testing::Buffers contents;  // left, right, factors, result
};
SumsKernel sums_kernel(const SumsCase& c, uint32_t lanes, uint64_t seed);

}  // namespace hekla::vulkan::testing
