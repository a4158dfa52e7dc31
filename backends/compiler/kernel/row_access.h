// SPDX-License-Identifier: Apache-2.0
// Row access: which rows of its operands a kernel touches, row by row of its grid.
//
// The points of a grid in row-major order are cut into `rows` equal runs; an operand whose first
// `rows` * S bytes are cut into as many pieces of S bytes is row-wise when the points of row r
// touch bytes of piece r alone. So kernels that hand each other row-wise operands may run a few
// rows at a time, all of them, instead of one after the other. Pure; nothing fails.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {

// How the grid is cut: its leading dimensions number the rows, the others are within a row.
struct RowCut {
  size_t leading = 0;  // dimensions that number rows, all of their indices
  // Rows that the dimension after them is cut into; 1: it lies within a row.
  int64_t parts = 1;
};
// nullopt when the grid has no such cut.
std::optional<RowCut> cut_rows(const std::vector<int64_t>& grid, int64_t rows);

// Per operand the bytes S of a row, or 0 where it is not row-wise or cannot be shown to be.
// nullopt: the grid has no `rows` rows.
std::optional<std::vector<int64_t>> row_bytes(const Kernel& kernel, int64_t rows);

}  // namespace hekla::kernel
