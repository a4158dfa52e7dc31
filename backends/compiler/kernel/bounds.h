// SPDX-License-Identifier: Apache-2.0
// Bounds: between which numbers integers and conditions of the scalar IR lie. Pure; nothing fails.
#pragma once

#include <cstdint>
#include <span>

#include "backends/compiler/kernel/scalar.h"

namespace hekla::kernel {

// Both included, of signed values; conditions are 0 and 1. `is_exact`: the operation never wraps,
// so it gives what it gives for integers of any size.
struct Bounds {
  int64_t low = 0;
  int64_t high = 0;
  bool is_exact = true;
  bool is_one() const { return low == high; }
  bool operator==(const Bounds&) const = default;
};

// All values of a type; of a float all of 64 bits, which means nothing.
Bounds bounds_of(ScalarType type);
// The signed number that the bits of a constant are; of a condition 0 or 1.
int64_t number(ScalarType type, uint64_t bits);
// What an element in memory may hold.
Bounds bounds_of(const Access& access, ScalarType type);
// Of `op` on values within `arguments`, where `type` is the result's; of a select the condition is
// the first. Right for the arguments that scalar.h allows. Not for memory, loops and parameters.
Bounds bounds_of(Op op, ScalarType type, std::span<const Bounds> arguments);

}  // namespace hekla::kernel
