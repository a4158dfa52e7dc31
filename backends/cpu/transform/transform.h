// SPDX-License-Identifier: Apache-2.0
// A Fourier transform of many lines, prepared for a processor: blocks of lines, one line a lane of
// a vector. Cheap to make, immutable; run by any thread, which may run all blocks or share them
// with the pool.
#pragma once

#include <atomic>
#include <cstddef>

#include "backends/cpu/transform/lines.h"

namespace hekla::cpu {

class PreparedTransform {
 public:
  // `transform` outlives it. `vector_bits`: of the level of instructions.
  PreparedTransform(const kernel::Transform& transform, int vector_bits);

  // Memory of the sizes that kernel/transform.h names; `to` overlaps none. With `is_parallel` the
  // pool helps; once `cancelled` (may be null) is true the blocks that no thread has begun are left
  // out. Throws
  // std::bad_alloc where there is no memory for two buffers a thread.
  void run(const std::byte* from, const std::byte* roots, std::byte* to, bool is_parallel,
           const std::atomic<bool>* cancelled) const;
  double estimated_ns() const { return static_cast<double>(blocks_) * block_ns_; }

 private:
  void run_blocks(int64_t begin, int64_t end, LineBlock block,
                  const std::atomic<bool>* cancelled) const;

  const kernel::Transform& transform_;
  const LineCode& code_;
  int64_t row_blocks_ = 0;  // of the lines that lie side by side, or of all where few do
  int64_t row_lines_ = 0;
  int64_t blocks_ = 0;
  double block_ns_ = 0;
};

}  // namespace hekla::cpu
