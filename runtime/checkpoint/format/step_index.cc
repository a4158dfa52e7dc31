// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/step_index.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/hdf5_objects.h"
#include "runtime/checkpoint/format/memory_file.h"
#include "runtime/checkpoint/format/meshes.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

constexpr int32_t kMinorOfMeshes = 2;

// Boxes that do not overlap and together have the tensor's elements fill it.
Status check_cover(const TensorInfo& tensor, std::span<const Piece> pieces) {
  const int64_t wanted = element_count(tensor.shape);
  int64_t covered = 0;
  for (const Piece& piece : pieces) {
    const int64_t elements = element_count(piece.box.size);
    if (elements > wanted - covered) {
      return invalid_argument("the pieces of tensor '{}' overlap", tensor.name);
    }
    covered += elements;
  }
  if (covered != wanted) {
    return invalid_argument("the pieces of tensor '{}' hold {} of its {} elements", tensor.name,
                            covered, wanted);
  }
  if (pieces.size() < 2) return ok_status();
  std::vector<Box> boxes;
  boxes.reserve(pieces.size());
  for (const Piece& piece : pieces) boxes.push_back(piece.box);
  return check_disjoint(boxes).with_context("tensor '" + tensor.name + "'");
}

Status check_piece_place(const Piece& piece, const StepIndex& index) {
  const std::string& name = index.tensors[static_cast<size_t>(piece.tensor)].name;
  if (piece.file < 0 || static_cast<size_t>(piece.file) >= index.files.size()) {
    return invalid_argument("a piece of tensor '{}' lies in file {} of {}", name, piece.file,
                            index.files.size());
  }
  const auto file = static_cast<size_t>(piece.file);
  if (piece.offset < 0 || piece.bytes < 0 || !lies_within(piece, index.files[file].size)) {
    return invalid_argument(
        "a piece of tensor '{}' with {} bytes from {} lies outside of '{}', "
        "which has {}",
        name, piece.bytes, piece.offset, index.files[file].path, index.files[file].size);
  }
  if (!index.digests.empty() &&
      (piece.first_block < 0 ||
       piece.first_block >
           static_cast<int64_t>(index.digests[file].size()) - piece_blocks(piece))) {
    return invalid_argument("a piece of tensor '{}' has blocks from {} on, '{}' has {}", name,
                            piece.first_block, index.files[file].path, index.digests[file].size());
  }
  return ok_status();
}

Status write_files(ObjectWriter& writer, const StepIndex& index) {
  TextColumn paths, metadata, table;
  std::vector<int64_t> sizes;
  std::vector<int32_t> writers;
  for (const FileRecord& file : index.files) {
    paths.add(file.path);
    metadata.add(file.metadata_digest);
    table.add(file.table_digest);
    sizes.push_back(file.size);
    writers.push_back(file.writer);
  }
  HEKLA_RETURN_IF_ERROR(writer.write_texts("/files/path", paths));
  HEKLA_RETURN_IF_ERROR(writer.write_texts("/files/metadata_digest", metadata));
  HEKLA_RETURN_IF_ERROR(writer.write_texts("/files/table_digest", table));
  HEKLA_RETURN_IF_ERROR(writer.write_column("/files/size", sizes));
  return writer.write_column("/files/writer", writers);
}

Result<std::vector<FileRecord>> read_files(hid_t file) {
  const auto texts = [file](const char* path) -> Result<std::vector<std::string>> {
    HEKLA_ASSIGN_OR_RETURN(const TextColumn column, read_texts(file, path));
    return texts_from_column(column);
  };
  HEKLA_ASSIGN_OR_RETURN(const auto paths, texts("/files/path"));
  HEKLA_ASSIGN_OR_RETURN(const auto metadata, texts("/files/metadata_digest"));
  HEKLA_ASSIGN_OR_RETURN(const auto table, texts("/files/table_digest"));
  HEKLA_ASSIGN_OR_RETURN(const auto sizes, read_int64(file, "/files/size"));
  HEKLA_ASSIGN_OR_RETURN(const auto writers, read_int32(file, "/files/writer"));
  const size_t n = paths.size();
  if (metadata.size() != n || table.size() != n || sizes.size() != n || writers.size() != n) {
    return data_loss("the columns of {} files have different lengths", n);
  }
  std::vector<FileRecord> files(n);
  for (size_t i = 0; i < n; ++i) {
    files[i] = {paths[i], sizes[i], metadata[i], table[i], writers[i]};
  }
  return files;
}

