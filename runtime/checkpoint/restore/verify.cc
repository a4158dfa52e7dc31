// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/verify.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/shard_reader.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// What does not fit into memory at once is hashed in parts of this size.
constexpr int64_t kPartBytes = int64_t{4} << 20;

class Verifier {
 public:
  Verifier(Io& io, const std::string& folder, const VerifyOptions& options, std::stop_token stop)
      : io_(io), folder_(folder), options_(options), stop_(std::move(stop)) {}

  Result<VerifyReport> run() {
    HEKLA_ASSIGN_OR_RETURN(reader_, Reader::create(io_, options_.reader));
    Result<CommitRecord> commit = read_commit(io_, folder_);
    if (!commit.ok()) {
      HEKLA_RETURN_IF_ERROR(note("COMMIT", commit.status()));
      return std::move(report_);
    }
    commit_ = std::move(*commit);
    for (const FileRecord& file : commit_.files) total_ += file.size;
    number_shards();
    for (const FileRecord& file : commit_.files) {
      // A table of block digests is what makes a file a shard.
      const bool is_shard = !file.table_digest.empty();
      if (is_full()) break;
      HEKLA_RETURN_IF_ERROR(note(file.path, is_shard ? check_shard(file) : check_file(file)));
      ++report_.files;
    }
    report_.bytes = done_ + reader_->bytes_read();
    return std::move(report_);
  }

 private:
  bool is_full() const { return report_.problems.size() >= options_.max_problems; }

  // Damage becomes part of the report, everything else ends the run.
  Status note(const std::string& file, const Status& status) {
    if (status.ok()) return ok_status();
    if (status.code() != StatusCode::kDataLoss) return status;
    report_.problems.push_back({file, status.message()});
    return ok_status();
  }

  Status advance(int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
    return stop_.stop_requested() ? cancelled("verification was cancelled") : ok_status();
  }

  // The digest of a range, in parts.
  Status hash(const File& file, int64_t begin, int64_t end, Hasher* hasher) {
    std::vector<std::byte> part(static_cast<size_t>(std::min(kPartBytes, end - begin)));
    for (int64_t at = begin; at < end; at += kPartBytes) {
      const auto bytes = std::span(part).first(static_cast<size_t>(std::min(kPartBytes, end - at)));
      HEKLA_RETURN_IF_ERROR(file.read(bytes, at));
      hasher->add(bytes);
      HEKLA_RETURN_IF_ERROR(advance(static_cast<int64_t>(bytes.size())));
    }
    return ok_status();
  }

  Status check_file(const FileRecord& file) {
    HEKLA_RETURN_IF_ERROR(check_size(io_, folder_, file));
    HEKLA_ASSIGN_OR_RETURN(const File opened,
                           File::open(io_, join_path(folder_, file.path), O_RDONLY));
    Hasher hasher;
    HEKLA_RETURN_IF_ERROR(hash(opened, 0, file.size, &hasher));
    if (hasher.text() == file.metadata_digest) return ok_status();
    return data_loss("the file has the digest {}, COMMIT says {}", hasher.text(),
                     file.metadata_digest);
  }

  // The index knows which number each shard has. Its damage is reported where it is looked at.
  void number_shards() {
    for (const FileRecord& file : commit_.files) {
      if (file.path != "index.h5") continue;
      const Result<std::string> bytes =
          read_file(io_, join_path(folder_, file.path), std::max<int64_t>(file.size, 1));
      if (!bytes.ok()) return;
      const Result<StepIndex> index = read_index(std::as_bytes(std::span(*bytes)), file);
      if (!index.ok()) return;
      for (const FileRecord& shard : index->files) {
        numbers_.emplace(shard.path, static_cast<int32_t>(numbers_.size()));
      }
    }
  }

  Status check_shard(const FileRecord& file) {
    const auto known = numbers_.find(file.path);
    const int32_t number = known == numbers_.end() ? -1 : known->second;
    HEKLA_ASSIGN_OR_RETURN(const ShardContents contents,
                           read_shard_file(io_, folder_, commit_, file, number));
    int64_t payload = 0;
    for (const Piece& piece : contents.pieces) payload += bytes_in_file(piece);
    HEKLA_RETURN_IF_ERROR(advance(std::max<int64_t>(0, file.size - payload)));
    return options_.payload ? check_payload(file, contents) : ok_status();
  }

