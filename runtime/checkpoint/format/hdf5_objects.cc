// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/hdf5_objects.h"

#include <algorithm>
#include <type_traits>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/codec/codec.h"
#include "runtime/checkpoint/format/memory_file.h"
#include "runtime/checkpoint/format/stored_type.h"

namespace hekla::checkpoint {
namespace {

Result<Handle> copy_type(hid_t type) { return own(H5Tcopy(type), H5Tclose, "copy a type"); }

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return H5T_STD_I8LE;
    case DType::kI16:
      return H5T_STD_I16LE;
    case DType::kI32:
      return H5T_STD_I32LE;
    case DType::kI64:
      return H5T_STD_I64LE;
    case DType::kUI16:
      return H5T_STD_U16LE;
    case DType::kUI32:
      return H5T_STD_U32LE;
    case DType::kUI64:
      return H5T_STD_U64LE;
    case DType::kTF32:
    case DType::kF32:
      return H5T_IEEE_F32LE;
    case DType::kF64:
      return H5T_IEEE_F64LE;
    default:
      return H5T_STD_U8LE;
  }
}

// An IEEE-like float: sign at the top, `exponent` bits, `mantissa` bits from bit 0.
Result<Handle> float_type(int bits, int exponent, int mantissa, int bias) {
  HEKLA_ASSIGN_OR_RETURN(Handle type, copy_type(H5T_IEEE_F32LE));
  const auto u = [](int value) { return static_cast<size_t>(value); };
  // Fields first: the size may only shrink to what they need.
  HEKLA_RETURN_IF_ERROR(check_hdf5(
      H5Tset_fields(type.get(), u(bits - 1), u(mantissa), u(exponent), 0, u(mantissa)), "fields"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tset_precision(type.get(), u(bits)), "precision"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tset_size(type.get(), u(bits / 8)), "size"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tset_ebias(type.get(), u(bias)), "bias"));
  return type;
}

template <typename T>
hid_t number_type() {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return H5T_STD_U8LE;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return H5T_STD_I32LE;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return H5T_STD_I64LE;
  } else {
    static_assert(std::is_same_v<T, uint64_t>);
    return H5T_STD_U64LE;
  }
}

template <typename T>
Result<std::vector<T>> read_array(hid_t file, const std::string& path, int64_t* width) {
  HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                         own(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, path));
  HEKLA_ASSIGN_OR_RETURN(const Handle type, own(H5Dget_type(dataset.get()), H5Tclose, path));
  if (H5Tequal(type.get(), number_type<T>()) <= 0) {
    return data_loss("the column {} has another type than its format says", path);
  }
  HEKLA_ASSIGN_OR_RETURN(const Handle space, own(H5Dget_space(dataset.get()), H5Sclose, path));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != (width == nullptr ? 1 : 2)) return data_loss("the column {} has rank {}", path, rank);
  hsize_t dims[2] = {0, 1};
  H5Sget_simple_extent_dims(space.get(), dims, nullptr);
  constexpr hsize_t kLimit = kMaxColumnBytes / sizeof(T);
  if (dims[0] > kLimit || dims[1] > kLimit || dims[0] * dims[1] > kLimit) {
    return data_loss("the column {} has {} x {} numbers, the limit is {}", path, dims[0], dims[1],
                     kLimit);
  }
  std::vector<T> values(dims[0] * dims[1]);
  if (width != nullptr) *width = static_cast<int64_t>(dims[1]);
  if (values.empty()) return values;
  HEKLA_RETURN_IF_ERROR(check_hdf5(
      H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), path));
  return values;
}

}  // namespace

