// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/verify.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/sharding/box.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/step_reader.h"

namespace hekla::tools {

using checkpoint::ByteRange;
using checkpoint::File;
using checkpoint::FileRecord;
using checkpoint::Io;
using checkpoint::join_path;
using checkpoint::kBlockBytes;
using checkpoint::Piece;

namespace {

// A run of blocks of one piece.
struct Job {
  int32_t file;
  const Piece* piece;
  int64_t first;
  int64_t blocks;
};

class Verifier {
 public:
  Verifier(Io& io, StepReader& step, const VerifyOptions& options, VerifyReport& report)
      : io_(io), step_(step), options_(options), report_(report) {}

  Status run() {
    int64_t total = 0;
    for (const FileRecord& file : step_.commit().files) total += file.size;
    Progress progress("verify", total);
    std::set<std::string> shards;
    for (size_t i = 0; i < step_.index().files.size(); ++i) {
      shards.insert(step_.index().files[i].path);
      check_shard(static_cast<int32_t>(i), progress);
    }
    for (const FileRecord& file : step_.commit().files) {
      if (!shards.contains(file.path)) check_whole(file, progress);
    }
    if (options_.payload) check_payload(progress);
    return error_;
  }

 private:
  // Damage is reported and the work goes on; any other failure ends it.
  void note(const std::string& file, const Status& status) {
    if (status.ok()) return;
    if (status.code() != StatusCode::kDataLoss) {
      fail(status);
    } else {
      add({file, "", "", -1, -1, status.message()});
    }
  }
  void add(Damage damage) {
    const std::lock_guard lock(mutex_);
    if (report_.damages.size() < options_.max_damages) report_.damages.push_back(std::move(damage));
  }
  void fail(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    stop_ = true;
  }

  Status hash_range(const File& file, ByteRange range, checkpoint::Hasher& hasher,
                    Progress& progress) {
    std::vector<std::byte> bytes;
    for (int64_t at = range.begin; at < range.end;) {
      const int64_t count = std::min(range.end - at, 8 * kBlockBytes);
      bytes.resize(static_cast<size_t>(count));
      HEKLA_RETURN_IF_ERROR(file.read(bytes, at));
      hasher.add(bytes);
      progress.add(count);
      at += count;
    }
    return ok_status();
  }

  void check_whole(const FileRecord& record, Progress& progress) {
    const auto status = [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(const File file,
                             File::open(io_, join_path(step_.folder(), record.path), O_RDONLY));
      checkpoint::Hasher hasher;
      HEKLA_RETURN_IF_ERROR(hash_range(file, {0, record.size}, hasher, progress));
      if (hasher.text() != record.metadata_digest) {
        return data_loss("{} does not match its digest in COMMIT", record.path);
      }
      return ok_status();
    }();
    note(record.path, status);
  }

  void check_shard(int32_t number, Progress& progress) {
    const std::string& path = step_.index().files[static_cast<size_t>(number)].path;
    const auto shard = step_.shard(number);
    if (!shard.ok()) return note(path, shard.status());
    const StepReader::Shard& open = **shard;
    progress.add(checkpoint::kUserBlockBytes);
    checkpoint::Hasher hasher;
    for (const ByteRange& range : metadata_ranges(open.block)) {
      if (const Status status = hash_range(open.file, range, hasher, progress); !status.ok()) {
        return note(path, status);
      }
    }
    if (hasher.text() != open.block.metadata_digest) {
      note(path, data_loss("{}: its metadata does not match its digest", path));
    }
    readable_.insert(number);
  }

  void check_payload(Progress& progress) {
    std::vector<Job> jobs;
    for (const Piece& piece : step_.index().pieces) {
      if (!readable_.contains(piece.file)) continue;
      const int64_t blocks = checkpoint::block_count(piece.bytes);
      for (int64_t first = 0; first < blocks; first += 8) {
        jobs.push_back({piece.file, &piece, first, std::min<int64_t>(8, blocks - first)});
      }
    }
    std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
      return std::pair(a.file, a.piece->offset + a.first * kBlockBytes) <
             std::pair(b.file, b.piece->offset + b.first * kBlockBytes);
    });
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    const auto work = [&] {
      for (size_t i = next++; i < jobs.size() && !stop_; i = next++)
        check_blocks(jobs[i], progress);
    };
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    report_.blocks = blocks_;
    report_.bytes = progress.done();
  }

  void check_blocks(const Job& job, Progress& progress) {
    const StepReader::Shard& shard = **step_.shard(job.file);  // open since check_shard
    const Piece& piece = *job.piece;
    const int64_t begin = job.first * kBlockBytes;
    const int64_t end = std::min(piece.bytes, begin + job.blocks * kBlockBytes);
    std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
    if (const Status status = shard.file.read(bytes, piece.offset + begin); !status.ok()) {
      return note(step_.index().files[static_cast<size_t>(job.file)].path, status);
    }
    for (int64_t b = 0; b < job.blocks; ++b) {
      const auto at = static_cast<size_t>(b * kBlockBytes);
      const auto block =
          std::span(bytes).subspan(at, std::min<size_t>(kBlockBytes, bytes.size() - at));
      const auto number = static_cast<size_t>(piece.first_block + job.first + b);
      if (number < shard.digests.size() &&
          checkpoint::block_digest(block) == shard.digests[number]) {
        continue;
      }
      add({step_.index().files[static_cast<size_t>(job.file)].path, step_.tensor(piece.tensor).name,
           checkpoint::box_text(piece.box), job.first + b, piece.offset + begin + b * kBlockBytes,
           "payload does not match its digest"});
    }
    blocks_ += job.blocks;
    progress.add(end - begin);
  }

  Io& io_;
  StepReader& step_;
  const VerifyOptions& options_;
  VerifyReport& report_;
  std::set<int32_t> readable_;
  std::atomic<int64_t> blocks_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Status error_;  // guarded by mutex_
};

}  // namespace

Result<VerifyReport> verify_step(Io& io, const std::string& folder, const VerifyOptions& options) {
  VerifyReport report;
  auto step = StepReader::open(io, folder);
  if (!step.ok()) {
    if (step.status().code() != StatusCode::kDataLoss) return step.status();
    report.damages.push_back({"", "", "", -1, -1, step.status().message()});
    return report;
  }
  report.step = step->commit().step;
  report.files = static_cast<int64_t>(step->commit().files.size());
  report.tensors = static_cast<int64_t>(step->index().tensors.size());
  HEKLA_RETURN_IF_ERROR(Verifier(io, *step, options, report).run());
  return report;
}

}  // namespace hekla::tools
