// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/testing/write_step.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/view.h"

namespace hekla::checkpoint::testing {

std::string shard_path(int32_t file) { return fmt::format("data/shard-{:05}.h5", file); }

Result<ShardBytes> fill_shard(ShardImage& image, const ShardIdentity& identity,
                              std::span<const PieceData> data) {
  ShardBytes shard;
  shard.pieces = image.pieces();
  std::vector<uint64_t> digests(static_cast<size_t>(image.blocks()));
  shard.bytes.resize(static_cast<size_t>(image.file_size()));
  std::vector<const PieceData*> own;
  for (const PieceData& piece : data) {
    if (piece.piece.file == image.file()) own.push_back(&piece);
  }
  std::stable_sort(own.begin(), own.end(), [](const PieceData* a, const PieceData* b) {
    return piece_before(a->piece, b->piece);
  });
  for (size_t i = 0; i < image.pieces().size(); ++i) {
    const Piece& piece = image.pieces()[i];
    const std::vector<std::byte>& bytes = own[i]->bytes;
    if (static_cast<int64_t>(bytes.size()) != piece.bytes) {
      return invalid_argument("a piece of tensor {} came with {} bytes instead of {}", piece.tensor,
                              bytes.size(), piece.bytes);
    }
    if (bytes.empty()) continue;
    if (image.is_small(i)) {
      std::memcpy(image.small_piece(i).data(), bytes.data(), bytes.size());
      continue;
    }
    std::memcpy(shard.bytes.data() + piece.offset, bytes.data(), bytes.size());
    for (int64_t b = 0; b < block_count(piece.bytes); ++b) {
      const auto begin = static_cast<size_t>(b * kBlockBytes);
      digests[static_cast<size_t>(piece.first_block + b)] = block_digest(
          std::span(bytes).subspan(begin, std::min<size_t>(kBlockBytes, bytes.size() - begin)));
    }
  }
  HEKLA_ASSIGN_OR_RETURN(ShardImage::Finished finished, image.finish(identity, digests));
  for (const Extent& extent : finished.extents) {
    std::memcpy(shard.bytes.data() + extent.offset, extent.bytes.data(), extent.bytes.size());
  }
  shard.record = finished.record;
  shard.record.path = shard_path(image.file());
  shard.digests = std::move(finished.digests);
  return shard;
}

Result<WrittenStep> write_step(const std::filesystem::path& directory,
                               const ShardIdentity& identity,
                               const std::vector<TensorInfo>& tensors,
                               const std::vector<PieceData>& data, int32_t files) {
  std::filesystem::create_directories(directory / "data");
  std::vector<Piece> pieces, placed;
  for (const PieceData& piece : data) pieces.push_back(piece.piece);
  WrittenStep step;
  std::vector<std::vector<uint64_t>> digests;
  for (int32_t file = 0; file < files; ++file) {
    HEKLA_ASSIGN_OR_RETURN(ShardImage image, ShardImage::make(tensors, pieces, file));
    HEKLA_ASSIGN_OR_RETURN(const ShardBytes shard, fill_shard(image, identity, data));
    write_file(directory / shard.record.path, shard.bytes);
    placed.insert(placed.end(), shard.pieces.begin(), shard.pieces.end());
    step.commit.files.push_back(shard.record);
    digests.push_back(shard.digests);
  }
  HEKLA_ASSIGN_OR_RETURN(step.index,
                         make_index(identity.step, tensors, placed, step.commit.files, digests));
  HEKLA_ASSIGN_OR_RETURN(const auto index, write_index(step.index));
  HEKLA_ASSIGN_OR_RETURN(const auto view, make_view(step.index));
  write_file(directory / "index.h5", index);
  write_file(directory / "model.h5", view);
  for (const auto& [path, bytes] : {std::pair{"index.h5", &index}, {"model.h5", &view}}) {
    step.commit.files.push_back(
        {path, static_cast<int64_t>(bytes->size()), digest_text(*bytes), "", 0});
  }
  step.commit.step = identity.step;
  step.commit.run_uuid = identity.run_uuid;
  step.commit.nonce = identity.nonce;
  step.commit.tensors = static_cast<int64_t>(tensors.size());
  step.commit.reason = "manual";
  HEKLA_ASSIGN_OR_RETURN(const std::string commit, write_commit(step.commit));
  write_file(directory / "COMMIT", std::as_bytes(std::span(commit)));
  return step;
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

}  // namespace hekla::checkpoint::testing
