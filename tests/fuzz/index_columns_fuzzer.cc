// SPDX-License-Identifier: Apache-2.0
// Any numbers as the columns of an index. libhdf5 stands before them with bytes whose digest has
// matched; what it hands on is checked as if it had not. An index that is accepted must have the
// same columns again, and each of its pieces a place.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/format/step_index.h"

namespace {

using namespace hekla;
using namespace hekla::checkpoint;

// Takes columns from the input: one byte of length, then that many numbers of one byte, or of eight
// where the length's top bit is set.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data, size) {}

  template <typename T>
  std::vector<T> column() {
    const uint8_t head = byte();
    std::vector<T> values(head & 0x3f);
    for (T& value : values) value = (head & 0x80) != 0 ? static_cast<T>(wide()) : byte();
    return values;
  }
  uint8_t byte() {
    if (data_.empty()) return 0;
    const uint8_t value = data_[0];
    data_ = data_.subspan(1);
    return value;
  }

 private:
  int64_t wide() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return static_cast<int64_t>(value);
  }
  std::span<const uint8_t> data_;
};

[[noreturn]] void fail(const char* why, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", why, status.to_string().c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  TensorColumns columns;
  columns.name = {input.column<uint8_t>(), input.column<int64_t>()};
  columns.spec = {input.column<uint8_t>(), input.column<int64_t>()};
  columns.dtype = input.column<int32_t>();
  columns.rank = input.column<int32_t>();
  columns.width = static_cast<int8_t>(input.byte());
  columns.shape = input.column<int64_t>();
  const auto tensors = tensors_from_columns(columns);
  if (!tensors.ok()) {
    if (tensors.status().code() != StatusCode::kDataLoss) fail("not clear", tensors.status());
    return 0;
  }
  PieceColumns piece_columns;
  piece_columns.tensor = input.column<int32_t>();
  piece_columns.writer = input.column<int32_t>();
  piece_columns.file = input.column<int32_t>();
  piece_columns.width = static_cast<int8_t>(input.byte());
  piece_columns.start = input.column<int64_t>();
  piece_columns.size = input.column<int64_t>();
  piece_columns.offset = input.column<int64_t>();
  piece_columns.bytes = input.column<int64_t>();
  piece_columns.first_block = input.column<int64_t>();
  piece_columns.block_count = input.column<int64_t>();
  piece_columns.is_chunked = input.column<uint8_t>();
  piece_columns.chunk_shape = input.column<int64_t>();
  piece_columns.chunk_offset = input.column<int64_t>();
  piece_columns.chunk_bytes = input.column<int64_t>();
  piece_columns.chunk_is_coded = input.column<uint8_t>();
  const auto pieces = pieces_from_columns(piece_columns, *tensors);
  if (!pieces.ok()) {
    if (pieces.status().code() != StatusCode::kDataLoss) fail("not clear", pieces.status());
    return 0;
  }
  const std::string digest(32, '0');
  std::vector<FileRecord> files;
  std::vector<std::vector<uint64_t>> digests;
  for (const int64_t file_size : input.column<int64_t>()) {
    files.push_back({"file" + std::to_string(files.size()), file_size, digest, digest, 0});
    digests.push_back(input.column<uint64_t>());
  }
  const auto index = make_index(1, *tensors, *pieces, files, digests);
  if (!index.ok()) {
    if (index.status().code() != StatusCode::kInvalidArgument) fail("not clear", index.status());
    return 0;
  }
  if (columns_from_tensors(index->tensors).name != columns.name) fail("other names", ok_status());
  const auto again = pieces_from_columns(columns_from_pieces(index->pieces), index->tensors);
  if (!again.ok() || again->size() != pieces->size()) fail("does not survive", again.status());
  for (const Piece& piece : index->pieces) {
    if (piece.chunks == nullptr) continue;
    const ChunkGrid& grid = piece.chunks->grid;
    if (grid.begin(0) != 0 || grid.end(grid.chunks() - 1) != piece.bytes ||
        grid.full_bytes() > kMaxChunkBytes) {
      fail("chunks are no cut", ok_status());
    }
  }
  for (size_t i = 0; i < index->tensors.size(); ++i) {
    if (index->tensor_digest(static_cast<int32_t>(i)).size() > 32) fail("digest", ok_status());
  }
  return 0;
}
