// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/shard_image.h"

#include <algorithm>
#include <cstring>

#include "runtime/checkpoint/codec/codec.h"
#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/hdf5_objects.h"
#include "runtime/checkpoint/format/memory_file.h"
#include "runtime/checkpoint/format/names.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kPayloadBegin = 2 * kUserBlockBytes;  // behind user block and superblock
constexpr int64_t kMaxPayload = int64_t{1} << 60;

int64_t whole_pages(int64_t bytes) {
  return (bytes + kUserBlockBytes - 1) / kUserBlockBytes * kUserBlockBytes;
}

// The tensors that have a piece among `pieces`, and with file 0 those that have none at all: so
// that the shards together name every tensor. Sets `row` of each tensor.
std::vector<int32_t> tensors_of_file(size_t tensors, std::span<const Piece> all,
                                     std::span<const Piece> own, int32_t file) {
  std::vector<char> wanted(tensors, file == 0);
  if (file == 0) {
    for (const Piece& piece : all) wanted[static_cast<size_t>(piece.tensor)] = 0;
  }
  for (const Piece& piece : own) wanted[static_cast<size_t>(piece.tensor)] = 1;
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tensors; ++i) {
    if (wanted[i]) ids.push_back(static_cast<int32_t>(i));
  }
  return ids;
}

Status write_tables(ObjectWriter& writer, std::span<const TensorInfo> tensors,
                    const std::vector<int32_t>& ids, const std::vector<Piece>& pieces) {
  std::vector<TensorInfo> own;
  own.reserve(ids.size());
  for (const int32_t id : ids) own.push_back(tensors[static_cast<size_t>(id)]);
  HEKLA_RETURN_IF_ERROR(writer.write_column("/__tensors/id", ids));
  HEKLA_RETURN_IF_ERROR(writer.write_tensors("/__tensors", columns_from_tensors(own)));
  const std::vector<int64_t> count = {static_cast<int64_t>(tensors.size())};
  HEKLA_RETURN_IF_ERROR(writer.write_column("/__tensors/of_step", count));
  PieceColumns columns = columns_from_pieces(pieces);
  for (int32_t& tensor : columns.tensor) {
    tensor = static_cast<int32_t>(std::lower_bound(ids.begin(), ids.end(), tensor) - ids.begin());
  }
  return writer.write_pieces("/__pieces", columns);
}

}  // namespace

// The dataset of a piece: its tensor's and its number among the tensor's pieces.
struct ShardImage::Numbered {
  Piece piece;
  int64_t number;
};

struct ShardImage::Packed {
  std::vector<TensorInfo> tensors;
  std::vector<Numbered> own;
  std::vector<int32_t> ids;
  std::unique_ptr<ShardImage> made;  // of the last save
};

Result<std::vector<ShardImage::Numbered>> ShardImage::pieces_of_file(
    std::span<const TensorInfo> tensors, std::span<const Piece> pieces, int32_t file) {
  std::vector<const Piece*> order;
  order.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (piece.tensor < 0 || static_cast<size_t>(piece.tensor) >= tensors.size()) {
      return invalid_argument("a piece belongs to tensor {} of {}", piece.tensor, tensors.size());
    }
    HEKLA_RETURN_IF_ERROR(check_box(piece.box, tensors[static_cast<size_t>(piece.tensor)]));
    order.push_back(&piece);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Piece* a, const Piece* b) { return piece_before(*a, *b); });
  std::vector<Numbered> chosen;
  int64_t number = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    number = i > 0 && order[i - 1]->tensor == order[i]->tensor ? number + 1 : 0;
    if (order[i]->file != file) continue;
    Piece piece = *order[i];
    piece.bytes = stored_bytes(tensors[static_cast<size_t>(piece.tensor)].dtype,
                               element_count(piece.box.size));
    chosen.push_back({std::move(piece), number});
  }
  return chosen;
}

Result<ShardImage> ShardImage::make(std::span<const TensorInfo> tensors,
                                    std::span<const Piece> pieces, int32_t file) {
  HEKLA_RETURN_IF_ERROR(check_tensors(tensors));
  HEKLA_ASSIGN_OR_RETURN(std::vector<Numbered> own, pieces_of_file(tensors, pieces, file));
  std::vector<Piece> own_pieces;
  for (Numbered& numbered : own) {
    numbered.piece.chunks = nullptr;
    own_pieces.push_back(numbered.piece);
  }
  std::vector<int32_t> ids = tensors_of_file(tensors.size(), pieces, own_pieces, file);
  return build(tensors, std::move(own), std::move(ids), file);
}

