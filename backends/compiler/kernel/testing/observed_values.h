// SPDX-License-Identifier: Apache-2.0
// ObservedValues: all that a kernel computes, to hold analyses of its index arithmetic to.
//
// Runs the kernel in the interpreter and keeps each integer value at each point and iteration.
// Memory grows with points times iterations times instructions: for small kernels. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/testing/random_kernel.h"

namespace hekla::kernel::testing {

class ObservedValues {
 public:
  // Where a value was computed: grid indices, then iterations of the loops around, outermost first.
  using Position = std::vector<int64_t>;

  // The kernel must stay inside of its operands.
  explicit ObservedValues(const TestKernel& test);

  // Integers as signed numbers, truth values as 0 and 1; floats are not kept.
  const std::map<Position, int64_t>& of(Value v) const { return values_[static_cast<size_t>(v)]; }

  // For each pair of places that differ in component `which` of the position alone, by `step`:
  // f(value here, value there). Loop iterations count on behind the grid's dimensions.
  void for_pairs(Value v, size_t which, int64_t step,
                 const std::function<void(int64_t, int64_t)>& f) const;

 private:
  std::vector<std::map<Position, int64_t>> values_;  // by Value
};

}  // namespace hekla::kernel::testing