Result<Handle> make_type(DType dtype) {
  const StoredType* stored = stored_type(dtype);
  if (stored == nullptr) return invalid_argument("a tensor without an element type");
  switch (stored->as) {
    case StoredAs::kBool: {
      HEKLA_ASSIGN_OR_RETURN(Handle type, own(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "bool"));
      const int8_t no = 0, yes = 1;
      HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tenum_insert(type.get(), "FALSE", &no), "bool"));
      HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tenum_insert(type.get(), "TRUE", &yes), "bool"));
      return type;
    }
    case StoredAs::kComplex: {
      const DType part = complex_part(dtype);
      const auto bytes = static_cast<size_t>(dtype_bytes(part));
      HEKLA_ASSIGN_OR_RETURN(Handle type,
                             own(H5Tcreate(H5T_COMPOUND, 2 * bytes), H5Tclose, "complex"));
      const hid_t part_type = native_type(part);
      HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tinsert(type.get(), "r", 0, part_type), "complex"));
      HEKLA_RETURN_IF_ERROR(check_hdf5(H5Tinsert(type.get(), "i", bytes, part_type), "complex"));
      return type;
    }
    case StoredAs::kBf16:
      return float_type(16, 8, 7, 127);
    case StoredAs::kF8E5M2:
      return float_type(8, 5, 2, 15);
    case StoredAs::kNative:
      if (dtype == DType::kF16) return float_type(16, 5, 10, 15);
      return copy_type(native_type(dtype));
    case StoredAs::kBytes:
    case StoredAs::kPacked:
      return copy_type(H5T_STD_U8LE);
  }
  return internal_error("a stored type without an HDF5 type");
}

Dims stored_shape(DType dtype, const Dims& shape) {
  const StoredType* stored = stored_type(dtype);
  if (stored != nullptr && stored->as == StoredAs::kPacked) {
    return {stored_bytes(dtype, element_count(shape))};
  }
  return shape;
}

Result<Handle> make_space(DType dtype, const Dims& shape) {
  const Dims stored = stored_shape(dtype, shape);
  if (stored.empty()) return own(H5Screate(H5S_SCALAR), H5Sclose, "make a scalar space");
  const std::vector<hsize_t> dims(stored.begin(), stored.end());
  return own(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose,
             "make a space");
}

Result<ObjectWriter> ObjectWriter::create(hid_t file) {
  ObjectWriter writer;
  writer.file_ = file;
  constexpr unsigned kOrder = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
  HEKLA_ASSIGN_OR_RETURN(writer.group_creation_,
                         own(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group creation"));
  const hid_t group = writer.group_creation_.get();
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_obj_track_times(group, false), "set times"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_link_creation_order(group, kOrder), "set link order"));
  HEKLA_ASSIGN_OR_RETURN(writer.link_creation_,
                         own(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "link creation"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Pset_char_encoding(writer.link_creation_.get(), H5T_CSET_UTF8), "set encoding"));
  HEKLA_ASSIGN_OR_RETURN(writer.dataset_creation_,
                         own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation"));
  const hid_t dataset = writer.dataset_creation_.get();
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_obj_track_times(dataset, false), "set times"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_layout(dataset, H5D_CONTIGUOUS), "set layout"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Pset_alloc_time(dataset, H5D_ALLOC_TIME_EARLY), "set allocation time"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Pset_fill_time(dataset, H5D_FILL_TIME_NEVER), "set fill time"));
  HEKLA_ASSIGN_OR_RETURN(writer.text_type_, own(H5Tcopy(H5T_C_S1), H5Tclose, "text type"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Tset_size(writer.text_type_.get(), H5T_VARIABLE), "text type"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Tset_cset(writer.text_type_.get(), H5T_CSET_UTF8), "text type"));
  HEKLA_ASSIGN_OR_RETURN(writer.scalar_, own(H5Screate(H5S_SCALAR), H5Sclose, "scalar space"));
  return writer;
}

