// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/codec/codec.h"
#include "runtime/checkpoint/format/plain_file.h"
#include "tools/ckpt/convert.h"
#include "tools/ckpt/output.h"

namespace hekla::tools {

using checkpoint::Chunk;
using checkpoint::ChunkGrid;
using checkpoint::PieceChunks;
using checkpoint::TensorInfo;

namespace {

// Chunks that are coded side by side; with kMaxChunkBytes the bound on memory, twice over.
constexpr size_t kBatch = 16;

// What HDF5's deflate makes of a shuffled chunk; empty when it would not be smaller.
Status deflate_chunk(std::span<const std::byte> bytes, int64_t element_bytes, int level,
                     std::vector<std::byte>& shuffled, std::vector<std::byte>& coded) {
  shuffled.resize(bytes.size());
  checkpoint::shuffle(bytes, element_bytes, shuffled);
  coded.resize(bytes.size());
  uLongf size = coded.size();
  const int code = ::compress2(reinterpret_cast<Bytef*>(coded.data()), &size,
                               reinterpret_cast<const Bytef*>(shuffled.data()),
                               static_cast<uLong>(shuffled.size()), level);
  if (code == Z_MEM_ERROR) return resource_exhausted("no memory to compress a chunk");
  coded.resize(code == Z_OK && size < bytes.size() ? size : 0);  // Z_BUF_ERROR: it grows
  return ok_status();
}

// The chunks of one tensor after the other, appended to a file. One thread uses it; it starts some
// for each batch.
class ChunkAppender {
 public:
  ChunkAppender(const File& file, int gzip_level) : file_(file), level_(gzip_level) {}

  void begin(const ChunkGrid& grid) {
    made_ = std::make_shared<PieceChunks>(PieceChunks{grid, {}});
    batched_ = 0;
    filled_ = 0;
  }
  Status add(std::span<const std::byte> bytes) {
    const ChunkGrid& grid = made_->grid;
    while (!bytes.empty()) {
      const auto chunk = static_cast<int64_t>(made_->chunks.size() + batched_);
      const auto wanted = static_cast<size_t>(grid.end(chunk) - grid.begin(chunk));
      std::vector<std::byte>& into = batch_[batched_].bytes;
      if (filled_ == 0) into.assign(static_cast<size_t>(grid.full_bytes()), std::byte{0});
      const size_t count = std::min(bytes.size(), wanted - filled_);
      std::memcpy(into.data() + filled_, bytes.data(), count);
      filled_ += count;
      bytes = bytes.subspan(count);
      if (filled_ < wanted) continue;
      filled_ = 0;
      if (++batched_ == kBatch) HEKLA_RETURN_IF_ERROR(flush());
    }
    return ok_status();
  }
  Result<std::shared_ptr<const PieceChunks>> finish() {
    HEKLA_RETURN_IF_ERROR(flush());
    return std::shared_ptr<const PieceChunks>(std::move(made_));
  }
  int64_t end() const { return end_; }

 private:
  struct Slot {
    std::vector<std::byte> bytes, shuffled, coded;
    Status status;
  };

  Status flush() {
    if (level_ > 0) code();
    for (size_t i = 0; i < batched_; ++i) {
      Slot& slot = batch_[i];
      HEKLA_RETURN_IF_ERROR(slot.status);
      const bool is_coded = level_ > 0 && !slot.coded.empty();
      const std::vector<std::byte>& stored = is_coded ? slot.coded : slot.bytes;
      HEKLA_RETURN_IF_ERROR(file_.write(stored, end_));
      made_->chunks.push_back({end_, static_cast<int64_t>(stored.size()), is_coded});
      end_ += static_cast<int64_t>(stored.size());
    }
    batched_ = 0;
    return ok_status();
  }
  void code() {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < batched_; i = next++) {
        Slot& slot = batch_[i];
        slot.status = deflate_chunk(slot.bytes, made_->grid.element_bytes(), level_, slot.shuffled,
                                    slot.coded);
      }
    };
    const size_t threads =
        std::min<size_t>({batched_, std::max(1u, std::thread::hardware_concurrency()), kBatch / 2});
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }

