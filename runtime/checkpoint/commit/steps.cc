// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/steps.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/commit/names.h"

namespace hekla::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormatName = "hekla-checkpoint";
constexpr int64_t kMaxRootFile = int64_t{16} << 20;
constexpr int kTries = 5;
constexpr std::string_view kReaderPrefix = "READER-";

Result<RootInfo> parse_root(const std::string& path, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto bad = [&](std::string_view what) {
    return data_loss("{} is not the root of checkpoints: {}", path, what);
  };
  if (!json.is_object() || json.value("format", Json()) != kFormatName) {
    return bad("its format is not named");
  }
  const Json major = json.value("major", Json()), minor = json.value("minor", Json());
  const Json uuid = json.value("run_uuid", Json());
  if (!major.is_number_integer() || !minor.is_number_integer() || !uuid.is_string()) {
    return bad("version or run_uuid is missing");
  }
  if (major.get<int64_t>() > kFormatMajor) {
    return unimplemented("{} has format version {}; this program reads up to {}", path,
                         major.get<int64_t>(), kFormatMajor);
  }
  RootInfo info;
  info.major = major.get<int>();
  info.minor = minor.get<int>();
  info.run_uuid = uuid.get<std::string>();
  if (const Json metadata = json.value("metadata", Json()); metadata.is_object()) {
    for (const auto& [key, value] : metadata.items()) {
      if (value.is_string()) info.metadata[key] = value.get<std::string>();
    }
  }
  return info;
}

constexpr int kLockTries = 20;
constexpr std::chrono::milliseconds kLockPause(5);

Result<bool> has_live_reader_file(Io& io, const std::string& folder) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, list_folder(io, folder));
  for (const DirectoryEntry& entry : entries) {
    if (!entry.name.starts_with(kReaderPrefix)) continue;
    HEKLA_ASSIGN_OR_RETURN(const rendezvous::LeaseState state,
                           rendezvous::lease_state(io, join_path(folder, entry.name)));
    if (state == rendezvous::LeaseState::kLive || state == rendezvous::LeaseState::kFresh)
      return true;
  }
  return false;
}

}  // namespace

Result<RootInfo> open_root(Io& io, const std::string& root,
                           const std::map<std::string, std::string>& metadata) {
  HEKLA_RETURN_IF_ERROR(make_folders(io, root));
  const std::string path = join_path(root, kRootFile);
  Result<std::string> text = read_file(io, path, kMaxRootFile);
  if (text.ok()) return parse_root(path, *text);
  if (text.status().code() != StatusCode::kNotFound) return text.status();

  Json json = {{"format", kFormatName},
               {"major", kFormatMajor},
               {"minor", kFormatMinor},
               {"run_uuid", random_hex(16)},
               {"metadata", metadata}};
  const std::string made = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  // A link is made by one process only, and never shows half a file. Recovery may sweep away the
  // temporary file, hence the tries.
  int status = -ENOENT;
  for (int i = 0; i < kTries && status == -ENOENT; ++i) {
    const std::string temporary = fmt::format("{}.{}.new", path, random_hex(8));
    HEKLA_RETURN_IF_ERROR(create_file(io, temporary, made));
    status = io.link(temporary, path);
    // File systems without links: of two processes in the same moment the later one wins.
    if (status == -EPERM || status == -EOPNOTSUPP || status == -ENOSYS) {
      status = io.rename(temporary, path);
    }
    io.unlink(temporary);
  }
  if (status != 0 && status != -EEXIST) return io_error(-status, "link", path);
  HEKLA_RETURN_IF_ERROR(sync_folder(io, root));
  HEKLA_ASSIGN_OR_RETURN(const std::string there, read_file(io, path, kMaxRootFile));
  return parse_root(path, there);
}

Result<CommitRecord> read_step(Io& io, const std::string& folder, int64_t step) {
  const std::string path = join_path(folder, kCommitFile);
  HEKLA_ASSIGN_OR_RETURN(const std::string text,
                         read_file(io, path, static_cast<int64_t>(kMaxCommitBytes)));
  Result<CommitRecord> record = parse_commit(text);
  if (!record.ok()) return record.status().with_context(path);
  if (record->step != step) {
    return data_loss("{} is of step {}, not of step {}", path, record->step, step);
  }
  for (const FileRecord& file : record->files) {
    const std::string file_path = join_path(folder, file.path);
    HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> info, find_file(io, file_path));
    if (!info || info->kind != FileKind::kRegular) {
      return data_loss("{} is missing from step {}", file_path, step);
    }
    if (info->size != file.size) {
      return data_loss("{} has {} bytes, its step's COMMIT says {}", file_path, info->size,
                       file.size);
    }
  }
  return record;
}