Result<hid_t> ObjectWriter::make_groups(std::string_view path) {
  while (!open_.empty() &&
         !(path.starts_with(open_.back().path) &&
           (path.size() == open_.back().path.size() || path[open_.back().path.size()] == '/'))) {
    open_.pop_back();
  }
  size_t done = open_.empty() ? 0 : open_.back().path.size();
  while (done < path.size()) {
    const size_t end = std::min(path.find('/', done + 1), path.size());
    const hid_t above = open_.empty() ? file_ : open_.back().group.get();
    const std::string name(path.substr(done + 1, end - done - 1));
    std::string whole(path.substr(0, end));
    const bool is_new = groups_.insert(whole).second;
    HEKLA_ASSIGN_OR_RETURN(Handle group,
                           own(is_new ? H5Gcreate2(above, name.c_str(), link_creation_.get(),
                                                   group_creation_.get(), H5P_DEFAULT)
                                      : H5Gopen2(above, name.c_str(), H5P_DEFAULT),
                               H5Gclose, whole));
    open_.push_back({std::move(whole), std::move(group)});
    done = end;
  }
  return open_.empty() ? file_ : open_.back().group.get();
}

Result<hid_t> ObjectWriter::type(DType dtype) {
  auto found = types_.find(dtype);
  if (found == types_.end()) {
    HEKLA_ASSIGN_OR_RETURN(Handle type, make_type(dtype));
    found = types_.emplace(dtype, std::move(type)).first;
  }
  return found->second.get();
}

Result<Handle> ObjectWriter::make_chunked(const std::string& path, DType dtype, const Dims& shape,
                                          const Dims& chunk, ChunkFilter filter, int level) {
  HEKLA_ASSIGN_OR_RETURN(const Handle creation,
                         own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation"));
  const std::vector<hsize_t> dims(chunk.begin(), chunk.end());
  const auto parameter = static_cast<unsigned>(level);
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_obj_track_times(creation.get(), false), "set times"));
  HEKLA_RETURN_IF_ERROR(check_hdf5(
      H5Pset_chunk(creation.get(), static_cast<int>(dims.size()), dims.data()), "set chunks"));
  HEKLA_RETURN_IF_ERROR(
      check_hdf5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "set fill time"));
  if (filter != ChunkFilter::kNone) {
    const H5Z_filter_t number = filter == ChunkFilter::kZstd ? kZstdFilter : H5Z_FILTER_DEFLATE;
    // Optional: the library has no zstd, and need not have it to make the dataset.
    HEKLA_RETURN_IF_ERROR(
        check_hdf5(H5Pset_filter(creation.get(), kShuffleFilter, H5Z_FLAG_OPTIONAL, 0, nullptr),
                   "set shuffle"));
    HEKLA_RETURN_IF_ERROR(
        check_hdf5(H5Pset_filter(creation.get(), number, H5Z_FLAG_OPTIONAL, 1, &parameter),
                   "set the compressor"));
  }
  return make_dataset(path, dtype, shape, creation.get());
}

Status ObjectWriter::add_chunk(hid_t dataset, const Dims& start, int64_t bytes, bool is_coded) {
  // The driver puts no byte of it anywhere.
  static const std::vector<std::byte> nothing(static_cast<size_t>(kMaxChunkBytes));
  constexpr uint32_t kNoFilters = 3;
  const std::vector<hsize_t> offset(start.begin(), start.end());
  return check_hdf5(H5Dwrite_chunk(dataset, H5P_DEFAULT, is_coded ? 0 : kNoFilters, offset.data(),
                                   static_cast<size_t>(bytes), nothing.data()),
                    "place a chunk");
}

Result<int64_t> dataset_offset(hid_t dataset, const std::string& path) {
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) return hdf5_error("offset of " + path);
  return static_cast<int64_t>(offset);
}

