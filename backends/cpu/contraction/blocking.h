// SPDX-License-Identifier: Apache-2.0
// Blocking: how a contraction is cut, which its bits do not depend on.
//
// Chosen by the sizes of a problem and of the second level cache, or, for tests, drawn from all
// that is right. Plain data and pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <random>

#include "backends/compiler/kernel/contraction.h"
#include "backends/cpu/contraction/micro_kernels.h"

namespace hekla::cpu {

// Rows below which columns that lie side by side are not worth packing.
inline constexpr int64_t kWideRows = 16;
// Of which so many go together.
inline constexpr int64_t kWideTile = 4;
// Work below this is done by one thread: waking another costs about as much.
inline constexpr double kContractionSplitNs = 20'000;
inline constexpr double kContractionPieceNs = 25'000;
// Depth of a block that has windows, at most: rows of padding are zeros of that many elements.
inline constexpr int64_t kMostWindowDepth = 512;
static_assert(kernel::kMostOfChunk <= kMostWindowDepth, "chunks are blocks");

inline int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Blocking {
  int64_t depth = 1;            // of a block: even; whole elements of rows in place
  int64_t rows = 1;             // of a block, whole tiles
  int64_t panels = 1;           // of a rectangle, at most
  bool has_half_panels = true;  // a rectangle's last panel is half as wide where that is enough
  int64_t pieces = 0;           // that one element of the batch is cut into: 0: by its time
};

struct BlockingProblem {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t depth = 1;
  bool rows_in_place = false;
  int depths = 1;     // of an element
  int64_t bytes = 4;  // of a sum, and of an element of a panel
  int unit = 1;       // elements of a run: a multiple of so many
  bool has_windows = false;
  int64_t chunk = 0;  // products of the longest of several chunks, which are the blocks; 0: one
};

// Those of shorter vectors, with the same bits, where `columns` would leave most of a longer one
// empty; else `kernels`. Not for integers.
const MicroKernels& kernels_for_columns(const MicroKernels& kernels, int64_t columns);
const MicroKernelsOf<double>& kernels_for_columns(const MicroKernelsOf<double>& kernels,
                                                  int64_t columns);

// `cache_bytes`: of a core's second level cache; 0: not known.
Blocking choose_blocking(const BlockingProblem& problem, const TileShape& kernels,
                         int64_t cache_bytes);
Blocking draw_blocking(const BlockingProblem& problem, const TileShape& kernels,
                       std::mt19937_64& random);

// Of this machine, read once.
int64_t second_level_cache_bytes();

}  // namespace hekla::cpu
