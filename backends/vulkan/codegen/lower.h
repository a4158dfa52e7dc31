// SPDX-License-Identifier: Apache-2.0
// Instructions of the scalar IR without memory and control flow, as SPIR-V. One thread.
#pragma once

#include <span>

#include "backends/vulkan/codegen/bits.h"

namespace hekla::vulkan::codegen {

// `from`: the type of the first argument (of a select: of the second).
spv::Id lower(Module& m, kernel::Op op, kernel::ScalarType type, kernel::ScalarType from,
              std::span<const spv::Id> arguments);

// The lower 32 bits of a value that is no boolean, and the value with them OR `word`, and plus
// `word` (which must not carry).
Bits low_word(Module& m, kernel::ScalarType type, spv::Id value);
spv::Id or_low_word(Module& m, kernel::ScalarType type, spv::Id value, Bits word);
spv::Id add_low_word(Module& m, kernel::ScalarType type, spv::Id value, Bits word);
// The value that the lane of this number has, of 32 or 64 bits.
spv::Id shuffle(Module& m, kernel::ScalarType type, spv::Id value, Bits lane);

}  // namespace hekla::vulkan::codegen