Result<std::vector<StepEntry>> list_steps(Io& io, const std::string& root) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, list_folder(io, root));
  std::vector<StepEntry> steps;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<int64_t> step = parse_step_name(entry.name);
    if (!step || entry.kind == FileKind::kRegular) continue;
    StepEntry found;
    found.step = *step;
    found.path = join_path(root, entry.name);
    Result<CommitRecord> record = read_step(io, found.path, *step);
    if (record.ok()) {
      found.record = *std::move(record);
      const Result<std::optional<FileInfo>> pin = find_file(io, join_path(found.path, kPinFile));
      // What cannot be looked at is not to be deleted.
      found.is_pinned = !pin.ok() || pin->has_value();
    } else {
      found.status = record.status();
      const Result<std::optional<FileInfo>> folder = find_file(io, found.path);
      if (folder.ok() && !*folder) continue;  // deleted a moment ago
    }
    steps.push_back(std::move(found));
  }
  return steps;
}

Result<int64_t> newest_step(Io& io, const std::string& root) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<StepEntry> steps, list_steps(io, root));
  int64_t newest = -1;
  for (const StepEntry& entry : steps) {
    if (entry.status.ok()) newest = entry.step;
  }
  return newest;
}

Result<StepLease> StepLease::acquire(Io& io, const std::string& root, int64_t step) {
  StepLease lease;
  lease.folder_ = join_path(root, step_name(step));
  const std::string path = join_path(lease.folder_, kCommitFile);
  HEKLA_ASSIGN_OR_RETURN(File file, File::open(io, path, O_RDONLY));
  HEKLA_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  Result<bool> locked = file.try_lock(LockKind::kShared);
  // Who deletes keeps the lock until the step is gone, who only looks (is_being_read) does not.
  for (int tries = 0; tries < kLockTries && locked.ok() && !*locked; ++tries) {
    std::this_thread::sleep_for(kLockPause);
    locked = file.try_lock(LockKind::kShared);
  }
  if (locked.ok()) {
    if (!*locked) return not_found("step {} of {} is being deleted", step, root);
    lease.file_ = std::move(file);
  } else if (locked.status().code() == StatusCode::kUnimplemented) {
    Result<rendezvous::Lease> held = rendezvous::Lease::hold(
        io, join_path(lease.folder_, fmt::format("{}{}", kReaderPrefix, random_hex(6))),
        host_name());
    if (held.ok()) {
      lease.lease_ = *std::move(held);
    } else {
      log_message(LogLevel::kWarning, "step {} is read without a lease: {}", step,
                  held.status().to_string());
    }
  } else {
    return locked.status();
  }
  // Deleted, or replaced, between the look and the lock?
  HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> now, find_file(io, path));
  if (!now || now->inode != info.inode || now->device != info.device) {
    return not_found("step {} of {} was deleted", step, root);
  }
  return lease;
}

Result<bool> is_being_read(Io& io, const std::string& folder) {
  const Result<File> claim = claim_step(io, folder);
  if (claim.ok()) return false;
  if (claim.status().code() == StatusCode::kUnavailable) return true;
  return claim.status();
}

Status pin_step(Io& io, const std::string& root, int64_t step) {
  const std::string folder = join_path(root, step_name(step));
  HEKLA_RETURN_IF_ERROR(read_step(io, folder, step).status());
  const Status status = create_file(io, join_path(folder, kPinFile), "");
  if (status.code() == StatusCode::kAlreadyExists) return ok_status();
  HEKLA_RETURN_IF_ERROR(status);
  return sync_folder(io, folder);
}

Status unpin_step(Io& io, const std::string& root, int64_t step) {
  const std::string folder = join_path(root, step_name(step));
  const Status status = unlink_file(io, join_path(folder, kPinFile));
  if (status.code() == StatusCode::kNotFound) return ok_status();
  return status;
}

Result<File> claim_step(Io& io, const std::string& folder) {
  Result<File> commit = File::open(io, join_path(folder, kCommitFile), O_RDONLY);
  if (!commit.ok()) {
    if (commit.status().code() == StatusCode::kNotFound) return File();
    return commit.status();
  }
  const Result<bool> locked = commit->try_lock(LockKind::kExclusive);
  const bool has_locks = locked.ok() || locked.status().code() != StatusCode::kUnimplemented;
  if (has_locks && !locked.ok()) return locked.status();
  bool is_free = !has_locks || *locked;
  if (is_free) {
    HEKLA_ASSIGN_OR_RETURN(const bool has_reader, has_live_reader_file(io, folder));
    is_free = !has_reader;
  }
  if (!is_free) return unavailable("{} is being read", folder);
  return commit;
}

Status discard(Io& io, const std::string& root, std::string_view name) {
  const std::string trash = join_path(root, trash_name());
  HEKLA_RETURN_IF_ERROR(rename_path(io, join_path(root, name), trash));
  HEKLA_RETURN_IF_ERROR(sync_folder(io, root));
  return remove_tree(io, trash);
}

Status delete_step(Io& io, const std::string& root, int64_t step) {
  const std::string name = step_name(step);
  const std::string folder = join_path(root, name);
  HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> pin,
                         find_file(io, join_path(folder, kPinFile)));
  if (pin) return failed_precondition("step {} of {} is pinned", step, root);
  HEKLA_ASSIGN_OR_RETURN(const File claim, claim_step(io, folder));
  return discard(io, root, name);  // the claim is held until it is gone
}

}  // namespace hekla::checkpoint
