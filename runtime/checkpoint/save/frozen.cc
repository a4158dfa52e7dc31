// SPDX-License-Identifier: Apache-2.0
// ShardSave: taking over files of frozen tensors.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/io/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/restore/verify.h"
#include "runtime/checkpoint/save/shard_parts.h"

namespace hekla::checkpoint {

Status ShardSave::visit_blocks(PieceSource& source, const Piece& piece, BlockRange range,
                               std::stop_token stop,
                               const std::function<bool(int64_t, uint64_t)>& visit) {
  std::vector<std::byte> scratch;
  const std::byte* memory = source.contiguous_at < 0 ? nullptr : source.source->host_data();
  const int64_t item = pool_.staging().buffer_bytes();  // whole blocks
  const int64_t end = std::min(piece.bytes, (range.first + range.count) * kBlockBytes);
  for (int64_t at = range.first * kBlockBytes; at < end; at += item) {
    if (stop.stop_requested()) return cancelled("the save was given up");
    const auto bytes = static_cast<size_t>(std::min(item, end - at));
    std::span<const std::byte> part;
    if (memory != nullptr) {
      part = {memory + source.contiguous_at + at, bytes};
    } else {
      scratch.resize(bytes);
      HEKLA_RETURN_IF_ERROR(fill(source, piece, at, scratch, stop));
      part = scratch;
    }
    for (size_t done = 0; done < bytes; done += kBlockBytes) {
      const auto block = part.subspan(done, std::min<size_t>(kBlockBytes, bytes - done));
      const int64_t number = (at + static_cast<int64_t>(done)) / kBlockBytes;
      if (!visit(number, block_digest(block))) return ok_status();
    }
  }
  return ok_status();
}

Result<std::string> ShardSave::difference(size_t f, const SaveSite& site, FileRecord* record,
                                          std::vector<uint64_t>* digests) {
  const ShardLayout::File& file = layout_->files[f];
  const SavePlan& plan = *layout_->plan;
  const std::string& path = plan.files[static_cast<size_t>(file.number)];
  Io& io = pool_.io();
  if (!parent_) {
    HEKLA_ASSIGN_OR_RETURN(parent_, read_step(io, site.parent->folder, site.parent->step));
  }
  const auto listed = std::find_if(parent_->files.begin(), parent_->files.end(),
                                   [&](const FileRecord& each) { return each.path == path; });
  if (listed == parent_->files.end()) return std::string("it has no such file");
  HEKLA_ASSIGN_OR_RETURN(const ShardContents contents,
                         read_shard_file(io, site.parent->folder, *parent_, *listed, file.number));
  // Numbers and places of the pieces are in the file: they must be those of this plan.
  if (contents.tensors_of_step != static_cast<int64_t>(plan.tensors.size()) ||
      contents.pieces != file.image.pieces()) {
    return std::string("its tensors are cut or placed otherwise");
  }
  for (size_t i = 0; i < contents.ids.size(); ++i) {
    if (contents.tensors[i] != plan.tensors[static_cast<size_t>(contents.ids[i])]) {
      return fmt::format("it holds another tensor \"{}\"", contents.tensors[i].name);
    }
  }
  for (size_t k = 0; k < file.mine.size(); ++k) {
    const Piece& piece = file.image.pieces()[file.mine[k]];
    if (piece.bytes == 0) continue;
    const auto blocks = std::span(contents.digests)
                            .subspan(static_cast<size_t>(piece.first_block),
                                     static_cast<size_t>(block_count(piece.bytes)));
    bool is_same = true;
    HEKLA_RETURN_IF_ERROR(visit_blocks(targets_[f]->sources[k], piece,
                                       {0, static_cast<int64_t>(blocks.size())}, site.stop,
                                       [&](int64_t block, uint64_t digest) {
                                         is_same = digest == blocks[static_cast<size_t>(block)];
                                         return is_same;
                                       }));
    if (!is_same) {
      return fmt::format("tensor \"{}\" has changed",
                         plan.tensors[static_cast<size_t>(piece.tensor)].name);
    }
  }
  *record = *listed;
  *digests = contents.digests;
  return std::string();
}

Status ShardSave::link_frozen(size_t f, const SaveSite& site) {
  const ShardLayout::File& file = layout_->files[f];
  const std::string& path = layout_->plan->files[static_cast<size_t>(file.number)];
  Target& target = *targets_[f];
  FileRecord record;
  Result<std::string> differs = difference(f, site, &record, &target.link_digests);
  if (!differs.ok()) {
    if (site.stop.stop_requested()) return differs.status();
    // A parent that cannot be read, or an array: then writing says it again.
    log_message(LogLevel::kWarning, "{} of step {} cannot be compared: {}; it is written anew",
                path, site.parent->step, differs.status().to_string());
    return ok_status();
  }
  if (!differs->empty()) {
    log_message(LogLevel::kInfo, "{} is not the one of step {}: {}; it is written anew", path,
                site.parent->step, *differs);
    return ok_status();
  }
  const std::string from = join_path(site.parent->folder, path);
  const int linked = pool_.io().link(from, join_path(site.folder, path));
  if (linked < 0) {
    const Status why = io_error(-linked, "link to " + join_path(site.folder, path), from);
    switch (-linked) {
      case ENOENT:
      case EXDEV:
      case EMLINK:
      case EPERM:
      case EACCES:
      case EOPNOTSUPP:
      case ENOSYS:
        log_message(LogLevel::kWarning, "frozen tensors are written anew: {}", why.message());
        return ok_status();
      default:
        return why;
    }
  }
  if (!record.origin) record.origin = {parent_->step, parent_->nonce};
  record.writer = group_.rank();
  target.link = std::move(record);
  for (PieceSource& source : target.sources) source.source.reset();
  for (const size_t i : file.mine) bytes_done_ += file.image.pieces()[i].bytes;
  return ok_status();
}

}  // namespace hekla::checkpoint
