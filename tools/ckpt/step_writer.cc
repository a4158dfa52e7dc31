// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/step_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/shard_image.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/format/view.h"
#include "runtime/checkpoint/io/file.h"
#include "runtime/checkpoint/io/host.h"
#include "runtime/checkpoint/io/writer.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {

using checkpoint::Extent;
using checkpoint::File;
using checkpoint::FileRecord;
using checkpoint::FileWriter;
using checkpoint::Io;
using checkpoint::join_path;
using checkpoint::kBlockBytes;
using checkpoint::Piece;
using checkpoint::ShardImage;
using checkpoint::StagingPool;
using checkpoint::WriterPool;

namespace {

constexpr int64_t kPartBytes = int64_t{8} << 20;

// Puts stored bytes one behind the other into staging buffers and hands full ones to the writer.
class PieceStream {
 public:
  PieceStream(WriterPool& pool, FileWriter& writer, const Piece& piece)
      : pool_(pool), writer_(writer), piece_(piece) {}

  Status add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (buffer_.data() == nullptr) {
        HEKLA_ASSIGN_OR_RETURN(buffer_, pool_.staging().acquire({}));
      }
      const auto room = static_cast<size_t>(pool_.staging().buffer_bytes() - filled_);
      const size_t count = std::min(room, bytes.size());
      std::memcpy(buffer_.data() + filled_, bytes.data(), count);
      filled_ += static_cast<int64_t>(count);
      bytes = bytes.subspan(count);
      if (filled_ == pool_.staging().buffer_bytes()) flush();
    }
    return ok_status();
  }
  void flush() {
    if (filled_ == 0) return;
    writer_.add(std::move(buffer_), filled_, piece_.offset + sent_,
                piece_.first_block + sent_ / kBlockBytes);
    buffer_ = {};
    sent_ += filled_;
    filled_ = 0;
  }

 private:
  WriterPool& pool_;
  FileWriter& writer_;
  const Piece& piece_;
  StagingPool::Buffer buffer_;
  int64_t filled_ = 0, sent_ = 0;  // whole blocks but for the end
};

class StepWriter {
 public:
  StepWriter(Io& io, const StepToWrite& step, const BoxSource& source, std::string folder,
             Progress& progress)
      : io_(io), step_(step), source_(source), folder_(std::move(folder)), progress_(progress) {
    commit_ = step.commit;
    commit_.files.clear();
  }

  Status run() {
    HEKLA_RETURN_IF_ERROR(checkpoint::make_folders(io_, join_path(folder_, "data")));
    checkpoint::WriterOptions options;
    options.item_bytes = kPartBytes;
    options.staging_bytes = 4 * kPartBytes;
    HEKLA_ASSIGN_OR_RETURN(pool_, WriterPool::create(io_, options));
    std::vector<Piece> placed;
    std::vector<std::vector<uint64_t>> digests;
    for (size_t i = 0; i < step_.plan.files.size(); ++i) {
      HEKLA_RETURN_IF_ERROR(write_shard(static_cast<int32_t>(i), placed, digests));
    }
    const std::vector<FileRecord> shards = commit_.files;
    HEKLA_RETURN_IF_ERROR(checkpoint::sync_folder(io_, join_path(folder_, "data")));
    HEKLA_ASSIGN_OR_RETURN(const auto index,
                           checkpoint::make_index(commit_.step, step_.plan.tensors,
                                                  std::move(placed), shards, std::move(digests)));
    HEKLA_ASSIGN_OR_RETURN(const auto index_bytes, checkpoint::write_index(index));
    HEKLA_RETURN_IF_ERROR(write_whole("index.h5", index_bytes));
    HEKLA_ASSIGN_OR_RETURN(const auto view, checkpoint::make_view(index));
    HEKLA_RETURN_IF_ERROR(write_whole("model.h5", view));
    for (const ExtraFile& extra : step_.extra) HEKLA_RETURN_IF_ERROR(copy(extra));
    commit_.tensors = static_cast<int64_t>(index.tensors.size());
    commit_.logical_bytes = 0;
    for (const auto& tensor : index.tensors) {
      commit_.logical_bytes += checkpoint::stored_bytes(tensor.dtype, element_count(tensor.shape));
    }
    commit_.layout_hash = checkpoint::layout_hash(step_.plan);
    HEKLA_ASSIGN_OR_RETURN(const std::string text, checkpoint::write_commit(commit_));
    HEKLA_RETURN_IF_ERROR(checkpoint::sync_folder(io_, folder_));
    HEKLA_RETURN_IF_ERROR(checkpoint::create_file(io_, join_path(folder_, "COMMIT"), text));
    return checkpoint::sync_folder(io_, folder_);
  }

