// SPDX-License-Identifier: Apache-2.0
// Tensors and pieces as columns of numbers, the form in which shard files and the index store them:
// a handful of arrays instead of one HDF5 object per tensor. Pure functions; columns that come from
// a file are checked in full, what does not hold is DATA_LOSS.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

// Texts one behind the other; text i ends before ends[i].
struct TextColumn {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> ends;

  void add(std::string_view text);
  bool operator==(const TextColumn&) const = default;
};
Result<std::vector<std::string>> texts_from_column(const TextColumn& column);

struct TensorColumns {
  TextColumn name;
  TextColumn spec;
  std::vector<int32_t> dtype;  // codes of stored_type.h
  std::vector<int32_t> rank;
  int64_t width = 0;           // columns of `shape`: the largest rank, at least 1
  std::vector<int64_t> shape;  // row major, rows filled up with 0

  bool operator==(const TensorColumns&) const = default;
};

struct PieceColumns {
  std::vector<int32_t> tensor;  // row of the tensor columns beside
  std::vector<int32_t> writer;
  std::vector<int32_t> file;
  int64_t width = 0;
  std::vector<int64_t> start;  // of the box; row major, rows filled up with 0
  std::vector<int64_t> size;
  std::vector<int64_t> offset;
  std::vector<int64_t> bytes;
  std::vector<int64_t> first_block;
  std::vector<int64_t> block_count;
  // Of compressed pieces; all empty in a step without them.
  std::vector<uint8_t> is_chunked;   // by piece
  std::vector<int64_t> chunk_shape;  // by piece; row major, rows filled up with 0
  // Of their chunks, one piece behind the other.
  std::vector<int64_t> chunk_offset;
  std::vector<int64_t> chunk_bytes;
  std::vector<uint8_t> chunk_is_coded;

  bool operator==(const PieceColumns&) const = default;
};

TensorColumns columns_from_tensors(std::span<const TensorInfo> tensors);
Result<std::vector<TensorInfo>> tensors_from_columns(const TensorColumns& columns);

// The pieces' boxes have the ranks of their tensors.
PieceColumns columns_from_pieces(std::span<const Piece> pieces);
// Checks each piece against its tensor: box within shape, bytes, number of blocks.
Result<std::vector<Piece>> pieces_from_columns(const PieceColumns& columns,
                                               std::span<const TensorInfo> tensors);

// INVALID_ARGUMENT unless the box has the tensor's rank and lies within its shape.
Status check_box(const Box& box, const TensorInfo& tensor);

// The one order of a step's pieces: by tensor, box start, box size, file. Piece k of a tensor in
// this order is the dataset p<k> below the tensor's name.
bool piece_before(const Piece& a, const Piece& b);

}  // namespace hekla::checkpoint
