// SPDX-License-Identifier: Apache-2.0
// One shard file of a step as it is written: where each piece lies, and all bytes of the file but
// the payload. Made once for a layout; every later save patches the known places and does not call
// libhdf5. design of the file:
//
//   0     user block (user_block.h)
//   4096  superblock
//   8192  payload: pieces of at least 64 KiB, each from a multiple of 4096 on, written by others
//   then  metadata: groups, small pieces, columns /__tensors and /__pieces, digests /__blocks
//
// A file of compressed pieces has the same design, but its payload are chunks, which lie where
// their sizes leave them: such an image is planned with the largest sizes, and made again for each
// save.
//
// Piece k of tensor NAME (order of piece_before over the whole step) is the dataset
// /state/NAME/p<k>. An image is a value; copies are independent. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/user_block.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

// Pieces below this size travel with the metadata.
inline constexpr int64_t kSmallPieceBytes = 64 << 10;

// Bytes that go to `offset` of the file.
struct Extent {
  int64_t offset = 0;
  std::span<const std::byte> bytes;
};

class ShardImage {
 public:
  // The image of file number `file`. `pieces`: of all files of the step, in any order; offset,
  // bytes and first_block are not read. INVALID_ARGUMENT: a name, box or tensor that cannot be
  // stored; INTERNAL with HDF5's error stack; RESOURCE_EXHAUSTED.
  static Result<ShardImage> make(std::span<const TensorInfo> tensors, std::span<const Piece> pieces,
                                 int32_t file);

  // As make, for pieces of at least kSmallPieceBytes that will be compressed: file_size() and the
  // offsets of the chunks are bounds, all chunks stored as they are. finish_packed ends it.
  static Result<ShardImage> make_packed(std::span<const TensorInfo> tensors,
                                        std::span<const Piece> pieces, int32_t file);

  int32_t file() const { return file_; }
  int64_t file_size() const { return file_size_; }  // a multiple of 4096
  // Pieces of this file in the order of piece_before, with offset, bytes and first_block. A piece
  // without bytes has offset 0.
  const std::vector<Piece>& pieces() const { return pieces_; }
  int64_t blocks() const { return blocks_; }
  // Where payload lies, at most one range. The bytes between the end of a piece and the next
  // multiple of 4096 may hold anything.
  std::vector<ByteRange> payload() const;

  // Whether piece i travels with the metadata: put its bytes into small_piece(i) before finish.
  bool is_small(size_t i) const {
    return pieces_[i].chunks == nullptr && pieces_[i].bytes < kSmallPieceBytes;
  }
  std::span<std::byte> small_piece(size_t i);

  // The bytes around the payload, valid until the image changes, and what COMMIT says of the file
  // (path empty). `digests`: block_digest of every block by its number; those of small pieces are
  // computed here. INVALID_ARGUMENT: another number of digests, or an identity of bad characters.
  struct Finished {
    std::vector<Extent> extents;  // user block and superblock; metadata
    FileRecord record;
    std::vector<uint64_t> digests;
    std::vector<Piece> pieces;  // as pieces(), where they lie in the end
  };
  Result<Finished> finish(const ShardIdentity& identity, std::span<const uint64_t> digests);
  // `chunks`: of each piece; disjoint places from the payload's start on. On the HDF5 thread, some
  // microseconds a chunk.
  Result<Finished> finish_packed(const ShardIdentity& identity, std::span<const uint64_t> digests,
                                 std::vector<std::vector<Chunk>> chunks);

 private:
  struct Numbered;
  static Result<std::vector<Numbered>> pieces_of_file(std::span<const TensorInfo> tensors,
                                                      std::span<const Piece> pieces, int32_t file);
  static Result<ShardImage> build(std::span<const TensorInfo> tensors, std::vector<Numbered> own,
                                  std::vector<int32_t> ids, int32_t file);

  int32_t file_ = 0;
  int64_t file_size_ = 0;
  int64_t blocks_ = 0;
  int64_t table_offset_ = 0;
  int64_t tail_offset_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::byte> head_, tail_;
  struct Packed;  // what finish_packed needs
  std::shared_ptr<Packed> packed_;
};

}  // namespace hekla::checkpoint
