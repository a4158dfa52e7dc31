// SPDX-License-Identifier: Apache-2.0
// Correctly rounded division, square root and rounding to whole numbers on devices whose own
// instructions are not exact.
//
// Division and square root find the exact integer quotient (root) and remainder of the mantissas:
// the device's instruction gives an estimate, and its error is measured modulo 2^width, which is
// exact because the error is small. Rounding, denormal results and overflow are then integer
// arithmetic, so a device that flushes denormals or has no fused multiply-add gives the same bits.
// The estimate may be off by 2.5 ULP (f32; f64: 2^-20 relative, refined by Newton's steps), as the
// Vulkan specification grants. Cost: about 90 integer instructions each.
//
// f32 division with FloatTarget::fused_multiply_add takes ten float operations instead: an estimate
// is corrected by exact remainders. Operands with exponents outside of -61 to 61 go the way above.
//
// `a` and `b` are the bits of values of `type` (kF32: 32 bits; kF64: 64, which takes shaderInt64).
#pragma once

#include "backends/vulkan/codegen/bits.h"

namespace hekla::vulkan::codegen {

Bits exact_divide(kernel::ScalarType type, Bits a, Bits b);
Bits exact_square_root(kernel::ScalarType type, Bits a);
// kFloor, kCeil, kTrunc, kRoundEven.
Bits exact_round(kernel::Op op, kernel::ScalarType type, Bits a);

}  // namespace hekla::vulkan::codegen
