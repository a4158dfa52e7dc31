// SPDX-License-Identifier: Apache-2.0
// The HDF5 objects that checkpoint files are made of: types, groups, datasets, attributes, columns.
// No times, link order kept, no conversion: the type in memory is always the type in the file.
// Internal to this folder; on the HDF5 thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/format/hdf5.h"

namespace hekla::checkpoint {

class NewFile;
struct PieceChunks;

// The largest column that is read: more rows than any step has.
inline constexpr int64_t kMaxColumnBytes = int64_t{4} << 30;

// The little-endian HDF5 type of a dtype, see StoredAs.
Result<Handle> make_type(DType dtype);
// The space of a box or tensor: its dimensions, or the packed bytes of rank 1.
Result<Handle> make_space(DType dtype, const Dims& shape);
Dims stored_shape(DType dtype, const Dims& shape);

// What chunks go through: nothing, or a shuffle and a compressor.
enum class ChunkFilter : uint8_t { kNone, kZstd, kDeflate };

// Makes objects in one file; caches types and the groups that are there.
class ObjectWriter {
 public:
  static Result<ObjectWriter> create(hid_t file);

  // Makes the group `path` ("/state/a") and those above it, where they are missing; "" is the root.
  // The identifier is valid until the next call.
  Result<hid_t> make_groups(std::string_view path);
  // A contiguous dataset for elements of `dtype`, space allocated, not filled; its groups are made.
  // Attribute logical_dtype, for packed types also logical_shape.
  Result<Handle> make_dataset(const std::string& path, DType dtype, const Dims& shape);
  // A dataset in chunks with filters that are not run here: add_chunk says where each chunk is, by
  // its first element, in NewFile's next expected place.
  Result<Handle> make_chunked(const std::string& path, DType dtype, const Dims& shape,
                              const Dims& chunk, ChunkFilter filter, int level);
  Status add_chunk(hid_t dataset, const Dims& start, int64_t bytes, bool is_coded);
  // The type, owned by the writer.
  Result<hid_t> type(DType dtype);

  Status add_attributes(hid_t object, DType dtype, const Dims& shape);
  Status text_attribute(hid_t object, const char* name, const std::string& value);
  Status number_attribute(hid_t object, const char* name, int64_t value);

  // A column, or a table of rows of `width` numbers when `width` is above 0.
  Status write_column(const std::string& path, std::span<const uint8_t> values);
  Status write_column(const std::string& path, std::span<const int32_t> values);
  Status write_column(const std::string& path, std::span<const int64_t> values, int64_t width = 0);
  Status write_column(const std::string& path, std::span<const uint64_t> values);
  // Below the group `path`.
  Status write_texts(const std::string& path, const TextColumn& texts);
  Status write_tensors(const std::string& path, const TensorColumns& columns);
  Status write_pieces(const std::string& path, const PieceColumns& columns);

  hid_t file() const { return file_; }
  hid_t link_creation() const { return link_creation_.get(); }

 private:
  ObjectWriter() = default;
  Result<Handle> make_dataset(const std::string& path, DType dtype, const Dims& shape,
                              hid_t creation);
  Status write_array(const std::string& path, hid_t type, const void* data, size_t count,
                     int64_t width);

  hid_t file_ = H5I_INVALID_HID;
  Handle group_creation_, link_creation_, dataset_creation_, text_type_, scalar_;
  std::map<DType, Handle> types_;
  std::unordered_set<std::string> groups_;  // all that were made
  struct OpenGroup {
    std::string path;
    Handle group;
  };
  std::vector<OpenGroup> open_;  // the group in use and those above it: names are short to look up
};

// Where a contiguous dataset's elements lie in the file.
Result<int64_t> dataset_offset(hid_t dataset, const std::string& path);

// A dataset of `shape` whose chunks lie where `chunks` says; those that are not coded are marked as
// exempt from the filter. INTERNAL: HDF5 would put one elsewhere.
Status place_chunks(ObjectWriter& writer, NewFile& memory, const std::string& path, DType dtype,
                    const Dims& shape, const PieceChunks& chunks, ChunkFilter filter, int level);

Result<std::vector<uint8_t>> read_bytes(hid_t file, const std::string& path);
Result<std::vector<int32_t>> read_int32(hid_t file, const std::string& path);
Result<std::vector<uint64_t>> read_uint64(hid_t file, const std::string& path);
// `width`: nullptr for a column, else gets the width of a table.
Result<std::vector<int64_t>> read_int64(hid_t file, const std::string& path,
                                        int64_t* width = nullptr);
Result<TextColumn> read_texts(hid_t file, const std::string& path);
Result<TensorColumns> read_tensors(hid_t file, const std::string& path);
Result<PieceColumns> read_pieces(hid_t file, const std::string& path);
Result<int64_t> read_number_attribute(hid_t file, const std::string& path, const char* name);

}  // namespace hekla::checkpoint