Status write_digests(ObjectWriter& writer, const StepIndex& index) {
  std::vector<uint64_t> values;
  std::vector<int64_t> ends;
  for (const auto& digests : index.digests) {
    values.insert(values.end(), digests.begin(), digests.end());
    ends.push_back(static_cast<int64_t>(values.size()));
  }
  HEKLA_RETURN_IF_ERROR(writer.write_column("/blocks/digest", values));
  return writer.write_column("/blocks/end", ends);
}

Result<std::vector<std::vector<uint64_t>>> read_digests(hid_t file) {
  HEKLA_ASSIGN_OR_RETURN(const auto values, read_uint64(file, "/blocks/digest"));
  HEKLA_ASSIGN_OR_RETURN(const auto ends, read_int64(file, "/blocks/end"));
  std::vector<std::vector<uint64_t>> digests;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (end < begin || end > static_cast<int64_t>(values.size())) {
      return data_loss("/blocks/end has {} outside of {} digests", end, values.size());
    }
    digests.emplace_back(values.begin() + begin, values.begin() + end);
    begin = end;
  }
  return digests;
}

Status write_meshes(ObjectWriter& writer, const StepIndex& index) {
  const MeshColumns columns = columns_from_meshes(index.meshes);
  HEKLA_RETURN_IF_ERROR(writer.write_column("/tensors/mesh", index.mesh_of));
  HEKLA_RETURN_IF_ERROR(writer.write_texts("/meshes/axis_name", columns.axis_name));
  HEKLA_RETURN_IF_ERROR(writer.write_column("/meshes/axis_size", columns.axis_size));
  HEKLA_RETURN_IF_ERROR(writer.write_column("/meshes/axis_end", columns.axis_end));
  HEKLA_RETURN_IF_ERROR(writer.write_column("/meshes/device", columns.device));
  HEKLA_RETURN_IF_ERROR(writer.write_column("/meshes/device_end", columns.device_end));
  HEKLA_RETURN_IF_ERROR(writer.write_column("/meshes/granule", columns.granule));
  return writer.write_column("/meshes/granule_end", columns.granule_end);
}

Status read_meshes(hid_t file, StepIndex* index) {
  MeshColumns columns;
  HEKLA_ASSIGN_OR_RETURN(columns.axis_name, read_texts(file, "/meshes/axis_name"));
  HEKLA_ASSIGN_OR_RETURN(columns.axis_size, read_int64(file, "/meshes/axis_size"));
  HEKLA_ASSIGN_OR_RETURN(columns.axis_end, read_int64(file, "/meshes/axis_end"));
  HEKLA_ASSIGN_OR_RETURN(columns.device, read_int64(file, "/meshes/device"));
  HEKLA_ASSIGN_OR_RETURN(columns.device_end, read_int64(file, "/meshes/device_end"));
  HEKLA_ASSIGN_OR_RETURN(columns.granule, read_int64(file, "/meshes/granule"));
  HEKLA_ASSIGN_OR_RETURN(columns.granule_end, read_int64(file, "/meshes/granule_end"));
  HEKLA_ASSIGN_OR_RETURN(index->meshes, meshes_from_columns(columns));
  HEKLA_ASSIGN_OR_RETURN(index->mesh_of, read_int32(file, "/tensors/mesh"));
  if (index->mesh_of.size() != index->tensors.size()) {
    return data_loss("the meshes of {} tensors of {} are given", index->mesh_of.size(),
                     index->tensors.size());
  }
  for (const int32_t mesh : index->mesh_of) {
    if (mesh < kNoMesh || mesh >= static_cast<int32_t>(index->meshes.size())) {
      return data_loss("a tensor has mesh {} of {}", mesh, index->meshes.size());
    }
  }
  return ok_status();
}

