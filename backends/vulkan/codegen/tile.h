// SPDX-License-Identifier: Apache-2.0
// Tile: several points of a kernel's grid done side by side by one invocation, and what a kernel
// must be like for that. Pure.
//
// The points of an invocation differ in the last grid index (columns) and in the one before it
// (rows). What depends on neither is computed once, what depends on one of them once for all that
// differ in the other: so the loads of a contraction's operands are shared, and its sums are
// independent of each other. Loops are gone through once for all points, which asks for trip counts
// that do not depend on the point.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backends/compiler/kernel/index_analysis.h"

namespace hekla::vulkan::codegen {

// What a value depends on, as bits.
inline constexpr uint8_t kOnColumn = 1;
inline constexpr uint8_t kOnRow = 2;

struct TileAnalysis {
  std::vector<uint8_t> depends;  // kOnColumn, kOnRow, by Value; of any kernel
  bool is_possible = false;      // there are loops, and no trip count depends on the point
  int64_t carried = 0;           // by any loop: what each point keeps in registers
  bool shares_by_rows = false;   // loads in innermost loops that depend on the column alone
  bool shares_by_columns = false;
};
TileAnalysis analyse_tile(const kernel::IndexAnalysis& index);
// The same of units of adjacent columns that lie anywhere in the grid, as if each were a row.
std::vector<uint8_t> analyse_units(const kernel::IndexAnalysis& index);
// Instructions of a tile of so many columns and rows, those that points share counted once.
int64_t tile_instructions(const kernel::Function& function, const TileAnalysis& analysis,
                          int64_t columns, int64_t rows);

// A load in an innermost loop whose address depends on the column or on the row alone, so that the
// invocations of a workgroup that differ in the other one load the same.
struct StagedLoad {
  kernel::Value load = kernel::kNoValue;
  bool is_by_row = false;  // else by column
  // What is contiguous in memory is so in the iteration, else in the row or column.
  bool is_along_iteration = false;
};
// Those of the loop with this body; empty where its trip count is not constant, or one of the
// addresses depends on what the loop carries. Where a workgroup has one row (not `has_rows`) a load
// is by column even if its address depends on the row too.
std::vector<StagedLoad> staged_loads(const kernel::IndexAnalysis& index, int32_t region,
                                     int64_t trip_count, const std::vector<uint8_t>& depends,
                                     bool has_rows);

// Loads of an innermost loop that are the same for all columns, so for all lanes of a workgroup
// that has one row of them, and whose addresses do not depend on what the loop carries.
std::vector<kernel::Value> uniform_loads(const kernel::Function& function, int32_t region,
                                         const std::vector<uint8_t>& depends);

// What lanes that all do the same point can do for each other in an innermost loop: each computes
// `passed` for another iteration, from loads and what is made of them without carried values. What
// is then left of the body, the passed values among it, is `needed`, by Value.
struct PassedValues {
  std::vector<kernel::Value> passed;
  std::vector<bool> needed;
};
PassedValues passed_values(const kernel::Function& function, int32_t region);

// Stores of one region, without loads and loops between them, that write contiguous elements in the
// same way: the last of each group, and all of it in the order of memory.
std::map<kernel::Value, std::vector<kernel::Value>> adjacent_stores(
    const kernel::IndexAnalysis& index, uint32_t most_bytes);
// Loads of one region that read contiguous elements of 4 bytes, or of as few as `least_element`,
// a power of two of them that fills a word and no more than `most_bytes`: the first, whose index is
// a multiple of their number, and the others, which come later, in the order of memory.
std::map<kernel::Value, std::vector<kernel::Value>> adjacent_loads(
    const kernel::IndexAnalysis& index, uint32_t most_bytes, uint32_t least_element);

}  // namespace hekla::vulkan::codegen
