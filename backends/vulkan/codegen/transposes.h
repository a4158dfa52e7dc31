// SPDX-License-Identifier: Apache-2.0
// Transposes: kernels without loops some of whose loads are contiguous along another dimension of
// the grid than its last one, along which the stores are. A workgroup loads what a tile of such
// points needs in the order of memory into shared memory, and its points take it from there. Of
// this folder alone. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/index_analysis.h"

namespace hekla::vulkan::codegen {

// A tile's columns and rows are numbers of points: of some of the grid's dimensions each, the one
// whose neighbours are neighbours in memory first. Those of the columns are the last ones of the
// grid.
struct TransposedTile {
  std::vector<size_t> columns, rows;  // dimensions
  // Those that are contiguous along the rows.
  std::vector<kernel::Value> loads;
  // By value: whether it depends on the column (kOnColumn) and on the row (kOnRow).
  std::vector<uint8_t> depends;
};

// The loads are as many as stand before all stores; none where there is nothing to transpose.
TransposedTile transposed_tile(const kernel::IndexAnalysis& index);
// Points of the grid in these dimensions.
int64_t points_of(const kernel::Kernel& kernel, const std::vector<size_t>& dimensions);
// Elements of a load that fill a word of 32 bits; 1 where it is as wide.
uint32_t elements_of_word(const kernel::Function& function, kernel::Value load);

}  // namespace hekla::vulkan::codegen
