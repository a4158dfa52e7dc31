// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/row_blocks.h"

#include <algorithm>
#include <bit>

#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

using plan::Slice;

// Of all slices of a block: half of the second-level cache of a current core.
constexpr int64_t kBlockBytes = 256 * 1024;
// With contractions: every block packs what all rows need, which costs as much as a dozen rows.
constexpr int64_t kProductBlockBytes = 2 * 1024 * 1024;
constexpr int64_t kFewestRows = 8;    // of a block: a vector of them for reductions
constexpr int64_t kFewestBlocks = 8;  // so that threads have something to share
constexpr size_t kAlignment = 64;

struct alignas(kAlignment) Line {
  std::byte bytes[kAlignment];
};

std::byte* thread_scratch(int64_t bytes) {
  thread_local std::vector<Line> mine;
  const size_t lines = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment;
  if (mine.size() < lines) mine.resize(lines);
  return reinterpret_cast<std::byte*>(mine.data());
}

}  // namespace

RowBlocks choose_blocks(const plan::RowsStep& step, const plan::LaunchPlan& plan, int vector_bits) {
  const bool has_products =
      !step.is_led() &&
      std::any_of(step.steps.begin(), step.steps.end(), [](const plan::Step& each) {
        return std::holds_alternative<plan::ContractionStep>(each.what);
      });
  const int64_t fitting =
      (has_products ? kProductBlockBytes : kBlockBytes) / std::max<int64_t>(step.row_bytes, 1);
  const int64_t most = std::max(std::min(fitting, step.rows / kFewestBlocks), kFewestRows);
  auto size = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  // Reductions of fewer rows at a time cost more than the group saves.
  for (; size >= kFewestRows; size /= 2) {
    const RowBlocks blocks{step.rows, std::min(size, step.rows)};
    const bool fits = std::all_of(step.steps.begin(), step.steps.end(), [&](const auto& each) {
      const auto* run = std::get_if<plan::KernelStep>(&each.what);
      return run == nullptr ||
             has_blocks(plan.kernels[static_cast<size_t>(run->kernel)], vector_bits, blocks);
    });
    if (fits) return blocks;
  }
  return {};
}

PreparedRows::PreparedRows(const plan::RowsStep& step, const RowBlocks& blocks,
                           const std::vector<PreparedStep>& prepared)
    : blocks_(blocks), is_led_(step.is_led()) {
  // The last block is the largest.
  const int64_t most_rows = blocks.rows - (blocks.count() - 1) * blocks.size;
  for (const Slice& slice : step.scratch) {
    const Scratch scratch{slice.bytes / step.rows, scratch_bytes_};
    const auto alignment = static_cast<int64_t>(kAlignment);
    scratch_bytes_ += (scratch.row_bytes * most_rows + alignment - 1) / alignment * alignment;
    scratch_.push_back(scratch);
  }
  for (size_t i = 0; i < step.steps.size(); ++i) {
    const auto add = [&](const Slice& slice) {
      const auto it = std::find(step.scratch.begin(), step.scratch.end(), slice);
      const auto number = static_cast<int32_t>(it - step.scratch.begin());
      operands_.push_back({slice, it == step.scratch.end() ? kNoScratch : number});
    };
    Part part{prepared[i].kernel, prepared[i].contraction, kernel::RowsOf::kNone, operands_.size()};
    if (const auto* product = std::get_if<plan::ContractionStep>(&step.steps[i].what)) {
      part.rows_of = product->rows_of;
      const double share = static_cast<double>(blocks.size) / static_cast<double>(blocks.rows);
      block_ns_ += part.contraction->estimated_ns() * share;
      for (const Slice& slice : {product->lhs, product->rhs, product->out}) add(slice);
    } else {
      const Schedule& schedule = part.kernel->schedule;
      block_ns_ += static_cast<double>(schedule.block_units) * schedule.unit_ns;
      const auto& run = std::get<plan::KernelStep>(step.steps[i].what);
      for (const Slice& slice : run.operands) add(slice);
    }
    parts_.push_back(part);
  }
}

