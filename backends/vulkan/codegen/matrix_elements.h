// SPDX-License-Identifier: Apache-2.0
// What products on matrix units do to single elements: rounding of sums, pieces of operands
// (kernel::Pieces) and sums of them, by the scalar code that all kernels are made of. Values are
// 32 bits each. One thread a module; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/builder.h"
#include "backends/vulkan/codegen/bits.h"
#include "runtime/base/dtype.h"

namespace hekla::vulkan::codegen {

// The bits of an f32 as those of bf16 or f16, rounded as a conversion of its own would round them.
Bits rounded(Bits number, DType type);

// The bits of `count` pieces of an f32: the number rounded to `type`, what is left, rounded, and so
// on. Infinity and NaN are in the first piece, the others are zeros then; numbers that bf16 would
// round to infinity are cut off instead.
std::vector<Bits> pieces_of(Bits number, DType type, uint32_t count);
// Its scalar code, from the number's bits.
std::vector<kernel::Value> pieces_of(kernel::Builder& b, kernel::Value bits, DType type,
                                     uint32_t count);

// The sum, in f32, of the products of first pieces and the sum of all others. Where the former is
// infinite or NaN it is the result: the latter may have infinity times a piece that is 0.
Bits whole_sum(Bits first, Bits rest);
kernel::Value whole_sum(kernel::Builder& b, kernel::Value first, kernel::Value rest);

}  // namespace hekla::vulkan::codegen