Result<ShardImage> ShardImage::make_packed(std::span<const TensorInfo> tensors,
                                           std::span<const Piece> pieces, int32_t file) {
  HEKLA_RETURN_IF_ERROR(check_tensors(tensors));
  HEKLA_ASSIGN_OR_RETURN(std::vector<Numbered> own, pieces_of_file(tensors, pieces, file));
  int64_t offset = kPayloadBegin;
  std::vector<Piece> own_pieces;
  for (Numbered& numbered : own) {
    Piece& piece = numbered.piece;
    const TensorInfo& tensor = tensors[static_cast<size_t>(piece.tensor)];
    if (piece.bytes < kSmallPieceBytes) {
      return invalid_argument("a piece of tensor '{}' with {} bytes is too small to be compressed",
                              tensor.name, piece.bytes);
    }
    ChunkGrid grid = ChunkGrid::choose(tensor.dtype, piece.box.size);
    std::vector<Chunk> chunks;
    for (int64_t k = 0; k < grid.chunks(); ++k, offset += grid.full_bytes()) {
      if (offset > kMaxPayload) {
        return invalid_argument("the pieces of file {} have more than 2^60 bytes", file);
      }
      chunks.push_back({offset, grid.full_bytes(), false});
    }
    piece.chunks =
        std::make_shared<const PieceChunks>(PieceChunks{std::move(grid), std::move(chunks)});
    own_pieces.push_back(piece);
  }
  auto packed = std::make_shared<Packed>();
  packed->tensors.assign(tensors.begin(), tensors.end());
  packed->own = own;
  packed->ids = tensors_of_file(tensors.size(), pieces, own_pieces, file);
  HEKLA_ASSIGN_OR_RETURN(ShardImage image, build(tensors, std::move(own), packed->ids, file));
  image.packed_ = std::move(packed);
  return image;
}

Result<ShardImage> ShardImage::build(std::span<const TensorInfo> tensors, std::vector<Numbered> own,
                                     std::vector<int32_t> ids, int32_t file) {
  ShardImage image;
  image.file_ = file;
  int64_t payload = 0;
  bool is_packed = false;
  for (Numbered& numbered : own) {
    Piece& piece = numbered.piece;
    piece.offset = 0;
    piece.first_block = image.blocks_;
    image.blocks_ += piece_blocks(piece);
    if (piece.chunks != nullptr) {
      is_packed = true;
      for (const Chunk& chunk : piece.chunks->chunks) {
        payload = std::max(payload, whole_pages(chunk.offset + chunk.bytes - kPayloadBegin));
      }
    } else if (piece.bytes >= kSmallPieceBytes) {
      piece.offset = payload;  // from the start of the payload, for now
      // 2^60 leaves room for every sum that follows.
      if (piece.bytes > kMaxPayload - payload) {
        return invalid_argument("the pieces of file {} have more than 2^60 bytes", file);
      }
      payload += whole_pages(piece.bytes);
    }
  }

  NewFile::Bytes bytes;
  HEKLA_RETURN_IF_ERROR(on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(NewFile memory, NewFile::create(kUserBlockBytes, payload));
    if (is_packed) memory.drop_payload();
    HEKLA_ASSIGN_OR_RETURN(ObjectWriter writer, ObjectWriter::create(memory.id()));
    for (Numbered& numbered : own) {
      Piece& piece = numbered.piece;
      const TensorInfo& tensor = tensors[static_cast<size_t>(piece.tensor)];
      const std::string path = fmt::format("/state/{}/p{}", tensor.name, numbered.number);
      if (piece.chunks != nullptr) {
        HEKLA_RETURN_IF_ERROR(place_chunks(writer, memory, path, tensor.dtype, piece.box.size,
                                           *piece.chunks, ChunkFilter::kZstd, kZstdLevel));
        continue;
      }
      const bool is_payload = piece.bytes >= kSmallPieceBytes;
      if (is_payload) memory.expect_payload(piece.offset, piece.bytes);
      HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                             writer.make_dataset(path, tensor.dtype, piece.box.size));
      if (piece.bytes == 0) continue;
      HEKLA_ASSIGN_OR_RETURN(const int64_t offset, dataset_offset(dataset.get(), path));
      if (is_payload && offset != memory.payload_begin() + piece.offset) {
        return internal_error("HDF5 placed {} at {} instead of {}", path, offset,
                              memory.payload_begin() + piece.offset);
      }
      piece.offset = offset;
    }
    for (const Numbered& numbered : own) image.pieces_.push_back(numbered.piece);
    HEKLA_RETURN_IF_ERROR(write_tables(writer, tensors, ids, image.pieces_));
    HEKLA_RETURN_IF_ERROR(writer.write_column(
        "/__blocks", std::vector<uint64_t>(static_cast<size_t>(image.blocks_))));
    if (image.blocks_ > 0) {
      HEKLA_ASSIGN_OR_RETURN(
          const Handle table,
          checkpoint::own(H5Dopen2(memory.id(), "/__blocks", H5P_DEFAULT), H5Dclose, "/__blocks"));
      HEKLA_ASSIGN_OR_RETURN(image.table_offset_, dataset_offset(table.get(), "/__blocks"));
    }
    image.tail_offset_ = memory.payload_begin() + payload;
    HEKLA_ASSIGN_OR_RETURN(bytes, std::move(memory).finish());
    return ok_status();
  }));
  image.head_ = std::move(bytes.head);
  image.tail_ = std::move(bytes.tail);
  image.file_size_ = image.tail_offset_ + static_cast<int64_t>(image.tail_.size());
  return image;
}

