// SPDX-License-Identifier: Apache-2.0
// Tables from tiles to partitions, and the iotas behind them. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::sharding {

// One digit of a mixed radix on both sides: tiles that are `tile_stride` apart, `size` of them, are
// on positions `stride` apart.
struct Digit {
  int64_t size = 1;
  int64_t tile_stride = 1;
  int64_t stride = 1;
};

// The fewest digits, minor tiles first, that give table[tile] = sum of digit * stride; nothing when
// the table is no such permutation of 0 ... n-1.
std::optional<std::vector<Digit>> digits_of(std::span<const int64_t> table);

// Splits digits so that `boundary` is a border of two of them, among the tiles' strides or those
// of positions; false when no digit can be split there.
bool split_tiles(std::vector<Digit>& digits, int64_t boundary);
bool split_positions(std::vector<Digit>& digits, int64_t boundary);

// A tiled sharding with its trailing dimensions in one order, and its table.
struct TileTable {
  std::vector<int64_t> tile_dims;  // of the tensor
  int64_t manual = 1;
  int64_t unreduced = 1;
  int64_t replicated = 1;
  // By tile of the tensor, then manual, partial sum, copy. Ascending within what is a set: copies,
  // and the first partitions of partial sums and of manual groups.
  std::vector<int64_t> table;
};
// `position_of[d]`, where it is not empty, stands for partition d.
TileTable tile_table(const HloSharding& sharding, std::span<const int64_t> position_of = {});

}  // namespace hekla::sharding
