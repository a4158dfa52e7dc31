// SPDX-License-Identifier: Apache-2.0
// Memory of large arrays that live for a moment: what one gives back another takes, so that the
// kernel does not clear the same pages for each of them, in large pages where it has any.
//
// Idle memory is kHeld bytes at most, and what nobody has taken for kIdleFor goes when the next is
// given back. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/base/host_array.h"

namespace hekla {

class Staging {
 public:
  // Smaller arrays are allocated as any other.
  static constexpr int64_t kLeastBytes = int64_t{1} << 20;
  static constexpr int64_t kHeld = int64_t{256} << 20;
  static constexpr std::chrono::seconds kIdleFor{10};

  // Uninitialized, in memory of its own. OUT_OF_RANGE: a bad shape; RESOURCE_EXHAUSTED: no memory.
  static Result<HostArray> allocate(DType dtype, Dims dims);
  // What is held and not in use.
  static int64_t idle_bytes();
};

}  // namespace hekla