 private:
  Status write_shard(int32_t number, std::vector<Piece>& placed,
                     std::vector<std::vector<uint64_t>>& digests) {
    const checkpoint::SavePlan& plan = step_.plan;
    HEKLA_ASSIGN_OR_RETURN(ShardImage image, ShardImage::make(plan.tensors, plan.pieces, number));
    const std::string& path = plan.files[static_cast<size_t>(number)];
    HEKLA_ASSIGN_OR_RETURN(auto writer, FileWriter::create(*pool_, join_path(folder_, path),
                                                           image.file_size(), image.blocks()));
    for (size_t i = 0; i < image.pieces().size(); ++i) {
      HEKLA_RETURN_IF_ERROR(write_piece(image, i, *writer));
    }
    HEKLA_RETURN_IF_ERROR(writer->drain());
    const checkpoint::ShardIdentity identity{commit_.run_uuid, commit_.nonce, commit_.step};
    HEKLA_ASSIGN_OR_RETURN(ShardImage::Finished finished,
                           image.finish(identity, writer->digests()));
    for (const Extent& extent : finished.extents) {
      HEKLA_RETURN_IF_ERROR(writer->write(extent.bytes, extent.offset));
    }
    HEKLA_RETURN_IF_ERROR(writer->close());
    finished.record.path = path;
    commit_.files.push_back(std::move(finished.record));
    placed.insert(placed.end(), image.pieces().begin(), image.pieces().end());
    digests.push_back(std::move(finished.digests));
    return ok_status();
  }

  Status write_piece(ShardImage& image, size_t i, FileWriter& writer) {
    const Piece& piece = image.pieces()[i];
    const DType dtype = step_.plan.tensors[static_cast<size_t>(piece.tensor)].dtype;
    const int64_t element = dtype_bytes(dtype);
    PieceStream stream(*pool_, writer, piece);
    std::span<std::byte> small = image.is_small(i) ? image.small_piece(i) : std::span<std::byte>();
    const auto put = [&](std::span<const std::byte> bytes) -> Status {
      if (!image.is_small(i)) return stream.add(bytes);
      std::memcpy(small.data(), bytes.data(), bytes.size());
      small = small.subspan(bytes.size());
      return ok_status();
    };
    Packer packer(dtype);
    for (const checkpoint::Box& part :
         row_major_parts(piece.box, std::max<int64_t>(1, kPartBytes / element))) {
      elements_.resize(static_cast<size_t>(element_count(part.size) * element));
      HEKLA_RETURN_IF_ERROR(source_(piece.tensor, part, elements_));
      HEKLA_RETURN_IF_ERROR(put(packer.add(elements_)));
      progress_.add(static_cast<int64_t>(elements_.size()));
    }
    HEKLA_RETURN_IF_ERROR(put(packer.finish()));
    stream.flush();
    return ok_status();
  }

  Status write_whole(const std::string& path, std::span<const std::byte> bytes) {
    commit_.files.push_back(
        {path, static_cast<int64_t>(bytes.size()), checkpoint::digest_text(bytes), "", 0});
    return checkpoint::create_file(
        io_, join_path(folder_, path),
        std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  Status copy(const ExtraFile& extra) {
    const std::string to = join_path(folder_, extra.path);
    HEKLA_RETURN_IF_ERROR(checkpoint::make_folders(io_, checkpoint::parent_path(to)));
    HEKLA_ASSIGN_OR_RETURN(const File from, File::open(io_, extra.from, O_RDONLY));
    HEKLA_ASSIGN_OR_RETURN(File file, File::open(io_, to, O_WRONLY | O_CREAT | O_EXCL));
    HEKLA_ASSIGN_OR_RETURN(const checkpoint::FileInfo info, from.info());
    checkpoint::Hasher hasher;
    std::vector<std::byte> bytes;
    for (int64_t at = 0; at < info.size;) {
      bytes.resize(static_cast<size_t>(std::min(info.size - at, kPartBytes)));
      HEKLA_RETURN_IF_ERROR(from.read(bytes, at));
      HEKLA_RETURN_IF_ERROR(file.write(bytes, at));
      hasher.add(bytes);
      at += static_cast<int64_t>(bytes.size());
    }
    HEKLA_RETURN_IF_ERROR(file.sync());
    HEKLA_RETURN_IF_ERROR(file.close());
    commit_.files.push_back({extra.path, info.size, hasher.text(), "", 0});
    return checkpoint::sync_folder(io_, checkpoint::parent_path(to));
  }

  Io& io_;
  const StepToWrite& step_;
  const BoxSource& source_;
  const std::string folder_;
  Progress& progress_;
  checkpoint::CommitRecord commit_;
  std::unique_ptr<WriterPool> pool_;
  std::vector<std::byte> elements_;
};

}  // namespace

Status write_step(Io& io, const std::string& folder, const StepToWrite& step,
                  const BoxSource& source, const std::string& what) {
  HEKLA_ASSIGN_OR_RETURN(const auto existing, checkpoint::find_file(io, folder));
  if (existing) {
    return Status(StatusCode::kAlreadyExists,
                  fmt::format("{} exists; remove it or give another name", folder));
  }
  int64_t total = 0;
  for (const auto& tensor : step.plan.tensors) {
    total += element_count(tensor.shape) * dtype_bytes(tensor.dtype);
  }
  Progress progress(what, total);
  const std::string parent = checkpoint::parent_path(folder);
  HEKLA_RETURN_IF_ERROR(checkpoint::make_folders(io, parent));
  const std::string temporary =
      join_path(parent, fmt::format(".tmp-{:012}-{}", step.commit.step, step.commit.nonce));
  Status status = StepWriter(io, step, source, temporary, progress).run();
  if (status.ok()) status = checkpoint::rename_path(io, temporary, folder);
  if (!status.ok()) {
    (void)checkpoint::remove_tree(io, temporary);  // the first error is the one to tell
    return status;
  }
  return checkpoint::sync_folder(io, parent);
}

}  // namespace hekla::tools
