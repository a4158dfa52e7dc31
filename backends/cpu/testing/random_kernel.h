// SPDX-License-Identifier: Apache-2.0
// Random kernels: well-typed, inside of their operands, over all ops, types and kinds of access,
// for comparing generated code with the interpreter. Equal seeds give equal kernels. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/kernel.h"

namespace hekla::cpu {

// How the elements of an operand are compared: NaNs of any payload are equal.
enum class ElementKind : uint8_t { kBits, kF32, kF64 };

struct RandomKernel {
  kernel::Kernel kernel;
  std::vector<ElementKind> kinds;                // of the operands
  std::vector<std::vector<std::byte>> contents;  // before the launch
};

// `with_fma`: Op::kFma may be rounded twice where the machine has none, so it is left out there.
RandomKernel make_random_kernel(uint64_t seed, bool with_fma);

// Numbers at the edges of the type: zeros, limits, infinities, NaN, denormals ... as bits.
const std::vector<uint64_t>& edge_values(kernel::ScalarType type);

// The first byte at which two contents of an operand differ; -1 when there is none.
int64_t first_difference(ElementKind kind, const std::vector<std::byte>& a,
                         const std::vector<std::byte>& b);

}  // namespace hekla::cpu