  const File& file_;
  const int level_;
  int64_t end_ = checkpoint::kPlainPayloadBegin;
  std::shared_ptr<PieceChunks> made_;
  Slot batch_[kBatch];
  size_t batched_ = 0;  // whole chunks in batch_
  size_t filled_ = 0;   // bytes of the one behind them
};

Status write_contiguous(const checkpoint::StepReader& step, const File& file, Progress& progress) {
  const auto& tensors = step.index().tensors();
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::PlainFile plain, checkpoint::make_plain_file(tensors));
  HEKLA_RETURN_IF_ERROR(file.allocate(plain.file_size));
  HEKLA_RETURN_IF_ERROR(file.write(plain.head, 0));
  HEKLA_RETURN_IF_ERROR(file.write(plain.tail, plain.tail_offset));
  for (size_t i = 0; i < tensors.size(); ++i) {
    HEKLA_RETURN_IF_ERROR(
        write_tensor(step, static_cast<int32_t>(i), file, plain.offsets[i], progress));
  }
  return ok_status();
}

Status write_chunked(const checkpoint::StepReader& step, const File& file, const Consolidation& how,
                     Progress& progress) {
  const auto& tensors = step.index().tensors();
  const int64_t chunk_bytes = how.chunk_bytes > 0 ? how.chunk_bytes : checkpoint::kMaxChunkBytes;
  std::vector<std::shared_ptr<const PieceChunks>> chunks(tensors.size());
  ChunkAppender appender(file, how.gzip_level);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensor_bytes(tensors[i]) < checkpoint::kMinPlainChunked) continue;
    appender.begin(ChunkGrid::choose(tensors[i].dtype, tensors[i].shape, chunk_bytes));
    HEKLA_RETURN_IF_ERROR(
        stream_tensor(step, static_cast<int32_t>(i), progress,
                      [&](std::span<const std::byte> bytes) { return appender.add(bytes); }));
    HEKLA_ASSIGN_OR_RETURN(chunks[i], appender.finish());
  }
  HEKLA_ASSIGN_OR_RETURN(
      const checkpoint::PlainFile plain,
      checkpoint::make_chunked_file(tensors, chunks, appender.end(), how.gzip_level));
  HEKLA_RETURN_IF_ERROR(file.write(plain.head, 0));
  HEKLA_RETURN_IF_ERROR(file.write(plain.tail, plain.tail_offset));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (chunks[i] != nullptr) continue;
    HEKLA_RETURN_IF_ERROR(
        write_tensor(step, static_cast<int32_t>(i), file, plain.offsets[i], progress));
  }
  return ok_status();
}

}  // namespace

Result<Conversion> consolidate(const checkpoint::StepReader& step, const std::string& to,
                               const Consolidation& how) {
  if (how.chunk_bytes != 0 &&
      (how.chunk_bytes < kMinChunkBytes || how.chunk_bytes > checkpoint::kMaxChunkBytes)) {
    return invalid_argument("chunks of {} bytes; they have {} to {}", how.chunk_bytes,
                            kMinChunkBytes, checkpoint::kMaxChunkBytes);
  }
  Conversion done;
  for (const TensorInfo& tensor : step.index().tensors()) done.bytes += tensor_bytes(tensor);
  done.tensors = static_cast<int64_t>(step.index().tensors().size());
  HEKLA_ASSIGN_OR_RETURN(NewOutput output, NewOutput::create(posix_io(), to));
  Progress progress("consolidate", done.bytes);
  const bool is_chunked = how.chunk_bytes > 0 || how.gzip_level > 0;
  HEKLA_RETURN_IF_ERROR(is_chunked ? write_chunked(step, output.file(), how, progress)
                                   : write_contiguous(step, output.file(), progress));
  HEKLA_RETURN_IF_ERROR(output.finish());
  done.files = {to};
  return done;
}

}  // namespace hekla::tools
