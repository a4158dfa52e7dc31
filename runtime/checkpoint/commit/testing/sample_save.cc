// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/testing/sample_save.h"

#include <fcntl.h>

#include <thread>

#include "runtime/base/host.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/format/digest.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kParts = 3;
constexpr int64_t kMaxSample = int64_t{1} << 24;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::string sample_bytes(int64_t step, const std::string& path, int64_t bytes) {
  uint64_t state = static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15 + path.size();
  for (const char c : path) state = state * 31 + static_cast<unsigned char>(c);
  std::string text(static_cast<size_t>(bytes), '\0');
  for (char& c : text) {
    state = state * 6364136223846793005 + 1442695040888963407;
    c = static_cast<char>(state >> 56);
  }
  return text;
}

Status SampleSave::allocate(const SaveSite& site) {
  HEKLA_RETURN_IF_ERROR(hooked(Phase::kAllocate, site));
  for (int k = 0; k < file_count_; ++k) {
    const std::string path = join_path(site.folder, fmt::format("data/rank-{}-{}.bin", rank_, k));
    HEKLA_ASSIGN_OR_RETURN(File file, File::open(io_, path, O_RDWR | O_CREAT | O_EXCL));
    HEKLA_RETURN_IF_ERROR(file.allocate(bytes_));
    files_.push_back(std::move(file));
  }
  return ok_status();
}

Status SampleSave::snapshot(const SaveSite& site) { return hooked(Phase::kSnapshot, site); }

Result<std::vector<FileRecord>> SampleSave::write(const SaveSite& site) {
  HEKLA_RETURN_IF_ERROR(hooked(Phase::kWrite, site));
  std::vector<FileRecord> records;
  for (int k = 0; k < file_count_; ++k) {
    const std::string path = fmt::format("data/rank-{}-{}.bin", rank_, k);
    const std::string text = sample_bytes(site.step, path, bytes_);
    File& file = files_[static_cast<size_t>(k)];
    for (int64_t part = 0; part < kParts; ++part) {
      const int64_t begin = bytes_ * part / kParts, end = bytes_ * (part + 1) / kParts;
      HEKLA_RETURN_IF_ERROR(file.write(
          bytes_of(text).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
          begin));
    }
    HEKLA_RETURN_IF_ERROR(file.sync_data());
    HEKLA_RETURN_IF_ERROR(file.close());
    records.push_back({path, bytes_, digest_text(text), "", rank_});
  }
  return records;
}

Result<std::vector<FileRecord>> SampleSave::finish(const SaveSite& site,
                                                   const std::vector<FileRecord>& files,
                                                   CommitRecord* record) {
  HEKLA_RETURN_IF_ERROR(hooked(Phase::kCommit, site));
  record->tensors = static_cast<int64_t>(files.size());
  const std::string text = sample_bytes(site.step, "index.bin", 500);
  HEKLA_RETURN_IF_ERROR(create_file(io_, join_path(site.folder, "index.bin"), text));
  return std::vector<FileRecord>{{"index.bin", 500, digest_text(text), "", rank_}};
}

Status check_sample(Io& io, const std::string& root, int64_t step) {
  const std::string folder = join_path(root, step_name(step));
  HEKLA_ASSIGN_OR_RETURN(const CommitRecord record, read_step(io, folder, step));
  if (record.tensors + 1 != static_cast<int64_t>(record.files.size())) {
    return data_loss("step {} has {} files", step, record.files.size());
  }
  for (const FileRecord& file : record.files) {
    HEKLA_ASSIGN_OR_RETURN(const std::string text,
                           read_file(io, join_path(folder, file.path), kMaxSample));
    if (text != sample_bytes(step, file.path, file.size) ||
        digest_text(text) != file.metadata_digest) {
      return data_loss("{} of step {} has wrong bytes", file.path, step);
    }
  }
  return ok_status();
}

Result<int64_t> check_samples(Io& io, const std::string& root) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<StepEntry> steps, list_steps(io, root));
  int64_t newest = -1;
  for (const StepEntry& entry : steps) {
    if (!entry.status.ok()) continue;
    HEKLA_RETURN_IF_ERROR(check_sample(io, root, entry.step));
    newest = entry.step;
  }
  return newest;
}

CommitOptions quick_options() {
  CommitOptions options;
  options.plan_deadline = std::chrono::seconds(20);
  options.allocate_deadline = std::chrono::seconds(20);
  options.write_deadline = std::chrono::seconds(20);
  options.commit_deadline = std::chrono::seconds(20);
  return options;
}

std::vector<Status> save_sample(
    const std::vector<Io*>& ios, const std::string& root, int64_t step,
    const CommitOptions& options, bool overwrite,
    const std::function<void(int rank, SampleSave&, SaveRequest&)>& prepare) {
  const auto world = static_cast<int>(ios.size());
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::vector<Status> statuses(ios.size());
  const auto run_rank = [&](int rank) -> Status {
    Io& io = *ios[static_cast<size_t>(rank)];
    HEKLA_ASSIGN_OR_RETURN(
        const std::unique_ptr<rendezvous::Group> group,
        rendezvous::Group::form(store, rank, world, Deadline::in(std::chrono::seconds(20))));
    HEKLA_ASSIGN_OR_RETURN(const RootInfo info, open_root(io, root));
    Committer committer(io, *group, root, info.run_uuid, options);
    SampleSave payload(io, rank);
    SaveRequest request;
    request.step = step;
    request.id = "1";
    request.layout_hash = 17;
    request.writer_version = "test";
    request.overwrite = overwrite;
    if (prepare) prepare(rank, payload, request);
    return committer.run(request, payload);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = run_rank(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

Status save_sample(Io& io, const std::string& root, int64_t step, int world, bool overwrite) {
  const std::vector<Io*> ios(static_cast<size_t>(world), &io);
  for (const Status& status : save_sample(ios, root, step, quick_options(), overwrite)) {
    HEKLA_RETURN_IF_ERROR(status);
  }
  return ok_status();
}

}  // namespace hekla::checkpoint
