// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/shard_reader.h"

#include <algorithm>
#include <cstring>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/hdf5_objects.h"
#include "runtime/checkpoint/format/memory_file.h"

namespace hekla::checkpoint {
namespace {

Status check_places(const UserBlock& block, const ShardContents& contents) {
  for (const Piece& piece : contents.pieces) {
    if (piece.file != block.file) {
      return data_loss("shard {}: a piece says that it lies in file {}", block.file, piece.file);
    }
    if (!lies_within(piece, block.file_size) ||
        piece.first_block + piece_blocks(piece) > block.blocks) {
      return data_loss(
          "shard {}: a piece at {} with {} bytes lies outside of its {} bytes or {} "
          "blocks",
          block.file, piece.offset, piece.bytes, block.file_size, block.blocks);
    }
  }
  return ok_status();
}

}  // namespace

Status check_belongs(const UserBlock& block, const CommitRecord& commit, const FileRecord& file,
                     int32_t number) {
  // A linked file names the save that wrote it, as COMMIT does.
  const ShardIdentity expected{commit.run_uuid, file.origin ? file.origin->nonce : commit.nonce,
                               file.origin ? file.origin->step : commit.step};
  if (block.identity != expected) {
    return data_loss(
        "{} belongs to step {} of save {} of run {}, not to step {} of save {} of run "
        "{}: files of two saves are mixed",
        file.path, block.identity.step, block.identity.nonce, block.identity.run_uuid,
        expected.step, expected.nonce, expected.run_uuid);
  }
  if (block.file != number) {
    return data_loss("{} is file {} of its step, not {}", file.path, block.file, number);
  }
  if (block.file_size != file.size) {
    return data_loss("{} says that it has {} bytes, COMMIT says {}", file.path, block.file_size,
                     file.size);
  }
  if (block.metadata_digest != file.metadata_digest || block.table_digest != file.table_digest) {
    return data_loss("{} has other digests than COMMIT lists", file.path);
  }
  return ok_status();
}

Result<std::vector<uint64_t>> read_block_table(const UserBlock& block,
                                               std::span<const std::byte> bytes) {
  if (bytes.size() != static_cast<size_t>(block.blocks) * sizeof(uint64_t)) {
    return data_loss("shard {}: its table of {} block digests came with {} bytes", block.file,
                     block.blocks, bytes.size());
  }
  if (digest_text(bytes) != block.table_digest) {
    return data_loss("shard {}: the table of block digests at offset {} is corrupt", block.file,
                     block.table_offset);
  }
  std::vector<uint64_t> table(static_cast<size_t>(block.blocks));
  if (!table.empty()) std::memcpy(table.data(), bytes.data(), bytes.size());
  return table;
}

Result<ShardContents> read_shard(const UserBlock& block,
                                 std::span<const std::span<const std::byte>> ranges) {
  const std::vector<ByteRange> places = metadata_ranges(block);
  if (places.size() != ranges.size()) {
    return data_loss("shard {}: {} ranges of metadata came, {} are there", block.file,
                     ranges.size(), places.size());
  }
  Hasher hasher;
  std::vector<FilePart> parts;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (static_cast<int64_t>(ranges[i].size()) != places[i].end - places[i].begin) {
      return data_loss("shard {}: the metadata from {} to {} came with {} bytes", block.file,
                       places[i].begin, places[i].end, ranges[i].size());
    }
    hasher.add(ranges[i]);
    parts.push_back({places[i].begin, ranges[i]});
  }
  if (hasher.text() != block.metadata_digest) {
    return data_loss("shard {}: its metadata does not match its digest: it is corrupt", block.file);
  }

  ShardContents contents;
  const Status read = on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::open(parts, block.file_size));
    HEKLA_ASSIGN_OR_RETURN(const auto of_step, read_int64(file.id(), "/__tensors/of_step"));
    if (of_step.size() != 1) return data_loss("/__tensors/of_step is not one number");
    contents.tensors_of_step = of_step[0];
    HEKLA_ASSIGN_OR_RETURN(contents.ids, read_int32(file.id(), "/__tensors/id"));
    HEKLA_ASSIGN_OR_RETURN(const TensorColumns tensors, read_tensors(file.id(), "/__tensors"));
    HEKLA_ASSIGN_OR_RETURN(contents.tensors, tensors_from_columns(tensors));
    HEKLA_ASSIGN_OR_RETURN(const PieceColumns pieces, read_pieces(file.id(), "/__pieces"));
    HEKLA_ASSIGN_OR_RETURN(contents.pieces, pieces_from_columns(pieces, contents.tensors));
    HEKLA_ASSIGN_OR_RETURN(contents.digests, read_uint64(file.id(), "/__blocks"));
    return ok_status();
  });
  HEKLA_RETURN_IF_ERROR(read.with_context(fmt::format("shard {}", block.file)));
  if (contents.ids.size() != contents.tensors.size() ||
      !std::is_sorted(contents.ids.begin(), contents.ids.end(), std::less_equal<>()) ||
      (!contents.ids.empty() &&
       (contents.ids.front() < 0 || contents.ids.back() >= contents.tensors_of_step))) {
    return data_loss("shard {}: the numbers of its tensors are out of order", block.file);
  }
  if (static_cast<int64_t>(contents.digests.size()) != block.blocks) {
    return data_loss("shard {}: {} block digests, {} blocks", block.file, contents.digests.size(),
                     block.blocks);
  }
  HEKLA_RETURN_IF_ERROR(check_places(block, contents));
  for (Piece& piece : contents.pieces) {
    piece.tensor = contents.ids[static_cast<size_t>(piece.tensor)];
  }
  return contents;
}

}  // namespace hekla::checkpoint