Result<ShardImage::Finished> ShardImage::finish_packed(const ShardIdentity& identity,
                                                       std::span<const uint64_t> digests,
                                                       std::vector<std::vector<Chunk>> chunks) {
  if (packed_ == nullptr || chunks.size() != packed_->own.size()) {
    return invalid_argument("file {}: chunks of {} pieces came for {}", file_, chunks.size(),
                            pieces_.size());
  }
  std::vector<Numbered> own = packed_->own;
  for (size_t i = 0; i < own.size(); ++i) {
    const PieceChunks& planned = *own[i].piece.chunks;
    if (chunks[i].size() != planned.chunks.size()) {
      return invalid_argument("file {}: {} chunks came for {}", file_, chunks[i].size(),
                              planned.chunks.size());
    }
    own[i].piece.chunks =
        std::make_shared<const PieceChunks>(PieceChunks{planned.grid, std::move(chunks[i])});
  }
  HEKLA_ASSIGN_OR_RETURN(ShardImage image,
                         build(packed_->tensors, std::move(own), packed_->ids, file_));
  packed_->made = std::make_unique<ShardImage>(std::move(image));
  return packed_->made->finish(identity, digests);
}

std::vector<ByteRange> ShardImage::payload() const {
  const auto begin = static_cast<int64_t>(head_.size());
  if (begin == tail_offset_) return {};
  return {{begin, tail_offset_}};
}

std::span<std::byte> ShardImage::small_piece(size_t i) {
  const Piece& piece = pieces_[i];
  if (piece.bytes == 0) return {};
  return std::span(tail_).subspan(static_cast<size_t>(piece.offset - tail_offset_),
                                  static_cast<size_t>(piece.bytes));
}

Result<ShardImage::Finished> ShardImage::finish(const ShardIdentity& identity,
                                                std::span<const uint64_t> digests) {
  if (static_cast<int64_t>(digests.size()) != blocks_) {
    return invalid_argument("file {} has {} blocks, but {} digests came", file_, blocks_,
                            digests.size());
  }
  Finished finished;
  finished.digests.assign(digests.begin(), digests.end());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    // A small piece is one block.
    if (is_small(i) && pieces_[i].bytes > 0) {
      finished.digests[static_cast<size_t>(pieces_[i].first_block)] = block_digest(small_piece(i));
    }
  }
  const auto table = std::as_bytes(std::span(finished.digests));
  if (blocks_ > 0)
    std::memcpy(tail_.data() + (table_offset_ - tail_offset_), table.data(), table.size());

  UserBlock block;
  block.identity = identity;
  block.file = file_;
  block.file_size = file_size_;
  block.table_offset = table_offset_;
  block.blocks = blocks_;
  block.table_digest = digest_text(table);
  block.areas = payload();
  Hasher metadata;
  metadata.add(std::span(head_).subspan(kUserBlockBytes));
  metadata.add(tail_);
  block.metadata_digest = metadata.text();
  HEKLA_ASSIGN_OR_RETURN(const UserBlockBytes user_block, encode_user_block(block));
  std::memcpy(head_.data(), user_block.data(), user_block.size());

  finished.extents = {{0, head_}, {tail_offset_, tail_}};
  finished.pieces = pieces_;
  finished.record = {"", file_size_, block.metadata_digest, block.table_digest, 0};
  return finished;
}

}  // namespace hekla::checkpoint