void PreparedRows::run(const Address& address, bool is_parallel,
                       const std::atomic<bool>* cancelled) const {
  std::vector<const std::byte*> addresses;
  for (const Operand& operand : operands_) {
    addresses.push_back(operand.scratch == kNoScratch ? address(operand.slice) : nullptr);
  }
  if (is_led_) return run_led(addresses, is_parallel, cancelled);
  const auto run_blocks = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) return;
      run_block(block, addresses);
    }
  };
  if (!is_parallel || estimated_ns() < kSplitNs) return run_blocks(0, blocks_.count());
  const auto grain = static_cast<int64_t>(kPieceNs / block_ns_);
  ThreadPool::process_pool().for_ranges(blocks_.count(), grain, run_blocks);
}

void PreparedRows::run_led(const std::vector<const std::byte*>& addresses, bool is_parallel,
                           const std::atomic<bool>* cancelled) const {
  const Part& leader = parts_[0];
  const int64_t sums_of_row = leader.contraction->sums_of_row(leader.rows_of);
  // Sums of each block that are not final yet. Who takes the last ones sees all of them.
  std::vector<std::atomic<int64_t>> left(static_cast<size_t>(blocks_.count()));
  for (int64_t b = 0; b < blocks_.count(); ++b) {
    left[static_cast<size_t>(b)] = (first_row(b + 1) - first_row(b)) * sums_of_row;
  }
  const auto done = [&](int64_t first, int64_t count, int64_t each) {
    int64_t block = std::min(first / blocks_.size, blocks_.count() - 1);
    for (; block < blocks_.count() && first_row(block) < first + count; ++block) {
      const int64_t rows =
          std::min(first + count, first_row(block + 1)) - std::max(first, first_row(block));
      std::atomic<int64_t>& of_block = left[static_cast<size_t>(block)];
      if (of_block.fetch_sub(rows * each) == rows * each) run_block(block, addresses);
    }
  };
  const auto* const* operands = addresses.data() + leader.operands;
  leader.contraction->run_telling(leader.rows_of, done, operands[0], operands[1],
                                  const_cast<std::byte*>(operands[2]), is_parallel, cancelled);
}

void PreparedRows::run_block(int64_t block, const std::vector<const std::byte*>& addresses) const {
  std::byte* const scratch = thread_scratch(scratch_bytes_);
  const int64_t first_row = this->first_row(block);
  const bool is_last = block + 1 == blocks_.count();
  // Of all parts, since the threads of a pool have other tasks' operands in theirs.
  thread_local std::vector<const void*> pointers;
  pointers.resize(operands_.size());
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].scratch == kNoScratch) {
      pointers[i] = addresses[i];
      continue;
    }
    // Row 0 would lie before the memory of the thread, where no pointer may point: as a number.
    const Scratch& mine = scratch_[static_cast<size_t>(operands_[i].scratch)];
    const auto here = reinterpret_cast<uintptr_t>(scratch + mine.offset);
    pointers[i] =
        reinterpret_cast<const void*>(here - static_cast<uintptr_t>(first_row * mine.row_bytes));
  }
  for (const Part& part : parts_) {
    if (is_led_ && part.contraction != nullptr) continue;
    const void* const* operands = pointers.data() + part.operands;
    if (part.contraction != nullptr) {
      part.contraction->run_rows(part.rows_of, static_cast<const std::byte*>(operands[0]),
                                 static_cast<const std::byte*>(operands[1]),
                                 static_cast<std::byte*>(const_cast<void*>(operands[2])), first_row,
                                 this->first_row(block + 1) - first_row);
      continue;
    }
    const Schedule& schedule = part.kernel->schedule;
    const int64_t begin = block * schedule.block_units;
    const int64_t end = is_last ? schedule.units() : begin + schedule.block_units;
    part.kernel->function(pointers.data() + part.operands, begin, end);
  }
}

}  // namespace hekla::cpu
