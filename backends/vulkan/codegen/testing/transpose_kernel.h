// SPDX-License-Identifier: Apache-2.0
// Kernels whose operands lie in other orders of dimensions than their results, of random sizes, for
// tests of schedules that transpose.
#pragma once

#include <cstdint>

#include "backends/compiler/kernel/testing/random_kernel.h"

namespace hekla::vulkan::testing {

// Of two to four dimensions: up to four operands of 1, 2, 4 and 8 bytes, each in an order of its
// own, are put together element by element and stored twice, as they are and halved.
kernel::testing::TestKernel transpose_kernel(uint64_t seed);

}  // namespace hekla::vulkan::testing