Status place_chunks(ObjectWriter& writer, NewFile& memory, const std::string& path, DType dtype,
                    const Dims& shape, const PieceChunks& chunks, ChunkFilter filter, int level) {
  const ChunkGrid& grid = chunks.grid;
  HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                         writer.make_chunked(path, dtype, shape, grid.shape(), filter, level));
  for (int64_t k = 0; k < grid.chunks(); ++k) {
    const Chunk& chunk = chunks.chunks[static_cast<size_t>(k)];
    memory.expect_payload(chunk.offset - memory.payload_begin(), chunk.bytes);
    const bool has_no_mask = chunk.is_coded || filter == ChunkFilter::kNone;
    HEKLA_RETURN_IF_ERROR(writer.add_chunk(dataset.get(), grid.start(k), chunk.bytes, has_no_mask));
    if (!memory.took_payload()) return internal_error("HDF5 placed a chunk of {} elsewhere", path);
  }
  return ok_status();
}

Result<Handle> ObjectWriter::make_dataset(const std::string& path, DType dtype, const Dims& shape) {
  return make_dataset(path, dtype, shape, dataset_creation_.get());
}

Result<Handle> ObjectWriter::make_dataset(const std::string& path, DType dtype, const Dims& shape,
                                          hid_t creation) {
  const size_t slash = path.rfind('/');
  HEKLA_ASSIGN_OR_RETURN(const hid_t group, make_groups(std::string_view(path).substr(0, slash)));
  HEKLA_ASSIGN_OR_RETURN(const hid_t type_id, type(dtype));
  HEKLA_ASSIGN_OR_RETURN(const Handle space, make_space(dtype, shape));
  HEKLA_ASSIGN_OR_RETURN(Handle dataset,
                         own(H5Dcreate2(group, path.c_str() + slash + 1, type_id, space.get(),
                                        link_creation_.get(), creation, H5P_DEFAULT),
                             H5Dclose, path));
  HEKLA_RETURN_IF_ERROR(add_attributes(dataset.get(), dtype, shape));
  return dataset;
}

Status ObjectWriter::add_attributes(hid_t object, DType dtype, const Dims& shape) {
  const StoredType* stored = stored_type(dtype);
  HEKLA_RETURN_IF_ERROR(text_attribute(object, "logical_dtype", std::string(stored->name)));
  if (stored->as != StoredAs::kPacked) return ok_status();
  const hsize_t rank = shape.size();
  HEKLA_ASSIGN_OR_RETURN(const Handle space,
                         own(H5Screate_simple(1, &rank, nullptr), H5Sclose, "logical_shape"));
  HEKLA_ASSIGN_OR_RETURN(
      const Handle attribute,
      own(H5Acreate2(object, "logical_shape", H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
          H5Aclose, "logical_shape"));
  if (shape.empty()) return ok_status();
  return check_hdf5(H5Awrite(attribute.get(), H5T_STD_I64LE, shape.data()), "logical_shape");
}

Status ObjectWriter::text_attribute(hid_t object, const char* name, const std::string& value) {
  HEKLA_ASSIGN_OR_RETURN(
      const Handle attribute,
      own(H5Acreate2(object, name, text_type_.get(), scalar_.get(), H5P_DEFAULT, H5P_DEFAULT),
          H5Aclose, name));
  const char* text = value.c_str();
  return check_hdf5(H5Awrite(attribute.get(), text_type_.get(), &text), name);
}

Status ObjectWriter::number_attribute(hid_t object, const char* name, int64_t value) {
  HEKLA_ASSIGN_OR_RETURN(
      const Handle attribute,
      own(H5Acreate2(object, name, H5T_STD_I64LE, scalar_.get(), H5P_DEFAULT, H5P_DEFAULT),
          H5Aclose, name));
  return check_hdf5(H5Awrite(attribute.get(), H5T_STD_I64LE, &value), name);
}

Status ObjectWriter::write_array(const std::string& path, hid_t type, const void* data,
                                 size_t count, int64_t width) {
  const size_t slash = path.rfind('/');
  HEKLA_ASSIGN_OR_RETURN(const hid_t group, make_groups(std::string_view(path).substr(0, slash)));
  const auto columns = static_cast<hsize_t>(width);
  const hsize_t dims[2] = {width > 0 ? count / columns : count, columns};
  HEKLA_ASSIGN_OR_RETURN(const Handle space, own(H5Screate_simple(width > 0 ? 2 : 1, dims, nullptr),
                                                 H5Sclose, "space of a column"));
  HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                         own(H5Dcreate2(group, path.c_str() + slash + 1, type, space.get(),
                                        link_creation_.get(), dataset_creation_.get(), H5P_DEFAULT),
                             H5Dclose, path));
  if (count == 0) return ok_status();
  return check_hdf5(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), path);
}

