// SPDX-License-Identifier: Apache-2.0
// From the boxes that somebody wants to the bytes to read: which ranges of which files, in order,
// which digest blocks they hold, and where each byte goes.
//
// Pure: no file is touched. A PieceIndex and a RestorePlan are immutable once made and may be used
// by any number of threads; different reads of a plan write different bytes of the targets, so they
// can be carried out side by side. Memory of a plan is a few dozen bytes for each read, and no read
// is smaller than its gap to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/sharding/box_copy.h"

namespace hekla::checkpoint {

// The stored pieces of a step, sorted by tensor and box start.
class PieceIndex {
 public:
  // DATA_LOSS naming tensor and piece where they contradict each other: a tensor number, file
  // number or box out of range, bytes that are not the box's, two pieces that overlap in their
  // tensor or their file, a piece behind the end of its file (`file_sizes`; empty: unknown).
  static Result<PieceIndex> make(std::vector<TensorInfo> tensors, std::vector<Piece> pieces,
                                 int32_t file_count, std::span<const int64_t> file_sizes = {});

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::span<const Piece> pieces_of(int32_t tensor) const;
  // The tensor's number, or -1.
  int32_t find(std::string_view name) const;
  // Numbers of the pieces that share elements with `box`, ascending. Binary search on the first
  // dimension, then a scan.
  void find_overlaps(int32_t tensor, const Box& box, std::vector<int32_t>* found) const;

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> first_piece_;    // of each tensor, and the end
  std::vector<int64_t> longest_first_;  // per tensor, the largest size in dimension 0
  std::vector<int32_t> by_name_;
};

// A box to be read into an array in host memory whose first element is the box's first.
struct Wanted {
  int32_t tensor = 0;
  Box box;
  Dims dims;  // of the array, where padding makes it larger than the box; empty: box.size
};

struct RestoreOptions {
  // Read whole digest blocks, so that they can be verified.
  bool whole_blocks = true;
  int64_t block_bytes = kBlockBytes;
  // Ranges closer than this are read together.
  int64_t merge_gap = int64_t{64} << 10;
  // Reads are cut at this, at least at what one block or three of them take.
  int64_t max_read_bytes = int64_t{12} << 20;
};

// How a file is best asked for a read's bytes.
enum class ReadMethod : uint8_t {
  kWholeBlocks,  // half of the piece or more: direct I/O through staging
  kLongRuns,     // runs of at least 64 KiB: direct or ordinary reads
  kStrided,      // short runs: mapped where the file is local, else large reads
  kPacked,       // whole compressed chunks
};
std::string_view read_method_name(ReadMethod method);

// Block number `block` of a piece: its bytes from block * block_bytes on, the last one shorter. Its
// digest is number piece.first_block + block of the file's table. Of a compressed piece: its chunk.
struct BlockRef {
  int32_t piece = 0;
  int64_t block = 0;
};

struct PlannedRead {
  int32_t file = 0;
  int64_t offset = 0;  // bytes in the file
  int64_t bytes = 0;
  ReadMethod method = ReadMethod::kWholeBlocks;
  // Ranges of RestorePlan::blocks (whole blocks in this read; none without whole_blocks) and
  // RestorePlan::copies. A packed read has all its chunks as blocks and no copies: scatter_chunk.
  uint32_t first_block = 0;
  uint32_t block_count = 0;
  uint32_t first_copy = 0;
  uint32_t copy_count = 0;
};

// What a wanted box takes from a piece.
struct Region {
  int32_t wanted = 0;
  int32_t piece = 0;
  BoxCopy copy;
};

struct RestorePlan {
  RestoreOptions options;
  std::vector<PlannedRead> reads;  // ascending by file and offset, apart from each other
  std::vector<BlockRef> blocks;
  std::vector<uint32_t> copies;  // numbers of regions, for each read those that it feeds
  std::vector<Region> regions;
  int64_t wanted_bytes = 0;  // stored bytes of the wanted boxes, each counted once
  int64_t read_bytes = 0;    // sum over the reads
};

// INVALID_ARGUMENT: a tensor that is not in the index, a box outside of it, an array too small.
// DATA_LOSS: a wanted part that no piece holds.
Result<RestorePlan> plan_restore(const PieceIndex& index, std::span<const Wanted> wanted,
                                 const RestoreOptions& options = {});

// Bytes of a block, cut out of a read's bytes.
std::span<const std::byte> block_in_read(const PieceIndex& index, const RestorePlan& plan,
                                         const PlannedRead& read, const BlockRef& block,
                                         std::span<const std::byte> bytes);
// Puts the bytes of one read where they belong. `targets` has the array of each wanted box.
void scatter(const PieceIndex& index, const RestorePlan& plan, const PlannedRead& read,
             std::span<const std::byte> bytes, std::span<std::byte* const> targets);

// Puts a chunk's uncompressed bytes (those within the piece) where they belong.
void scatter_chunk(const PieceIndex& index, const RestorePlan& plan, const BlockRef& chunk,
                   std::span<const std::byte> bytes, std::span<std::byte* const> targets);

// Says whether a block is as it was written; its error ends the restore.
using VerifyBlock = std::function<Status(const BlockRef&, std::span<const std::byte>)>;
// The whole plan over files in memory. DATA_LOSS: a read behind the end of its file; UNIMPLEMENTED:
// compressed pieces; else the errors of `verify`.
Status assemble(const PieceIndex& index, const RestorePlan& plan,
                std::span<const std::span<const std::byte>> files,
                std::span<std::byte* const> targets, const VerifyBlock& verify = nullptr);

}  // namespace hekla::checkpoint
