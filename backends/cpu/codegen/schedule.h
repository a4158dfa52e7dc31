// SPDX-License-Identifier: Apache-2.0
// Schedule: how the points of a grid are cut into units, the pieces that threads take, and what a
// unit costs.
//
// A row is all points that differ in the lane dimension alone. A unit is a row, or one of the equal
// chunks of a row when rows are few and long. Where lanes read memory far apart whose neighbours
// are for other rows, as a transposition does, a unit is so many rows side by side: vector after
// vector, each for all of the rows, so that lines of the cache are used up before they go. Such
// loads of four bytes are staged: read along the rows for all of them, transposed in registers and
// put on the stack. Points do not depend on each other, so the cut changes no result. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/kernel/kernel.h"
#include "backends/cpu/codegen/lane_analysis.h"

namespace hekla::cpu {

// Blocks of rows (kernel/row_access.h) that a kernel may be asked for one by one.
struct RowBlocks {
  int64_t rows = 0;  // of the kernel; 0: no blocks
  int64_t size = 1;  // rows of a block; the last one has the rest too
  int64_t count() const { return rows / size; }
  bool operator==(const RowBlocks&) const = default;
};

// Units of several rows; for tests, which compare all of them.
enum class TileUse : uint8_t { kChosen, kNotStaged, kNone };

// Loads and stores a few elements apart, and fewer lanes where that leaves none scattered; for
// tests, which compare both.
enum class StridedUse : uint8_t { kShuffles, kByLane };

struct Schedule {
  int lanes = 1;       // points of a row that run as one vector; at most the row's length
  int64_t row = 1;     // points of a row
  int64_t rows = 1;    // product of the other dimensions; of tiles, where there are any
  int64_t chunk = 1;   // points of a unit, a multiple of `lanes`; the last of a row has the rest
  int64_t chunks = 1;  // units of a row
  double unit_ns = 0;  // estimate for one unit on one thread
  // The dimension whose neighbours a unit does together, and how many; the last ones may be fewer.
  int tile_dimension = -1;
  int64_t tile_rows = 1;
  // Loads that are staged; `tile_rows` is a power of two then.
  std::vector<kernel::Value> staged;

  StridedUse strided = StridedUse::kShuffles;

  // Block b of the rows is the units from b * block_units on; 0: no blocks.
  int64_t block_units = 0;

  int64_t units() const { return rows * chunks; }
  // Whether every unit is whole vectors.
  bool is_whole() const { return row % lanes == 0 && chunk % lanes == 0; }
};

// Neighbours in a row that run alike.
struct Segment {
  Range range;
  LaneAnalysis analysis;
};

// Rows that run alike, those whose indices are in `box` (its range of the lane dimension is the
// whole row), and the segments of them.
struct RowKind {
  Box box;
  std::vector<Segment> segments;
};

// How a kernel runs: what its values are, and how it is cut.
struct KernelPlan {
  // A row is of the first kind whose box it lies in; the last one takes all. Several kinds and
  // segments where that makes vector loads of scattered ones: the inside and the border of a
  // stencil or of what is padded, the parts of a concatenation.
  std::vector<RowKind> kinds;
  Schedule schedule;
};

// Whether the kernel can be cut into these blocks.
bool has_blocks(const kernel::Kernel& kernel, int vector_bits, const RowBlocks& blocks);

// `vector_bits`: of the machine's vectors. `blocks`: which the kernel has, or none. Short bodies
// get two or four vectors at a time, so that the machine has something to do while an operation
// takes its time. The grid has no zero.
// `seed`, for tests: not 0, lane dimension, lanes, segments, tiles of rows, strided accesses and
// units are drawn from all that are right instead of chosen by sizes and costs. The bits are the
// same. `asked`: gets what each way to run the kernel said.
KernelPlan plan_kernel(const kernel::Kernel& kernel, int vector_bits, const RowBlocks& blocks = {},
                       uint64_t seed = 0, TileUse tiles = TileUse::kChosen,
                       StridedUse strided = StridedUse::kShuffles,
                       kernel::Implementations* asked = nullptr);

// What kind of schedule it is, in a few words: "vectors", "tiles of rows" ... There are no others
// than those of schedule_names().
std::string_view schedule_name(const KernelPlan& plan);
std::span<const std::string_view> schedule_names();

}  // namespace hekla::cpu
