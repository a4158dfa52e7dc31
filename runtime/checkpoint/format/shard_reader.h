// SPDX-License-Identifier: Apache-2.0
// A shard file as it is read: nothing reaches libhdf5 before its digest has been checked.
//
//   UserBlock block = parse_user_block(first 4096 bytes);
//   check_belongs(block, ...)                 // to this step of this save
//   table = read_block_table(block, its bytes) // all that a restore needs beside the index
//   read_shard(block, bytes of metadata_ranges(block))  // tensors and pieces, for repair
//
// Pure but for the HDF5 thread. What does not hold is DATA_LOSS and names the part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/user_block.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

// Whether the user block is that of the file that COMMIT lists under `number`: of this save or, for
// a linked file, of its origin.
Status check_belongs(const UserBlock& block, const CommitRecord& commit, const FileRecord& file,
                     int32_t number);

// `bytes`: block.blocks * 8 from block.table_offset on.
Result<std::vector<uint64_t>> read_block_table(const UserBlock& block,
                                               std::span<const std::byte> bytes);

struct ShardContents {
  int64_t tensors_of_step = 0;
  std::vector<int32_t> ids;         // of `tensors` within the step, ascending
  std::vector<TensorInfo> tensors;  // that this file names
  std::vector<Piece> pieces;        // of this file, tensor: id within the step
  std::vector<uint64_t> digests;    // of its blocks
};

// `ranges`: the bytes of metadata_ranges(block), in that order.
Result<ShardContents> read_shard(const UserBlock& block,
                                 std::span<const std::span<const std::byte>> ranges);

}  // namespace hekla::checkpoint