  Status check_payload(const FileRecord& file, const ShardContents& contents) {
    const std::vector<std::string> paths = {join_path(folder_, file.path)};
    std::vector<ReadRequest> requests;
    std::mutex mutex;
    std::vector<std::pair<int64_t, std::string>> found;  // by offset; guarded by mutex
    // Block `first` of the piece and those behind it lie at one place of the file.
    const auto add = [&](const Piece& piece, int64_t first, int64_t offset, int64_t size_in_file) {
      ReadRequest request;
      request.offset = offset;
      request.bytes = size_in_file;
      request.take = [&, this, first, offset, &piece = piece](
                         int64_t at, std::span<const std::byte> bytes) -> Status {
        for (int64_t done = 0; done < static_cast<int64_t>(bytes.size()); done += kBlockBytes) {
          const int64_t size = std::min(kBlockBytes, static_cast<int64_t>(bytes.size()) - done);
          const int64_t number = first + (at + done) / kBlockBytes;
          const uint64_t digest =
              block_digest(bytes.subspan(static_cast<size_t>(done), static_cast<size_t>(size)));
          const uint64_t expected =
              contents.digests[static_cast<size_t>(piece.first_block + number)];
          const std::lock_guard lock(mutex);
          ++report_.blocks;
          HEKLA_RETURN_IF_ERROR(advance(size));
          if (digest == expected) continue;
          found.push_back(
              {offset + at + done,
               fmt::format("block {} of piece {} of tensor \"{}\" ({} bytes at offset {}) has the "
                           "digest {:016x}, not {:016x}",
                           number, box_text(piece.box), name_of(contents, piece.tensor), size,
                           offset + at + done, digest, expected)});
        }
        return ok_status();
      };
      requests.push_back(std::move(request));
    };
    for (const Piece& piece : contents.pieces) {
      if (piece.chunks == nullptr) {
        add(piece, 0, piece.offset, piece.bytes);
        continue;
      }
      for (size_t k = 0; k < piece.chunks->chunks.size(); ++k) {
        const Chunk& chunk = piece.chunks->chunks[k];
        add(piece, static_cast<int64_t>(k), chunk.offset, chunk.bytes);
      }
    }
    HEKLA_RETURN_IF_ERROR(reader_->read(paths, requests, stop_));
    std::sort(found.begin(), found.end());
    for (auto& [offset, what] : found) {
      if (!is_full()) report_.problems.push_back({file.path, std::move(what)});
    }
    return ok_status();
  }

  static const std::string& name_of(const ShardContents& contents, int32_t tensor) {
    const auto found = std::lower_bound(contents.ids.begin(), contents.ids.end(), tensor);
    return contents.tensors[static_cast<size_t>(found - contents.ids.begin())].name;
  }

  Io& io_;
  const std::string& folder_;
  const VerifyOptions& options_;
  const std::stop_token stop_;
  std::unique_ptr<Reader> reader_;
  CommitRecord commit_;
  std::map<std::string, int32_t> numbers_;  // of the shards, by path
  VerifyReport report_;
  int64_t total_ = 0;
  int64_t done_ = 0;
};

}  // namespace

Result<CommitRecord> read_commit(Io& io, const std::string& folder) {
  const std::string path = join_path(folder, "COMMIT");
  Result<std::string> text = read_file(io, path, static_cast<int64_t>(kMaxCommitBytes));
  if (!text.ok()) {
    if (text.status().code() != StatusCode::kNotFound) return text.status();
    return not_found("{} has no COMMIT: it is not a committed step", folder);
  }
  Result<CommitRecord> commit = parse_commit(*text);
  if (!commit.ok()) return commit.status().with_context(path);
  return commit;
}

Status check_size(Io& io, const std::string& folder, const FileRecord& file) {
  HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> info,
                         find_file(io, join_path(folder, file.path)));
  if (!info.has_value() || info->kind != FileKind::kRegular) {
    return data_loss("{}/{} is {}; COMMIT lists it with {} bytes", folder, file.path,
                     info.has_value() ? "no file" : "missing", file.size);
  }
  if (info->size == file.size) return ok_status();
  return data_loss("{}/{} has {} bytes, COMMIT says {}", folder, file.path, info->size, file.size);
}

Result<UserBlock> read_user_block(Io& io, const std::string& folder, const CommitRecord& commit,
                                  const FileRecord& file, int32_t number) {
  const std::string path = join_path(folder, file.path);
  HEKLA_ASSIGN_OR_RETURN(const File opened, File::open(io, path, O_RDONLY));
  UserBlockBytes bytes;
  HEKLA_RETURN_IF_ERROR(opened.read(bytes, 0));
  Result<UserBlock> block = parse_user_block(bytes);
  if (!block.ok()) return block.status().with_context(path);
  const Status belongs = check_belongs(*block, commit, file, number < 0 ? block->file : number);
  if (!belongs.ok()) return belongs.with_context(folder);
  return block;
}

Result<ShardContents> read_shard_file(Io& io, const std::string& folder, const CommitRecord& commit,
                                      const FileRecord& file, int32_t number) {
  HEKLA_RETURN_IF_ERROR(check_size(io, folder, file));
  HEKLA_ASSIGN_OR_RETURN(const UserBlock block, read_user_block(io, folder, commit, file, number));
  HEKLA_ASSIGN_OR_RETURN(const File opened, File::open(io, join_path(folder, file.path), O_RDONLY));
  std::vector<std::vector<std::byte>> bytes;
  for (const ByteRange& range : metadata_ranges(block)) {
    bytes.emplace_back(static_cast<size_t>(range.end - range.begin));
    HEKLA_RETURN_IF_ERROR(opened.read(bytes.back(), range.begin));
  }
  const std::vector<std::span<const std::byte>> spans(bytes.begin(), bytes.end());
  Result<ShardContents> contents = read_shard(block, spans);
  if (!contents.ok()) return contents.status().with_context(join_path(folder, file.path));
  return contents;
}

Result<VerifyReport> verify_step(Io& io, const std::string& folder, const VerifyOptions& options,
                                 std::stop_token stop) {
  return Verifier(io, folder, options, std::move(stop)).run();
}

}  // namespace hekla::checkpoint
