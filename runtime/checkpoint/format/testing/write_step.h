// SPDX-License-Identifier: Apache-2.0
// Writes a whole step with plain file calls, for tests of the format: no crash safety, no hashing
// in parallel, everything in memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/shard_image.h"
#include "runtime/checkpoint/format/step_index.h"

namespace hekla::checkpoint::testing {

struct PieceData {
  Piece piece;  // tensor, box, file
  std::vector<std::byte> bytes;
};

// A shard file as it would lie on the disk.
struct ShardBytes {
  std::vector<std::byte> bytes;
  FileRecord record;
  std::vector<Piece> pieces;
  std::vector<uint64_t> digests;
};

std::string shard_path(int32_t file);  // "data/shard-00003.h5"

// `image` with the bytes of its pieces.
Result<ShardBytes> fill_shard(ShardImage& image, const ShardIdentity& identity,
                              std::span<const PieceData> data);

struct WrittenStep {
  CommitRecord commit;
  StepIndex index;
};
Result<WrittenStep> write_step(const std::filesystem::path& directory,
                               const ShardIdentity& identity,
                               const std::vector<TensorInfo>& tensors,
                               const std::vector<PieceData>& data, int32_t files);

std::vector<std::byte> read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace hekla::checkpoint::testing
