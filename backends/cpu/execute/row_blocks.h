// SPDX-License-Identifier: Apache-2.0
// PreparedRows: how a plan::RowsStep runs on the processor.
//
// A task takes a block of rows through all of the group's steps, so that what they hand each other
// stays in its cache. Where a contraction leads, it runs as ever, and the thread that ends the last
// sum of a block takes it through the other steps. Scratch slices are memory of the thread, and
// their place in the arena is never touched: kernels get a pointer at which row 0 would lie.
// Immutable; run by any number of threads at once. Each thread keeps scratch for its largest block:
// std::bad_alloc when there is none.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/cpu/contraction/contraction.h"
#include "backends/cpu/jit/kernel_compiler.h"

namespace hekla::cpu {

// Work below this is done by one thread: waking another costs about as much.
inline constexpr double kSplitNs = 20'000;
// What a thread takes at a time.
inline constexpr double kPieceNs = 10'000;

// Blocks that suit all steps of a group and the cache; none (rows 0) where its steps run one after
// the other.
RowBlocks choose_blocks(const plan::RowsStep& step, const plan::LaunchPlan& plan, int vector_bits);

class PreparedRows {
 public:
  using Address = std::function<std::byte*(const plan::Slice&)>;

  // One of both.
  struct PreparedStep {
    const CompiledKernel* kernel = nullptr;            // compiled for the blocks
    const PreparedContraction* contraction = nullptr;  // by rows
  };

  // `prepared`: each step; what it names outlives this.
  PreparedRows(const plan::RowsStep& step, const RowBlocks& blocks,
               const std::vector<PreparedStep>& prepared);

  // `is_parallel` and `cancelled`: see RunOptions. Once `cancelled` is true no thread begins
  // another block.
  void run(const Address& address, bool is_parallel,
           const std::atomic<bool>* cancelled = nullptr) const;
  // On one thread.
  double estimated_ns() const { return static_cast<double>(blocks_.count()) * block_ns_; }

 private:
  static constexpr int32_t kNoScratch = -1;
  struct Operand {
    plan::Slice slice;
    int32_t scratch = kNoScratch;
  };
  struct Part {
    const CompiledKernel* kernel = nullptr;
    const PreparedContraction* contraction = nullptr;
    kernel::RowsOf rows_of = kernel::RowsOf::kNone;
    size_t operands = 0;  // the first of its operands
  };
  struct Scratch {
    int64_t row_bytes = 0;
    int64_t offset = 0;  // of a block's, in the thread's memory
  };

  void run_block(int64_t block, const std::vector<const std::byte*>& addresses) const;
  void run_led(const std::vector<const std::byte*>& addresses, bool is_parallel,
               const std::atomic<bool>* cancelled) const;
  // Where a block begins; of the number of blocks: where the last one ends.
  int64_t first_row(int64_t block) const {
    return block == blocks_.count() ? blocks_.rows : block * blocks_.size;
  }

  const RowBlocks blocks_;
  const bool is_led_;
  std::vector<Part> parts_;
  std::vector<Operand> operands_;
  std::vector<Scratch> scratch_;
  int64_t scratch_bytes_ = 0;
  double block_ns_ = 0;
};

}  // namespace hekla::cpu
