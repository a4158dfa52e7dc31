// SPDX-License-Identifier: Apache-2.0
// A block of lines of a transform, compiled once for each level of vectors.
//
// Plain functions on memory of the caller; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/compiler/kernel/transform.h"

namespace hekla::cpu {

// Lines that go through the passes together, one a lane.
struct LineBlock {
  const kernel::Transform* transform = nullptr;
  const std::byte* roots = nullptr;
  // Elements of the first line, by the element type of each side; where `is_beside`, the other
  // lines lie side by side with it, else one after the other (inner is 1), or anywhere.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t first = 0;             // of the lines
  int64_t count = 0;             // of them, as many as lanes at most
  std::byte* scratch = nullptr;  // scratch_bytes, aligned to 64 bytes
};

// Of each of two buffers: a line in its passes, or half a spectrum.
inline int64_t buffer_elements(const kernel::Transform& t) { return t.passed_size() + 1; }

struct LineCode {
  int vector_bytes = 0;
  void (*run_f32)(const LineBlock&) = nullptr;
  void (*run_f64)(const LineBlock&) = nullptr;

  // Lines of a block.
  int64_t lanes(const kernel::Transform& t) const { return vector_bytes / dtype_bytes(t.part); }
  // Two buffers of complex vectors.
  int64_t scratch_bytes(const kernel::Transform& t) const {
    return 4 * buffer_elements(t) * vector_bytes;
  }
};

const LineCode& portable_lines();
const LineCode& avx2_lines();
const LineCode& avx512_lines();

}  // namespace hekla::cpu