// make_index for tensors that check_tensors has seen, without the meshes.
Result<StepIndex> index_of_checked(int64_t step, std::vector<TensorInfo> tensors,
                                   std::vector<Piece> pieces, std::vector<FileRecord> files,
                                   std::vector<std::vector<uint64_t>> digests) {
  StepIndex index{step, std::move(tensors), std::move(pieces), std::move(files),
                  std::move(digests)};
  if (!index.digests.empty() && index.digests.size() != index.files.size()) {
    return invalid_argument("block digests of {} files, but {} files", index.digests.size(),
                            index.files.size());
  }
  std::unordered_set<std::string_view> paths;
  for (const FileRecord& file : index.files) {
    HEKLA_RETURN_IF_ERROR(check_path(file.path));
    if (!paths.insert(file.path).second) {
      return invalid_argument("the file '{}' is listed twice", file.path);
    }
  }
  int64_t digest_bytes = 0;
  for (const auto& file : index.digests) digest_bytes += static_cast<int64_t>(file.size()) * 8;
  for (const Piece& piece : index.pieces) {
    if (piece.tensor < 0 || static_cast<size_t>(piece.tensor) >= index.tensors.size()) {
      return invalid_argument("a piece belongs to tensor {} of {}", piece.tensor,
                              index.tensors.size());
    }
    const TensorInfo& tensor = index.tensors[static_cast<size_t>(piece.tensor)];
    HEKLA_RETURN_IF_ERROR(check_box(piece.box, tensor));
    if (piece.bytes != stored_bytes(tensor.dtype, element_count(piece.box.size))) {
      return invalid_argument("a piece of tensor '{}' has {} bytes for {} elements", tensor.name,
                              piece.bytes, element_count(piece.box.size));
    }
    HEKLA_RETURN_IF_ERROR(check_piece_place(piece, index));
  }
  if (digest_bytes > kMaxIndexedDigestBytes) index.digests.clear();
  if (!std::is_sorted(index.pieces.begin(), index.pieces.end(), piece_before)) {
    std::stable_sort(index.pieces.begin(), index.pieces.end(), piece_before);
  }
  for (size_t i = 0, first = 0; i < index.tensors.size(); ++i) {
    size_t end = first;
    while (end < index.pieces.size() && index.pieces[end].tensor == static_cast<int32_t>(i)) ++end;
    HEKLA_RETURN_IF_ERROR(check_cover(
        index.tensors[i], std::span<const Piece>(index.pieces).subspan(first, end - first)));
    first = end;
  }
  return index;
}

}  // namespace

std::span<const Piece> StepIndex::pieces_of(int32_t tensor) const {
  const auto [begin, end] =
      std::equal_range(pieces.begin(), pieces.end(), Piece{tensor},
                       [](const Piece& a, const Piece& b) { return a.tensor < b.tensor; });
  return {begin, end};
}

std::optional<int32_t> StepIndex::find(std::string_view name) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return static_cast<int32_t>(i);
  }
  return std::nullopt;
}

std::string StepIndex::tensor_digest(int32_t tensor) const {
  if (digests.empty()) return "";
  Hasher hasher;
  for (const Piece& piece : pieces_of(tensor)) {
    hasher.add(std::as_bytes(std::span(digests[static_cast<size_t>(piece.file)])
                                 .subspan(static_cast<size_t>(piece.first_block),
                                          static_cast<size_t>(piece_blocks(piece)))));
  }
  return hasher.text();
}

Result<StepIndex> make_index(int64_t step, std::vector<TensorInfo> tensors,
                             std::vector<Piece> pieces, std::vector<FileRecord> files,
                             std::vector<std::vector<uint64_t>> digests) {
  HEKLA_RETURN_IF_ERROR(check_tensors(tensors));
  HEKLA_ASSIGN_OR_RETURN(StepIndex index,
                         index_of_checked(step, std::move(tensors), std::move(pieces),
                                          std::move(files), std::move(digests)));
  find_meshes(index.tensors, &index.meshes, &index.mesh_of);
  return index;
}

Result<std::vector<std::byte>> write_index(const StepIndex& index, int32_t minor) {
  NewFile::Bytes bytes;
  HEKLA_RETURN_IF_ERROR(on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(NewFile memory, NewFile::create(0, 0));
    HEKLA_ASSIGN_OR_RETURN(ObjectWriter writer, ObjectWriter::create(memory.id()));
    HEKLA_RETURN_IF_ERROR(writer.text_attribute(memory.id(), "format", "hekla-index"));
    HEKLA_RETURN_IF_ERROR(writer.number_attribute(memory.id(), "major", kFormatMajor));
    HEKLA_RETURN_IF_ERROR(writer.number_attribute(memory.id(), "minor", minor));
    HEKLA_RETURN_IF_ERROR(writer.number_attribute(memory.id(), "step", index.step));
    HEKLA_RETURN_IF_ERROR(writer.write_tensors("/tensors", columns_from_tensors(index.tensors)));
    TextColumn tensor_digests;
    for (size_t i = 0; i < index.tensors.size(); ++i) {
      tensor_digests.add(index.tensor_digest(static_cast<int32_t>(i)));
    }
    HEKLA_RETURN_IF_ERROR(writer.write_texts("/tensors/digest", tensor_digests));
    HEKLA_RETURN_IF_ERROR(writer.write_pieces("/pieces", columns_from_pieces(index.pieces)));
    HEKLA_RETURN_IF_ERROR(write_files(writer, index));
    HEKLA_RETURN_IF_ERROR(write_digests(writer, index));
    if (minor >= kMinorOfMeshes) HEKLA_RETURN_IF_ERROR(write_meshes(writer, index));
    HEKLA_ASSIGN_OR_RETURN(bytes, std::move(memory).finish());
    return ok_status();
  }));
  bytes.head.insert(bytes.head.end(), bytes.tail.begin(), bytes.tail.end());
  return std::move(bytes.head);
}