#define HEKLA_WRITE(values, width)                                                    \
  write_array(path, number_type<std::remove_const_t<decltype(values)::value_type>>(), \
              values.data(), values.size(), width)
Status ObjectWriter::write_column(const std::string& path, std::span<const uint8_t> values) {
  return HEKLA_WRITE(values, 0);
}
Status ObjectWriter::write_column(const std::string& path, std::span<const int32_t> values) {
  return HEKLA_WRITE(values, 0);
}
Status ObjectWriter::write_column(const std::string& path, std::span<const int64_t> values,
                                  int64_t width) {
  return HEKLA_WRITE(values, width);
}
Status ObjectWriter::write_column(const std::string& path, std::span<const uint64_t> values) {
  return HEKLA_WRITE(values, 0);
}
#undef HEKLA_WRITE

Status ObjectWriter::write_texts(const std::string& path, const TextColumn& texts) {
  HEKLA_RETURN_IF_ERROR(write_column(path + "/utf8", texts.bytes));
  return write_column(path + "/end", texts.ends);
}

Status ObjectWriter::write_tensors(const std::string& path, const TensorColumns& columns) {
  HEKLA_RETURN_IF_ERROR(write_texts(path + "/name", columns.name));
  HEKLA_RETURN_IF_ERROR(write_texts(path + "/spec", columns.spec));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/dtype", columns.dtype));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/rank", columns.rank));
  return write_column(path + "/shape", columns.shape, columns.width);
}

Status ObjectWriter::write_pieces(const std::string& path, const PieceColumns& columns) {
  HEKLA_RETURN_IF_ERROR(write_column(path + "/tensor", columns.tensor));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/writer", columns.writer));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/file", columns.file));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/box_start", columns.start, columns.width));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/box_size", columns.size, columns.width));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/offset", columns.offset));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/bytes", columns.bytes));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/first_block", columns.first_block));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/block_count", columns.block_count));
  if (columns.is_chunked.empty()) return ok_status();
  HEKLA_RETURN_IF_ERROR(write_column(path + "/is_chunked", columns.is_chunked));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/chunk_shape", columns.chunk_shape, columns.width));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/chunk_offset", columns.chunk_offset));
  HEKLA_RETURN_IF_ERROR(write_column(path + "/chunk_bytes", columns.chunk_bytes));
  return write_column(path + "/chunk_is_coded", columns.chunk_is_coded);
}

Result<std::vector<uint8_t>> read_bytes(hid_t file, const std::string& path) {
  return read_array<uint8_t>(file, path, nullptr);
}
Result<std::vector<int32_t>> read_int32(hid_t file, const std::string& path) {
  return read_array<int32_t>(file, path, nullptr);
}
Result<std::vector<uint64_t>> read_uint64(hid_t file, const std::string& path) {
  return read_array<uint64_t>(file, path, nullptr);
}
Result<std::vector<int64_t>> read_int64(hid_t file, const std::string& path, int64_t* width) {
  return read_array<int64_t>(file, path, width);
}

Result<TextColumn> read_texts(hid_t file, const std::string& path) {
  TextColumn texts;
  HEKLA_ASSIGN_OR_RETURN(texts.bytes, read_bytes(file, path + "/utf8"));
  HEKLA_ASSIGN_OR_RETURN(texts.ends, read_int64(file, path + "/end"));
  return texts;
}

