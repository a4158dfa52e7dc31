// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunks.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace hekla::checkpoint {
namespace {

bool is_packed(DType dtype) { return stored_bits(dtype) < 8; }

// Elements of packed types end with a byte after this many bytes.
constexpr int64_t kPackedUnit = 3;

}  // namespace

Dims stored_dims(DType dtype, const Dims& size) {
  return is_packed(dtype) ? Dims{stored_bytes(dtype, element_count(size))} : size;
}

int64_t stored_element_bytes(DType dtype) { return is_packed(dtype) ? 1 : stored_bits(dtype) / 8; }

ChunkGrid::ChunkGrid(DType dtype, const Dims& size, Dims shape, size_t axis)
    : dims_(stored_dims(dtype, size)),
      shape_(std::move(shape)),
      axis_(axis),
      element_(stored_element_bytes(dtype)) {
  row_ = element_;
  for (size_t d = axis + 1; d < dims_.size(); ++d) row_ *= dims_[d];
  extent_ = dims_[axis];
  slab_ = shape_[axis];
  in_row_ = (extent_ + slab_ - 1) / slab_;
  for (size_t d = 0; d < axis; ++d) outer_ *= dims_[d];
}

ChunkGrid ChunkGrid::choose(DType dtype, const Dims& size, int64_t max_bytes) {
  const Dims dims = stored_dims(dtype, size);
  const int64_t element = stored_element_bytes(dtype);
  int64_t row = element;
  size_t axis = dims.size() - 1;
  while (axis > 0 && dims[axis] <= max_bytes / row) row *= dims[axis--];
  int64_t slab = std::min(dims[axis], max_bytes / row);
  const int64_t count = (dims[axis] + slab - 1) / slab;
  slab = (dims[axis] + count - 1) / count;
  if (is_packed(dtype) && slab < dims[axis]) {
    slab = std::min((slab + kPackedUnit - 1) / kPackedUnit * kPackedUnit,
                    max_bytes / kPackedUnit * kPackedUnit);
  }
  Dims shape = dims;
  std::fill_n(shape.begin(), axis, 1);
  shape[axis] = slab;
  return ChunkGrid(dtype, size, std::move(shape), axis);
}

Result<ChunkGrid> ChunkGrid::make(DType dtype, const Dims& size, Dims shape) {
  const Dims dims = stored_dims(dtype, size);
  const auto bad = [&] {
    return data_loss("chunks of [{}] do not cut [{}] into slabs of at most {} bytes",
                     fmt::join(shape, ","), fmt::join(dims, ","), kMaxChunkBytes);
  };
  if (shape.empty() || shape.size() != dims.size()) return bad();
  size_t axis = dims.size() - 1;
  int64_t row = stored_element_bytes(dtype);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (shape[d] < 1 || shape[d] > dims[d]) return bad();
  }
  while (axis > 0 && shape[axis] == dims[axis]) {
    if (dims[axis] > kMaxChunkBytes / row) return bad();
    row *= dims[axis--];
  }
  if (shape[axis] > kMaxChunkBytes / row) return bad();
  for (size_t d = 0; d < axis; ++d) {
    if (shape[d] != 1) return bad();
  }
  if (is_packed(dtype) && shape[axis] < dims[axis] && shape[axis] % kPackedUnit != 0) return bad();
  return ChunkGrid(dtype, size, std::move(shape), axis);
}

int64_t ChunkGrid::begin(int64_t chunk) const {
  return (chunk / in_row_ * extent_ + chunk % in_row_ * slab_) * row_;
}

int64_t ChunkGrid::end(int64_t chunk) const {
  return (chunk / in_row_ * extent_ + std::min((chunk % in_row_ + 1) * slab_, extent_)) * row_;
}

int64_t ChunkGrid::chunk_of(int64_t byte) const {
  const int64_t index = byte / row_;
  return index / extent_ * in_row_ + index % extent_ / slab_;
}

Dims ChunkGrid::start(int64_t chunk) const {
  Dims start(dims_.size(), 0);
  start[axis_] = chunk % in_row_ * slab_;
  int64_t outer = chunk / in_row_;
  for (size_t d = axis_; d-- > 0;) {
    start[d] = outer % dims_[d];
    outer /= dims_[d];
  }
  return start;
}

int64_t piece_blocks(const Piece& piece) {
  if (piece.chunks != nullptr) return piece.chunks->grid.chunks();
  return (piece.bytes + kMaxChunkBytes - 1) / kMaxChunkBytes;
}

int64_t bytes_in_file(const Piece& piece) {
  if (piece.chunks == nullptr) return piece.bytes;
  int64_t bytes = 0;
  for (const Chunk& chunk : piece.chunks->chunks) bytes += chunk.bytes;
  return bytes;
}

bool lies_within(const Piece& piece, int64_t file_bytes) {
  const auto fits = [file_bytes](int64_t offset, int64_t bytes) {
    return offset >= 0 && bytes >= 0 && bytes <= file_bytes && offset <= file_bytes - bytes;
  };
  if (piece.chunks == nullptr) return piece.bytes == 0 || fits(piece.offset, piece.bytes);
  return std::all_of(piece.chunks->chunks.begin(), piece.chunks->chunks.end(),
                     [&](const Chunk& chunk) { return fits(chunk.offset, chunk.bytes); });
}

}  // namespace hekla::checkpoint