Result<StepIndex> read_index(std::span<const std::byte> bytes, const FileRecord& expected) {
  if (static_cast<int64_t>(bytes.size()) != expected.size) {
    return data_loss("{} has {} bytes, COMMIT says {}", expected.path, bytes.size(), expected.size);
  }
  if (digest_text(bytes) != expected.metadata_digest) {
    return data_loss("{} does not match its digest in COMMIT: it is corrupt", expected.path);
  }
  Result<StepIndex> index = data_loss("not read");
  const Status read = on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::open({{0, bytes}}, expected.size));
    HEKLA_ASSIGN_OR_RETURN(const int64_t major, read_number_attribute(file.id(), "/", "major"));
    if (major != kFormatMajor) {
      return unimplemented(
          "the index has format version {}, this program reads {}; use a newer "
          "Hekla",
          major, kFormatMajor);
    }
    HEKLA_ASSIGN_OR_RETURN(const int64_t step, read_number_attribute(file.id(), "/", "step"));
    HEKLA_ASSIGN_OR_RETURN(const TensorColumns tensor_columns, read_tensors(file.id(), "/tensors"));
    HEKLA_ASSIGN_OR_RETURN(auto tensors, tensors_from_columns(tensor_columns));
    HEKLA_ASSIGN_OR_RETURN(const PieceColumns piece_columns, read_pieces(file.id(), "/pieces"));
    HEKLA_ASSIGN_OR_RETURN(auto pieces, pieces_from_columns(piece_columns, tensors));
    HEKLA_ASSIGN_OR_RETURN(auto files, read_files(file.id()));
    HEKLA_ASSIGN_OR_RETURN(auto digests, read_digests(file.id()));
    index = index_of_checked(step, std::move(tensors), std::move(pieces), std::move(files),
                             std::move(digests));
    HEKLA_RETURN_IF_ERROR(index.status());
    HEKLA_ASSIGN_OR_RETURN(const int64_t minor, read_number_attribute(file.id(), "/", "minor"));
    if (minor >= kMinorOfMeshes) return read_meshes(file.id(), &*index);
    find_meshes(index->tensors, &index->meshes, &index->mesh_of);
    return ok_status();
  });
  if (!read.ok() && read.code() != StatusCode::kUnimplemented) {
    return data_loss("{}: {}", expected.path, read.message());
  }
  if (!read.ok()) return read;
  return index;
}

Result<StepIndex> rebuild_index(int64_t step, std::span<const ShardContents> shards,
                                std::vector<FileRecord> files) {
  if (shards.size() != files.size()) {
    return invalid_argument("{} shards, but {} file records", shards.size(), files.size());
  }
  std::map<int32_t, TensorInfo> named;
  std::vector<Piece> pieces;
  std::vector<std::vector<uint64_t>> digests;
  for (size_t s = 0; s < shards.size(); ++s) {
    const ShardContents& shard = shards[s];
    if (shard.tensors_of_step != shards[0].tensors_of_step) {
      return data_loss("{} knows {} tensors of the step, {} knows {}", files[s].path,
                       shard.tensors_of_step, files[0].path, shards[0].tensors_of_step);
    }
    for (size_t i = 0; i < shard.ids.size(); ++i) {
      const TensorInfo& tensor = shard.tensors[i];
      const TensorInfo& known = named.emplace(shard.ids[i], tensor).first->second;
      if (known.name != tensor.name || known.dtype != tensor.dtype || known.shape != tensor.shape) {
        return data_loss("{} says '{}' of tensor {}, another shard says '{}'", files[s].path,
                         tensor.name, shard.ids[i], known.name);
      }
    }
    for (const Piece& piece : shard.pieces) {
      if (piece.file != static_cast<int32_t>(s)) {
        return data_loss("{} holds pieces of file {}, it should be file {}", files[s].path,
                         piece.file, s);
      }
      pieces.push_back(piece);
    }
    digests.push_back(shard.digests);
  }
  const int64_t wanted = shards.empty() ? 0 : shards[0].tensors_of_step;
  if (static_cast<int64_t>(named.size()) != wanted) {
    return data_loss("the shards name {} of {} tensors: a shard is missing", named.size(), wanted);
  }
  std::vector<TensorInfo> tensors;
  for (auto& [id, tensor] : named) tensors.push_back(std::move(tensor));
  auto index =
      make_index(step, std::move(tensors), std::move(pieces), std::move(files), std::move(digests));
  if (!index.ok()) return data_loss("the shards do not fit together: {}", index.status().message());
  return index;
}

}  // namespace hekla::checkpoint