Result<TensorColumns> read_tensors(hid_t file, const std::string& path) {
  TensorColumns columns;
  HEKLA_ASSIGN_OR_RETURN(columns.name, read_texts(file, path + "/name"));
  HEKLA_ASSIGN_OR_RETURN(columns.spec, read_texts(file, path + "/spec"));
  HEKLA_ASSIGN_OR_RETURN(columns.dtype, read_int32(file, path + "/dtype"));
  HEKLA_ASSIGN_OR_RETURN(columns.rank, read_int32(file, path + "/rank"));
  HEKLA_ASSIGN_OR_RETURN(columns.shape, read_int64(file, path + "/shape", &columns.width));
  return columns;
}

Result<PieceColumns> read_pieces(hid_t file, const std::string& path) {
  PieceColumns columns;
  int64_t width = 0;
  HEKLA_ASSIGN_OR_RETURN(columns.tensor, read_int32(file, path + "/tensor"));
  HEKLA_ASSIGN_OR_RETURN(columns.writer, read_int32(file, path + "/writer"));
  HEKLA_ASSIGN_OR_RETURN(columns.file, read_int32(file, path + "/file"));
  HEKLA_ASSIGN_OR_RETURN(columns.start, read_int64(file, path + "/box_start", &columns.width));
  HEKLA_ASSIGN_OR_RETURN(columns.size, read_int64(file, path + "/box_size", &width));
  if (width != columns.width) return data_loss("{}: boxes of different ranks", path);
  HEKLA_ASSIGN_OR_RETURN(columns.offset, read_int64(file, path + "/offset"));
  HEKLA_ASSIGN_OR_RETURN(columns.bytes, read_int64(file, path + "/bytes"));
  HEKLA_ASSIGN_OR_RETURN(columns.first_block, read_int64(file, path + "/first_block"));
  HEKLA_ASSIGN_OR_RETURN(columns.block_count, read_int64(file, path + "/block_count"));
  if (H5Lexists(file, (path + "/is_chunked").c_str(), H5P_DEFAULT) <= 0) return columns;
  HEKLA_ASSIGN_OR_RETURN(columns.is_chunked, read_bytes(file, path + "/is_chunked"));
  HEKLA_ASSIGN_OR_RETURN(columns.chunk_shape, read_int64(file, path + "/chunk_shape", &width));
  if (width != columns.width) return data_loss("{}: chunks of another rank", path);
  HEKLA_ASSIGN_OR_RETURN(columns.chunk_offset, read_int64(file, path + "/chunk_offset"));
  HEKLA_ASSIGN_OR_RETURN(columns.chunk_bytes, read_int64(file, path + "/chunk_bytes"));
  HEKLA_ASSIGN_OR_RETURN(columns.chunk_is_coded, read_bytes(file, path + "/chunk_is_coded"));
  return columns;
}

Result<int64_t> read_number_attribute(hid_t file, const std::string& path, const char* name) {
  HEKLA_ASSIGN_OR_RETURN(
      const Handle attribute,
      own(H5Aopen_by_name(file, path.c_str(), name, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name));
  HEKLA_ASSIGN_OR_RETURN(const Handle type, own(H5Aget_type(attribute.get()), H5Tclose, name));
  HEKLA_ASSIGN_OR_RETURN(const Handle space, own(H5Aget_space(attribute.get()), H5Sclose, name));
  if (H5Tequal(type.get(), H5T_STD_I64LE) <= 0 || H5Sget_simple_extent_npoints(space.get()) != 1) {
    return data_loss("the attribute {} of {} is not one number", name, path);
  }
  int64_t value = 0;
  HEKLA_RETURN_IF_ERROR(check_hdf5(H5Aread(attribute.get(), H5T_STD_I64LE, &value), name));
  return value;
}

}  // namespace hekla::checkpoint
