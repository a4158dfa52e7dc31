// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/columns.h"

#include <algorithm>
#include <tuple>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/format/stored_type.h"

namespace hekla::checkpoint {
namespace {

void add_row(const Dims& row, int64_t width, std::vector<int64_t>& column) {
  column.insert(column.end(), row.begin(), row.end());
  column.resize(column.size() + static_cast<size_t>(width) - row.size(), 0);
}

// Row i of a padded column, or DATA_LOSS when something stands behind its `rank` numbers.
Result<Dims> row(const std::vector<int64_t>& column, int64_t width, size_t i, size_t rank) {
  const auto begin = column.begin() + static_cast<std::ptrdiff_t>(i) * width;
  const auto end = begin + static_cast<std::ptrdiff_t>(rank);
  if (std::any_of(end, begin + width, [](int64_t value) { return value != 0; })) {
    return data_loss("row {} has numbers behind its rank {}", i, rank);
  }
  return Dims(begin, end);
}

bool fits(size_t rows, int64_t width, size_t numbers) {
  return width >= 1 && width <= kMaxRank && rows * static_cast<size_t>(width) == numbers;
}

}  // namespace

void TextColumn::add(std::string_view text) {
  bytes.insert(bytes.end(), text.begin(), text.end());
  ends.push_back(static_cast<int64_t>(bytes.size()));
}

Result<std::vector<std::string>> texts_from_column(const TextColumn& column) {
  std::vector<std::string> texts;
  texts.reserve(column.ends.size());
  int64_t begin = 0;
  for (const int64_t end : column.ends) {
    if (end < begin || end > static_cast<int64_t>(column.bytes.size())) {
      return data_loss("text {} ends at {}, outside of its column", texts.size(), end);
    }
    texts.emplace_back(column.bytes.begin() + begin, column.bytes.begin() + end);
    begin = end;
  }
  if (begin != static_cast<int64_t>(column.bytes.size())) {
    return data_loss("{} bytes of a text column belong to no text",
                     static_cast<int64_t>(column.bytes.size()) - begin);
  }
  return texts;
}

TensorColumns columns_from_tensors(std::span<const TensorInfo> tensors) {
  TensorColumns columns;
  columns.width = 1;
  for (const TensorInfo& tensor : tensors) {
    columns.width = std::max<int64_t>(columns.width, static_cast<int64_t>(tensor.shape.size()));
  }
  for (const TensorInfo& tensor : tensors) {
    columns.name.add(tensor.name);
    columns.spec.add(tensor.spec);
    const StoredType* type = stored_type(tensor.dtype);
    columns.dtype.push_back(type == nullptr ? 0 : type->code);
    columns.rank.push_back(static_cast<int32_t>(tensor.shape.size()));
    add_row(tensor.shape, columns.width, columns.shape);
  }
  return columns;
}

Result<std::vector<TensorInfo>> tensors_from_columns(const TensorColumns& columns) {
  const size_t n = columns.dtype.size();
  if (columns.rank.size() != n || columns.name.ends.size() != n || columns.spec.ends.size() != n ||
      !fits(n, columns.width, columns.shape.size())) {
    return data_loss("the columns of {} tensors have different lengths", n);
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<std::string> names, texts_from_column(columns.name));
  HEKLA_ASSIGN_OR_RETURN(std::vector<std::string> specs, texts_from_column(columns.spec));
  std::vector<TensorInfo> tensors(n);
  for (size_t i = 0; i < n; ++i) {
    if (columns.rank[i] < 0 || columns.rank[i] > columns.width) {
      return data_loss("tensor {} has rank {} of at most {}", i, columns.rank[i], columns.width);
    }
    tensors[i].name = std::move(names[i]);
    tensors[i].spec = std::move(specs[i]);
    tensors[i].dtype = dtype_from_code(columns.dtype[i]);
    HEKLA_ASSIGN_OR_RETURN(tensors[i].shape, row(columns.shape, columns.width, i,
                                                 static_cast<size_t>(columns.rank[i])));
  }
  if (const Status status = check_tensors(tensors); !status.ok()) {
    return data_loss("{}", status.message());
  }
  return tensors;
}

PieceColumns columns_from_pieces(std::span<const Piece> pieces) {
  PieceColumns columns;
  columns.width = 1;
  for (const Piece& piece : pieces) {
    columns.width = std::max<int64_t>(columns.width, static_cast<int64_t>(piece.box.start.size()));
  }
  for (const Piece& piece : pieces) {
    columns.tensor.push_back(piece.tensor);
    columns.writer.push_back(piece.writer);
    columns.file.push_back(piece.file);
    add_row(piece.box.start, columns.width, columns.start);
    add_row(piece.box.size, columns.width, columns.size);
    columns.offset.push_back(piece.offset);
    columns.bytes.push_back(piece.bytes);
    columns.first_block.push_back(piece.first_block);
    columns.block_count.push_back(piece_blocks(piece));
  }
  const bool has_chunks = std::any_of(pieces.begin(), pieces.end(),
                                      [](const Piece& piece) { return piece.chunks != nullptr; });
  if (!has_chunks) return columns;
  for (const Piece& piece : pieces) {
    columns.is_chunked.push_back(piece.chunks != nullptr);
    add_row(piece.chunks == nullptr ? Dims() : piece.chunks->grid.shape(), columns.width,
            columns.chunk_shape);
    if (piece.chunks == nullptr) continue;
    for (const Chunk& chunk : piece.chunks->chunks) {
      columns.chunk_offset.push_back(chunk.offset);
      columns.chunk_bytes.push_back(chunk.bytes);
      columns.chunk_is_coded.push_back(chunk.is_coded);
    }
  }
  return columns;
}

namespace {

// The chunks of piece i, which are the columns' next ones from *next on.
Result<std::shared_ptr<const PieceChunks>> chunks_from_columns(const PieceColumns& columns,
                                                               size_t i, DType dtype,
                                                               const Dims& size, size_t* next) {
  if (element_count(size) == 0) return data_loss("chunks of no elements");
  HEKLA_ASSIGN_OR_RETURN(
      Dims shape, row(columns.chunk_shape, columns.width, i, stored_dims(dtype, size).size()));
  HEKLA_ASSIGN_OR_RETURN(ChunkGrid grid, ChunkGrid::make(dtype, size, std::move(shape)));
  const size_t left = columns.chunk_offset.size() - *next;
  if (static_cast<uint64_t>(grid.chunks()) > left) {
    return data_loss("{} chunks where {} are left", grid.chunks(), left);
  }
  auto made = std::make_shared<PieceChunks>(PieceChunks{std::move(grid), {}});
  for (int64_t k = 0; k < made->grid.chunks(); ++k, ++*next) {
    const Chunk chunk{columns.chunk_offset[*next], columns.chunk_bytes[*next],
                      columns.chunk_is_coded[*next] != 0};
    if (chunk.offset < 0 || chunk.bytes < 1 || chunk.bytes > made->grid.full_bytes() ||
        chunk.offset > INT64_MAX - chunk.bytes ||
        (!chunk.is_coded && chunk.bytes != made->grid.full_bytes())) {
      return data_loss("chunk {} with {} bytes at offset {} cannot be", k, chunk.bytes,
                       chunk.offset);
    }
    made->chunks.push_back(chunk);
  }
  return std::shared_ptr<const PieceChunks>(std::move(made));
}

}  // namespace

Result<std::vector<Piece>> pieces_from_columns(const PieceColumns& columns,
                                               std::span<const TensorInfo> tensors) {
  const size_t n = columns.tensor.size();
  if (columns.writer.size() != n || columns.file.size() != n || columns.offset.size() != n ||
      columns.bytes.size() != n || columns.first_block.size() != n ||
      columns.block_count.size() != n || !fits(n, columns.width, columns.start.size()) ||
      !fits(n, columns.width, columns.size.size())) {
    return data_loss("the columns of {} pieces have different lengths", n);
  }
  const bool has_chunks = !columns.is_chunked.empty();
  if (columns.chunk_bytes.size() != columns.chunk_offset.size() ||
      columns.chunk_is_coded.size() != columns.chunk_offset.size() ||
      (has_chunks
           ? columns.is_chunked.size() != n || !fits(n, columns.width, columns.chunk_shape.size())
           : !columns.chunk_shape.empty() || !columns.chunk_offset.empty())) {
    return data_loss("the columns of chunks of {} pieces have different lengths", n);
  }
  size_t next_chunk = 0;
  std::vector<Piece> pieces(n);
  for (size_t i = 0; i < n; ++i) {
    Piece& piece = pieces[i];
    piece.tensor = columns.tensor[i];
    if (piece.tensor < 0 || static_cast<size_t>(piece.tensor) >= tensors.size()) {
      return data_loss("piece {} belongs to tensor {} of {}", i, piece.tensor, tensors.size());
    }
    const TensorInfo& tensor = tensors[static_cast<size_t>(piece.tensor)];
    const size_t rank = tensor.shape.size();
    if (static_cast<int64_t>(rank) > columns.width) {
      return data_loss("piece {} has fewer dimensions than tensor '{}'", i, tensor.name);
    }
    HEKLA_ASSIGN_OR_RETURN(piece.box.start, row(columns.start, columns.width, i, rank));
    HEKLA_ASSIGN_OR_RETURN(piece.box.size, row(columns.size, columns.width, i, rank));
    if (const Status status = check_box(piece.box, tensor); !status.ok()) {
      return data_loss("piece {}: {}", i, status.message());
    }
    piece.writer = columns.writer[i];
    piece.file = columns.file[i];
    piece.offset = columns.offset[i];
    piece.bytes = columns.bytes[i];
    piece.first_block = columns.first_block[i];
    if (has_chunks && columns.is_chunked[i] != 0) {
      auto chunks = chunks_from_columns(columns, i, tensor.dtype, piece.box.size, &next_chunk);
      if (!chunks.ok()) {
        return data_loss("piece {} of tensor '{}': {}", i, tensor.name, chunks.status().message());
      }
      piece.chunks = *std::move(chunks);
    }
    if (piece.writer < 0 || piece.file < 0 || piece.offset < 0 || piece.first_block < 0 ||
        piece.bytes != stored_bytes(tensor.dtype, element_count(piece.box.size)) ||
        piece.offset > INT64_MAX - piece.bytes ||
        piece.first_block > INT64_MAX - piece_blocks(piece) ||
        columns.block_count[i] != piece_blocks(piece)) {
      return data_loss(
          "piece {} of tensor '{}': its file {}, offset {}, bytes {} or blocks {} from "
          "{} cannot be",
          i, tensor.name, piece.file, piece.offset, piece.bytes, columns.block_count[i],
          piece.first_block);
    }
  }
  if (next_chunk != columns.chunk_offset.size()) {
    return data_loss("{} of {} chunks belong to a piece", next_chunk, columns.chunk_offset.size());
  }
  return pieces;
}

Status check_box(const Box& box, const TensorInfo& tensor) {
  const size_t rank = tensor.shape.size();
  if (box.start.size() != rank || box.size.size() != rank) {
    return invalid_argument("a box of rank {} in tensor '{}' of rank {}", box.start.size(),
                            tensor.name, rank);
  }
  for (size_t d = 0; d < rank; ++d) {
    if (box.start[d] < 0 || box.size[d] < 0 || box.size[d] > tensor.shape[d] ||
        box.start[d] > tensor.shape[d] - box.size[d]) {
      return invalid_argument("a box with {} from {} in dimension {} of tensor '{}', which has {}",
                              box.size[d], box.start[d], d, tensor.name, tensor.shape[d]);
    }
  }
  return ok_status();
}

bool piece_before(const Piece& a, const Piece& b) {
  return std::tie(a.tensor, a.box.start, a.box.size, a.file) <
         std::tie(b.tensor, b.box.start, b.box.size, b.file);
}

}  // namespace hekla::checkpoint
