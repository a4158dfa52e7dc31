// SPDX-License-Identifier: Apache-2.0
// Chunks: how a compressed piece lies in its file.
//
// A compressed piece is an HDF5 dataset in chunks. They are slabs: each holds bytes of the piece
// that follow each other, so that chunk k of a piece as it is stored uncompressed is one range. The
// last slab of a row of slabs may be cut; HDF5 stores it at full size, filled up with zeros. Each
// chunk is a block of the file's table of digests, which are over the bytes in the file. Values;
// pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

// No chunk is larger; also the size of a block.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;

struct Chunk {
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;   // there
  // Shuffled and compressed; else the bytes are the chunk's own. Two bits of HDF5's filter mask.
  bool is_coded = false;

  bool operator==(const Chunk&) const = default;
};

// The dimensions of a box as HDF5 has them: packed types are a row of bytes.
Dims stored_dims(DType dtype, const Dims& size);
// Bytes of one of those elements.
int64_t stored_element_bytes(DType dtype);

// The cut of stored dimensions into slabs.
class ChunkGrid {
 public:
  // About as large as `max_bytes` (64 to kMaxChunkBytes) allows, of equal size but for the last;
  // whole elements also of packed types. `size` has elements.
  static ChunkGrid choose(DType dtype, const Dims& size, int64_t max_bytes = kMaxChunkBytes);
  // DATA_LOSS unless `shape` are slabs of the dimensions and no larger than kMaxChunkBytes.
  static Result<ChunkGrid> make(DType dtype, const Dims& size, Dims shape);

  const Dims& shape() const { return shape_; }
  int64_t element_bytes() const { return element_; }
  int64_t chunks() const { return outer_ * in_row_; }
  int64_t full_bytes() const { return slab_ * row_; }
  // The piece's uncompressed bytes [begin, end) of a chunk.
  int64_t begin(int64_t chunk) const;
  int64_t end(int64_t chunk) const;
  // The chunk of an uncompressed byte.
  int64_t chunk_of(int64_t byte) const;
  // The first element of a chunk.
  Dims start(int64_t chunk) const;

 private:
  ChunkGrid(DType dtype, const Dims& size, Dims shape, size_t axis);

  Dims dims_, shape_;
  size_t axis_ = 0;  // that is cut; those before it have chunks of size 1
  int64_t element_ = 1;
  int64_t row_ = 1;     // bytes of one index of the axis
  int64_t extent_ = 1;  // of the axis
  int64_t slab_ = 1;    // indices of a chunk
  int64_t in_row_ = 1;  // chunks along the axis
  int64_t outer_ = 1;
};

struct PieceChunks {
  ChunkGrid grid;
  std::vector<Chunk> chunks;  // grid.chunks() of them
};

// Blocks in the file's table of digests.
int64_t piece_blocks(const Piece& piece);
// Bytes in the file.
int64_t bytes_in_file(const Piece& piece);
// Whether everything of the piece lies within `file_bytes`.
bool lies_within(const Piece& piece, int64_t file_bytes);

}  // namespace hekla::checkpoint
