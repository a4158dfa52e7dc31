// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/repair.h"

#include <algorithm>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/shard_reader.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/format/view.h"
#include "runtime/checkpoint/restore/verify.h"

namespace hekla::tools {

using checkpoint::CommitRecord;
using checkpoint::FileRecord;
using checkpoint::ShardContents;

namespace {

constexpr int64_t kMaxFileBytes = int64_t{4} << 30;  // of index and view

bool is_intact(Io& io, const std::string& folder, const FileRecord& record) {
  const auto text = hekla::read_file(io, join_path(folder, record.path), kMaxFileBytes);
  return text.ok() && static_cast<int64_t>(text->size()) == record.size &&
         checkpoint::digest_text(*text) == record.metadata_digest;
}

// index.h5 and model.h5 of one step, by the names of those that are damaged.
Result<std::vector<std::pair<std::string, std::string>>> rebuild(
    Io& io, const std::string& folder, const CommitRecord& commit,
    const std::vector<FileRecord>& damaged) {
  std::vector<FileRecord> shards;
  for (const FileRecord& file : commit.files) {
    if (!file.table_digest.empty()) shards.push_back(file);  // shards alone have one
  }
  std::vector<ShardContents> contents;
  for (size_t i = 0; i < shards.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(
        ShardContents one,
        checkpoint::read_shard_file(io, folder, commit, shards[i], static_cast<int32_t>(i)));
    contents.push_back(std::move(one));
  }
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::StepIndex index,
                         checkpoint::rebuild_index(commit.step, contents, shards));
  std::vector<std::pair<std::string, std::string>> made;
  for (const FileRecord& file : damaged) {
    HEKLA_ASSIGN_OR_RETURN(const auto bytes,
                           file.path == "index.h5"
                               ? checkpoint::write_index(index, commit.format_minor)
                               : checkpoint::make_view(index));
    if (checkpoint::digest_text(bytes) != file.metadata_digest) {
      return data_loss(
          "{} made from the shards is not the one that COMMIT lists (made by another "
          "version of HDF5?)",
          file.path);
    }
    made.emplace_back(file.path,
                      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return made;
}

Status repair_step(Io& io, const std::string& folder, const std::string& name, bool dry_run,
                   RepairReport& report) {
  const auto text = hekla::read_file(io, join_path(folder, "COMMIT"), checkpoint::kMaxCommitBytes);
  if (!text.ok()) {
    report.left.push_back(fmt::format("{}: {}", name, text.status().message()));
    return ok_status();
  }
  const auto commit = checkpoint::parse_commit(*text);
  if (!commit.ok()) {
    report.left.push_back(fmt::format("{}: {}", name, commit.status().message()));
    return ok_status();
  }
  std::vector<FileRecord> damaged;
  for (const FileRecord& file : commit->files) {
    const bool is_ours = file.path == "index.h5" || file.path == "model.h5";
    if (is_ours && !is_intact(io, folder, file)) damaged.push_back(file);
  }
  if (damaged.empty()) return ok_status();
  const auto made = rebuild(io, folder, *commit, damaged);
  if (!made.ok()) {
    report.left.push_back(fmt::format("{}: {}", name, made.status().message()));
    return ok_status();
  }
  for (const auto& [path, bytes] : *made) {
    if (!dry_run) {
      HEKLA_RETURN_IF_ERROR(replace_file(io, join_path(folder, path), bytes));
    }
    report.done.push_back(fmt::format("rebuilt {}/{} from the shards", name, path));
  }
  return dry_run ? ok_status() : sync_folder(io, folder);
}

}  // namespace

Result<RepairReport> repair_run(Io& io, const std::string& root, bool dry_run) {
  HEKLA_ASSIGN_OR_RETURN(const auto entries, list_folder(io, root));
  RepairReport report;
  for (const auto& entry : entries) {
    if (!entry.name.starts_with("step-")) continue;
    HEKLA_RETURN_IF_ERROR(
        repair_step(io, join_path(root, entry.name), entry.name, dry_run, report));
  }
  return report;
}

}  // namespace hekla::tools
