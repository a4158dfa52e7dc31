// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/step_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/commit/committer.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/meshes.h"
#include "runtime/checkpoint/format/shard_image.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/format/view.h"
#include "runtime/checkpoint/io/writer.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {

using checkpoint::Extent;
using checkpoint::FileRecord;
using checkpoint::FileWriter;
using checkpoint::kBlockBytes;
using checkpoint::Piece;
using checkpoint::SaveSite;
using checkpoint::ShardImage;
using checkpoint::StagingPool;
using checkpoint::WriterPool;

namespace {

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

class StepPayload : public checkpoint::SavePayload {
 public:
  StepPayload(Io& io, const StepToWrite& step, const BoxSource& source, Progress& progress)
      : io_(io), step_(step), source_(source), progress_(progress) {}

  Status allocate(const SaveSite& site) override {
    checkpoint::WriterOptions options;
    options.item_bytes = kPartBytes;
    options.staging_bytes = 4 * kPartBytes;
    HEKLA_ASSIGN_OR_RETURN(pool_, WriterPool::create(io_, options));
    for (size_t i = 0; i < step_.plan.files.size(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(
          ShardImage image,
          ShardImage::make(step_.plan.tensors, step_.plan.pieces, static_cast<int32_t>(i)));
      HEKLA_ASSIGN_OR_RETURN(auto writer,
                             FileWriter::create(*pool_, join_path(site.folder, step_.plan.files[i]),
                                                image.file_size(), image.blocks(), site.stop));
      shards_.push_back({std::move(image), std::move(writer)});
    }
    return ok_status();
  }
  Status snapshot(const SaveSite&) override { return ok_status(); }  // the source does not change

  Result<std::vector<FileRecord>> write(const SaveSite& site) override {
    std::vector<FileRecord> records;
    for (size_t i = 0; i < shards_.size(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(FileRecord record, write_shard(i, site));
      records.push_back(std::move(record));
    }
    for (const ExtraFile& extra : step_.extra) {
      HEKLA_ASSIGN_OR_RETURN(FileRecord record, copy(extra, site));
      records.push_back(std::move(record));
    }
    return records;
  }

  Result<std::vector<FileRecord>> finish(const SaveSite& site, const std::vector<FileRecord>& files,
                                         checkpoint::CommitRecord* record) override {
    std::vector<FileRecord> shards;
    for (const std::string& path : step_.plan.files) {
      for (const FileRecord& file : files) {
        if (file.path == path) shards.push_back(file);
      }
    }
    HEKLA_ASSIGN_OR_RETURN(const auto index,
                           checkpoint::make_index(site.step, step_.plan.tensors, std::move(placed_),
                                                  std::move(shards), std::move(digests_)));
    HEKLA_ASSIGN_OR_RETURN(const auto index_bytes, checkpoint::write_index(index));
    HEKLA_ASSIGN_OR_RETURN(const auto view, checkpoint::make_view(index));
    record->mesh = checkpoint::meshes_text(index.meshes);
    record->world_size = step_.world_size;
    record->tensors = static_cast<int64_t>(index.tensors.size());
    for (const auto& tensor : index.tensors) {
      record->logical_bytes += checkpoint::stored_bytes(tensor.dtype, element_count(tensor.shape));
    }
    std::vector<FileRecord> made;
    for (const auto& [path, bytes] : {std::pair("index.h5", &index_bytes), {"model.h5", &view}}) {
      HEKLA_RETURN_IF_ERROR(create_file(
          io_, join_path(site.folder, path),
          std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size())));
      made.push_back(
          {path, static_cast<int64_t>(bytes->size()), checkpoint::digest_text(*bytes), "", 0});
    }
    return made;
  }

  void abandon() override { shards_.clear(); }

 private:
  struct Shard {
    ShardImage image;
    std::unique_ptr<FileWriter> writer;
  };

  Result<FileRecord> write_shard(size_t i, const SaveSite& site) {
    auto& [image, writer] = shards_[i];
    for (size_t k = 0; k < image.pieces().size(); ++k) {
      HEKLA_RETURN_IF_ERROR(write_piece(image, k, *writer));
    }
    HEKLA_RETURN_IF_ERROR(writer->drain());
    const checkpoint::ShardIdentity identity{site.run_uuid, site.nonce, site.step};
    HEKLA_ASSIGN_OR_RETURN(ShardImage::Finished finished,
                           image.finish(identity, writer->digests()));
    for (const Extent& extent : finished.extents) {
      HEKLA_RETURN_IF_ERROR(writer->write(extent.bytes, extent.offset));
    }
    HEKLA_RETURN_IF_ERROR(writer->close());
    placed_.insert(placed_.end(), image.pieces().begin(), image.pieces().end());
    digests_.push_back(std::move(finished.digests));
    finished.record.path = step_.plan.files[i];
    return finished.record;
  }

  Status write_piece(ShardImage& image, size_t i, FileWriter& writer) {
    const Piece& piece = image.pieces()[i];
    const DType dtype = step_.plan.tensors[static_cast<size_t>(piece.tensor)].dtype;
    const int64_t element = dtype_bytes(dtype);
    PieceStream stream(*pool_, writer, piece);
    std::span<std::byte> small = image.is_small(i) ? image.small_piece(i) : std::span<std::byte>();
    const auto put = [&](std::span<const std::byte> bytes) -> Status {
      if (!image.is_small(i)) return stream.add(bytes);
      if (!bytes.empty()) std::memcpy(small.data(), bytes.data(), bytes.size());
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

  Result<FileRecord> copy(const ExtraFile& extra, const SaveSite& site) {
    const std::string to = join_path(site.folder, extra.path);
    HEKLA_RETURN_IF_ERROR(make_folders(io_, parent_path(to)));
    HEKLA_ASSIGN_OR_RETURN(const File from, File::open(io_, extra.from, O_RDONLY));
    HEKLA_ASSIGN_OR_RETURN(File file, File::open(io_, to, O_WRONLY | O_CREAT | O_EXCL));
    HEKLA_ASSIGN_OR_RETURN(const FileInfo info, from.info());
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
    HEKLA_RETURN_IF_ERROR(sync_folder(io_, parent_path(to)));
    return FileRecord{extra.path, info.size, hasher.text(), "", 0};
  }

  Io& io_;
  const StepToWrite& step_;
  const BoxSource& source_;
  Progress& progress_;
  std::unique_ptr<WriterPool> pool_;
  std::vector<Shard> shards_;
  std::vector<Piece> placed_;                   // of the shards written so far
  std::vector<std::vector<uint64_t>> digests_;  // likewise
  std::vector<std::byte> elements_;
};

}  // namespace

Result<std::string> write_step(Io& io, const std::string& root, const StepToWrite& step,
                               const BoxSource& source, const std::string& what) {
  int64_t total = 0;
  for (const auto& tensor : step.plan.tensors) {
    total += element_count(tensor.shape) * dtype_bytes(tensor.dtype);
  }
  Progress progress(what, total);
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::RootInfo info, checkpoint::open_root(io, root));
  const std::unique_ptr<rendezvous::Group> group = rendezvous::Group::alone();
  checkpoint::CommitOptions options;
  options.write_deadline = std::chrono::hours(24 * 7);  // nobody else waits for it
  checkpoint::Committer committer(io, *group, root, info.run_uuid, options);
  checkpoint::SaveRequest request;
  request.step = step.step;
  request.id = "tool";
  request.layout_hash = checkpoint::layout_hash(step.plan);
  request.reason = step.reason;
  request.metrics = step.metrics;
  request.writer_version = "hekla ckpt";
  StepPayload payload(io, step, source, progress);
  HEKLA_RETURN_IF_ERROR(committer.run(request, payload));
  return join_path(root, checkpoint::step_name(step.step));
}

}  // namespace hekla::tools
