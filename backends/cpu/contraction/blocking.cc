// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/contraction/blocking.h"

#include <algorithm>

#include "runtime/base/cpu_info.h"

namespace hekla::cpu {
namespace {

constexpr int64_t kUnknownCache = int64_t{512} << 10;
constexpr int64_t kLeastCache = int64_t{256} << 10;
constexpr int64_t kMostCache = int64_t{1} << 20;
// Blocks of the depth: each one reads and writes the sums once more, and a tile starts and ends.
constexpr int64_t kLeastDepth = 256;
// Rows that are packed are packed again for each rectangle, whose columns should be many.
constexpr int64_t kDepth = 1024;
constexpr int64_t kPackedDepth = 512;
constexpr int64_t kMostRows = 96;
constexpr int64_t kGroupColumns = 256;
// Of a rectangle, for which a block's depth leaves room.
constexpr int64_t kLeastColumns = 128;

}  // namespace

#ifdef HEKLA_X86_KERNELS
namespace {

template <typename Kernels>
const Kernels& narrower(const Kernels& kernels, const Kernels& narrow, int64_t columns) {
  // Wider ones are those of AVX-512, which has the instructions of AVX2.
  return kernels.columns > narrow.columns && columns <= narrow.half_columns ? narrow : kernels;
}

}  // namespace

const MicroKernels& kernels_for_columns(const MicroKernels& kernels, int64_t columns) {
  return narrower(kernels, avx2_micro_kernels(), columns);
}

const MicroKernelsOf<double>& kernels_for_columns(const MicroKernelsOf<double>& kernels,
                                                  int64_t columns) {
  return narrower(kernels, *avx2_micro_kernels().doubles, columns);
}
#else
const MicroKernels& kernels_for_columns(const MicroKernels& kernels, int64_t) { return kernels; }

const MicroKernelsOf<double>& kernels_for_columns(const MicroKernelsOf<double>& kernels, int64_t) {
  return kernels;
}
#endif

Blocking choose_blocking(const BlockingProblem& problem, const TileShape& kernels,
                         int64_t cache_bytes) {
  const int64_t cache =
      std::clamp(cache_bytes == 0 ? kUnknownCache : cache_bytes, kLeastCache, kMostCache);
  // Half of it for the packed columns of a rectangle, in elements.
  const int64_t packed = cache / 2 / problem.bytes;
  const int64_t columns = round_up(problem.columns, kernels.half_columns);
  Blocking blocking;
  const int64_t most = problem.rows_in_place ? kDepth : kPackedDepth;
  int64_t depth = std::clamp(packed / std::min(columns, kLeastColumns), kLeastDepth, most);
  depth *= problem.depths;
  // Blocks of the same depth.
  const int64_t blocks = std::max<int64_t>(1, (problem.depth + depth - 1) / depth);
  const int64_t unit = std::max<int64_t>(16, int64_t{problem.depths} * problem.unit);
  blocking.depth = round_up(std::max<int64_t>((problem.depth + blocks - 1) / blocks, 1), unit);
  if (problem.has_windows) blocking.depth = std::min(blocking.depth, kMostWindowDepth);
  if (problem.chunk != 0) blocking.depth = problem.chunk;
  const int64_t packed_depth = std::min(problem.depth, blocking.depth) / problem.depths;
  blocking.panels = std::max<int64_t>(
      1, std::min(kGroupColumns, packed / std::max<int64_t>(1, packed_depth)) / kernels.columns);
  // Rows of a block take a quarter of the cache.
  const int64_t rows = cache / 4 / problem.bytes / std::max<int64_t>(1, packed_depth);
  blocking.rows =
      std::clamp<int64_t>(rows / kernels.rows, 2, kMostRows / kernels.rows) * kernels.rows;
  return blocking;
}

Blocking draw_blocking(const BlockingProblem& problem, const TileShape& kernels,
                       std::mt19937_64& random) {
  const auto any = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Blocking blocking;
  blocking.depth = int64_t{2} << any(0, 8);
  if (any(0, 1) == 0) blocking.depth += 2 * any(0, 5);
  if (problem.has_windows) blocking.depth = std::min(blocking.depth, kMostWindowDepth);
  if (problem.rows_in_place) blocking.depth = round_up(blocking.depth, problem.depths);
  if (problem.chunk != 0) blocking.depth = problem.chunk;
  blocking.rows = kernels.rows * any(1, 8);
  blocking.panels = any(1, 8);
  blocking.has_half_panels = any(0, 2) != 0;
  blocking.pieces = int64_t{1} << any(0, 5);
  return blocking;
}

int64_t second_level_cache_bytes() {
  static const int64_t bytes = read_cpu_info().l2_bytes;
  return bytes;
}

}  // namespace hekla::cpu
