// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/transform/transform.h"

#include <algorithm>
#include <new>

#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

const LineCode& lines_of([[maybe_unused]] int vector_bits) {
#ifdef HEKLA_X86_LINES
  if (vector_bits == 512) return avx512_lines();
  if (vector_bits == 256) return avx2_lines();
#endif
  return portable_lines();
}

// Temporary memory of a thread, for a task that waits for nobody: a megabyte at most, which the
// thread's own cache has seen last.
std::byte* scratch(int64_t bytes) {
  thread_local Block mine;
  if (mine.size_bytes() < bytes) {
    Result<Block> made = BlockPool::process_pool().allocate(bytes);
    if (!made.ok()) throw std::bad_alloc();
    mine = *std::move(made);
  }
  return mine.data();
}

}  // namespace

PreparedTransform::PreparedTransform(const kernel::Transform& transform, int vector_bits)
    : transform_(transform), code_(lines_of(vector_bits)) {
  const int64_t lanes = code_.lanes(transform);
  const bool lie_beside = transform.inner >= lanes;
  row_lines_ = lie_beside ? transform.inner : transform.lines();
  row_blocks_ = (row_lines_ + lanes - 1) / lanes;
  blocks_ = row_blocks_ * (lie_beside ? transform.outer : 1);
  // By measurement: reading and writing cost about two passes.
  constexpr double kVectorNs = 2.5;
  const size_t passes = transform.radices.size() + (transform.is_paired() ? 1 : 0);
  block_ns_ =
      kVectorNs * static_cast<double>(transform.passed_size()) * static_cast<double>(passes + 2);
}

void PreparedTransform::run_blocks(int64_t begin, int64_t end, LineBlock block,
                                   const std::atomic<bool>* cancelled) const {
  block.scratch = scratch(code_.scratch_bytes(transform_));
  const int64_t lanes = code_.lanes(transform_);
  const auto run = transform_.part == DType::kF64 ? code_.run_f64 : code_.run_f32;
  for (int64_t i = begin; i < end; ++i) {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) return;
    const int64_t at = i % row_blocks_ * lanes;
    block.first = i / row_blocks_ * row_lines_ + at;
    block.count = std::min(lanes, row_lines_ - at);
    run(block);
  }
}

void PreparedTransform::run(const std::byte* from, const std::byte* roots, std::byte* to,
                            bool is_parallel, const std::atomic<bool>* cancelled) const {
  LineBlock block;
  block.transform = &transform_;
  block.roots = roots;
  block.from = from;
  block.to = to;
  constexpr double kPieceNs = 10'000;
  if (!is_parallel || estimated_ns() < 2 * kPieceNs) {
    return run_blocks(0, blocks_, block, cancelled);
  }
  const auto grain = static_cast<int64_t>(kPieceNs / block_ns_) + 1;
  ThreadPool::process_pool().for_ranges(blocks_, grain, [&](int64_t begin, int64_t end) {
    run_blocks(begin, end, block, cancelled);
  });
}

}  // namespace hekla::cpu
