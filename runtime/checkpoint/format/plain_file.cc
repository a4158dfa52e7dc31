// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/plain_file.h"

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/hdf5_objects.h"
#include "runtime/checkpoint/format/memory_file.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/format/shard_image.h"

namespace hekla::checkpoint {

Result<PlainFile> make_plain_file(std::span<const TensorInfo> tensors) {
  HEKLA_RETURN_IF_ERROR(check_tensors(tensors));
  constexpr int64_t kPage = 4096;
  std::vector<int64_t> bytes;
  int64_t payload = 0;
  for (const TensorInfo& tensor : tensors) {
    bytes.push_back(stored_bytes(tensor.dtype, element_count(tensor.shape)));
    if (bytes.back() < kSmallPieceBytes) continue;
    if (bytes.back() > (int64_t{1} << 60) - payload) {
      return invalid_argument("the tensors have more than 2^60 bytes");
    }
    payload += (bytes.back() + kPage - 1) / kPage * kPage;
  }
  PlainFile file;
  HEKLA_RETURN_IF_ERROR(on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(NewFile memory, NewFile::create(0, payload));
    HEKLA_ASSIGN_OR_RETURN(ObjectWriter writer, ObjectWriter::create(memory.id()));
    file.tail_offset = memory.payload_begin() + payload;
    int64_t next = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool is_payload = bytes[i] >= kSmallPieceBytes;
      if (is_payload) memory.expect_payload(next, bytes[i]);
      HEKLA_ASSIGN_OR_RETURN(
          const Handle dataset,
          writer.make_dataset("/" + tensors[i].name, tensors[i].dtype, tensors[i].shape));
      if (is_payload) next += (bytes[i] + kPage - 1) / kPage * kPage;
      file.offsets.push_back(0);
      if (bytes[i] == 0) continue;
      HEKLA_ASSIGN_OR_RETURN(file.offsets.back(), dataset_offset(dataset.get(), tensors[i].name));
    }
    HEKLA_ASSIGN_OR_RETURN(NewFile::Bytes made, std::move(memory).finish());
    file.head = std::move(made.head);
    file.tail = std::move(made.tail);
    return ok_status();
  }));
  file.file_size = file.tail_offset + static_cast<int64_t>(file.tail.size());
  return file;
}

Result<PlainFile> make_chunked_file(std::span<const TensorInfo> tensors,
                                    std::span<const std::shared_ptr<const PieceChunks>> chunks,
                                    int64_t payload_end, int gzip_level) {
  HEKLA_RETURN_IF_ERROR(check_tensors(tensors));
  const ChunkFilter filter = gzip_level > 0 ? ChunkFilter::kDeflate : ChunkFilter::kNone;
  PlainFile file;
  file.tail_offset = payload_end;
  HEKLA_RETURN_IF_ERROR(on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(NewFile memory, NewFile::create(0, payload_end - kPlainPayloadBegin));
    HEKLA_ASSIGN_OR_RETURN(ObjectWriter writer, ObjectWriter::create(memory.id()));
    memory.drop_payload();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& tensor = tensors[i];
      const std::string path = "/" + tensor.name;
      file.offsets.push_back(0);
      if (chunks[i] != nullptr) {
        HEKLA_RETURN_IF_ERROR(place_chunks(writer, memory, path, tensor.dtype, tensor.shape,
                                           *chunks[i], filter, gzip_level));
        continue;
      }
      HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                             writer.make_dataset(path, tensor.dtype, tensor.shape));
      if (element_count(tensor.shape) == 0) continue;
      HEKLA_ASSIGN_OR_RETURN(file.offsets.back(), dataset_offset(dataset.get(), tensor.name));
    }
    HEKLA_ASSIGN_OR_RETURN(NewFile::Bytes made, std::move(memory).finish());
    file.head = std::move(made.head);
    file.tail = std::move(made.tail);
    return ok_status();
  }));
  file.file_size = file.tail_offset + static_cast<int64_t>(file.tail.size());
  return file;
}

}  // namespace hekla::checkpoint
