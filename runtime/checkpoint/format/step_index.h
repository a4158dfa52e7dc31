// SPDX-License-Identifier: Apache-2.0
// The index of a step: all tensors, all pieces, the shard files and their block digests. Stored as
// index.h5, a column store of a few datasets; read as a whole, verified, then opened from memory.
// Can be rebuilt from the shard files. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/shard_reader.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {

// Above this many bytes the block digests stay in the shard files alone.
inline constexpr int64_t kMaxIndexedDigestBytes = int64_t{64} << 20;

struct StepIndex {
  int64_t step = 0;
  std::vector<TensorInfo> tensors;
  std::vector<Piece> pieces;      // in the order of piece_before
  std::vector<FileRecord> files;  // Piece::file counts in them
  // Block digests of each file by block number; empty when they are left in the shards.
  std::vector<std::vector<uint64_t>> digests;
  // The meshes that the tensors were sharded over, as far as their specs name them.
  std::vector<Mesh> meshes;
  std::vector<int32_t> mesh_of;  // by tensor; kNoMesh: unknown

  // Pieces of one tensor, contiguous in `pieces`.
  std::span<const Piece> pieces_of(int32_t tensor) const;
  std::optional<int32_t> find(std::string_view name) const;  // linear
  // XXH3-128 over the tensor's block digests in the order of its pieces; depends on how the tensor
  // is cut. Empty without `digests`.
  std::string tensor_digest(int32_t tensor) const;
};

// Puts pieces in order, takes the meshes from the tensors' specs and checks everything: that pieces
// have room in their files, that boxes neither overlap nor leave a hole (INVALID_ARGUMENT names the
// tensor).
Result<StepIndex> make_index(int64_t step, std::vector<TensorInfo> tensors,
                             std::vector<Piece> pieces, std::vector<FileRecord> files,
                             std::vector<std::vector<uint64_t>> digests);

// The bytes of index.h5; the same for the same index. `minor` is the format's: what a repair makes
// again must be what an earlier version wrote.
Result<std::vector<std::byte>> write_index(const StepIndex& index, int32_t minor = kFormatMinor);

// Opens `bytes` only if size and digest are those that COMMIT lists in `expected`; DATA_LOSS
// otherwise, and for everything in it that does not hold. Steps from before minor version 2 have
// their meshes from the specs.
Result<StepIndex> read_index(std::span<const std::byte> bytes, const FileRecord& expected);

// The index from what the shards say; shard i is file i. DATA_LOSS when they do not fit together
// or a tensor is named by none.
Result<StepIndex> rebuild_index(int64_t step, std::span<const ShardContents> shards,
                                std::vector<FileRecord> files);

}  // namespace hekla::checkpoint
