// SPDX-License-Identifier: Apache-2.0
// MatrixLayout: how a contraction is computed on matrix units, before there is code of it.
//
// A workgroup computes a tile of sums. For each block of the depth its invocations load the tile's
// part of both operands in units of 8 or 16 bytes, along whichever axis is contiguous in memory,
// and put them into shared memory as they come; its subgroups load cooperative matrices from there.
// Every sum goes through the depth from 0 on, a matrix shape's products at a time, whatever the
// tile: its bits depend on the device alone. Pure.
//
// Operands of f32 whose products are formed by pieces (kernel::Pieces) are cut into them on their
// way to shared memory, where each piece has a place of its own. Products of the first pieces and
// all others have a sum each: what is infinite is so in the former, and in the latter would become
// NaN beside a piece that is 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/compiler/kernel/contraction.h"
#include "backends/compiler/kernel/implementations.h"
#include "backends/vulkan/codegen/target.h"
#include "runtime/base/status.h"

namespace hekla::vulkan::codegen {

// An axis of a contraction; those without a window that can be walked as one are one.
struct MatrixAxis {
  int64_t size = 1;
  int64_t lhs = 0, rhs = 0, out = 0;
  int window = -1;  // into Contraction::windows
};
using MatrixAxes = std::vector<MatrixAxis>;

int64_t axes_size(const MatrixAxes& axes);

// One operand's part of a tile in shared memory: `lines` of `line_units` units each.
struct MatrixSide {
  bool is_lhs = false;
  bool along_depth = true;  // a line is one row (of rhs: column) and goes along the depth
  bool is_vector = false;   // a unit is one load: all of it in the operand, or none
  uint32_t lines = 0;
  uint32_t line_units = 0;
  uint32_t pitch = 0;  // units from line to line
  uint32_t units() const { return lines * pitch; }
};

struct MatrixLayout {
  kernel::Contraction contraction;
  MatrixShape shape;
  MatrixTile tile;
  MatrixAxes batch, rows, columns, depth;
  int64_t row_count = 1, column_count = 1, depth_count = 1, batch_count = 1;
  int64_t row_tiles = 1, column_tiles = 1;
  uint32_t unit_words = 4;     // of 32 bits, in a unit of shared memory
  uint32_t unit_elements = 8;  // of an operand
  // Units of an operand's memory that one of shared memory is made of, or of each piece one.
  uint32_t operand_units = 1;
  MatrixSide lhs, rhs;
  // Sums leave through shared memory: of each subgroup a strip of `shape.rows` rows, or, where rows
  // are contiguous in the result, of `shape.columns` columns.
  bool stores_rows = false;
  uint32_t strip_pitch = 0;     // units
  uint32_t strip_units = 0;     // of one subgroup, for each of its sums
  uint32_t store_elements = 1;  // that go at once
  uint32_t shared_units = 0;    // of the workgroup
  uint32_t subgroups = 1;
  uint32_t workgroup_size = 1;

  int64_t group_count() const { return batch_count * row_tiles * column_tiles; }
  // Pieces of an operand, and the sums that an element has.
  uint32_t pieces() const { return static_cast<uint32_t>(contraction.pieces.count()); }
  uint32_t sums() const { return pieces() > 1 ? 2 : 1; }
  // From one piece of both operands to the next.
  uint32_t piece_units() const { return lhs.units() + rhs.units(); }
};

// Why a tile is none for products of this shape on the device; empty: it is one.
kernel::Refusal why_no_matrix_tile(const MatrixTile& tile, const MatrixShape& shape,
                                   const Target& target, const kernel::Pieces& pieces = {});
// Those that the device has room for: what sizes choose among, largest first, and some that are for
// tests. Empty where it has no room for any: make_target leaves such shapes out.
std::vector<MatrixTile> matrix_tiles(const MatrixShape& shape, const Target& target,
                                     const kernel::Pieces& pieces = {});

// UNIMPLEMENTED, in words: the device has no matrix units for the operands.
Result<MatrixLayout> matrix_layout(const kernel::Contraction& contraction, const Target& target);

}  // namespace hekla::vulkan::codegen
