// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/recovery.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/base/io/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/rendezvous/lease.h"

namespace hekla::checkpoint {
namespace {

class Recovery {
 public:
  Recovery(Io& io, const std::string& root, const RecoveryOptions& options)
      : io_(io), root_(root), options_(options) {}

  Result<RecoveryReport> run() {
    HEKLA_ASSIGN_OR_RETURN(entries_, list_folder(io_, root_));
    look_at_owners();
    for (const DirectoryEntry& entry : entries_) {
      if (const auto save = parse_temporary_name(entry.name)) {
        attempt(entry.name, [&] { return settle_save(entry.name, *save); });
      }
    }
    for (const DirectoryEntry& entry : entries_) {
      if (const auto old = parse_old_name(entry.name)) {
        attempt(entry.name, [&] { return settle_old(entry.name, *old); });
      }
    }
    for (const DirectoryEntry& entry : entries_) {
      if (const auto step = parse_step_name(entry.name)) {
        attempt(entry.name, [&] { return settle_step(entry.name, *step); });
      }
    }
    for (const DirectoryEntry& entry : entries_) {
      if (entry.name.starts_with(kTrashPrefix)) {
        attempt(entry.name, [&] { return remove(entry.name); });
      }
    }
    for (const DirectoryEntry& entry : entries_) {
      const bool is_small_file = entry.name.starts_with(fmt::format("{}.", kLatestFile)) ||
                                 entry.name.starts_with(fmt::format("{}.", kLockFile)) ||
                                 entry.name.starts_with(fmt::format("{}.", kRootFile));
      if (is_small_file && is_temporary(entry.name)) {
        attempt(entry.name, [&] { return remove(entry.name); });
      }
    }
    for (const std::string& name : dead_owners_) {
      attempt(name, [&] { return remove(name); });
    }
    HEKLA_ASSIGN_OR_RETURN(report_.newest, newest_step(io_, root_));
    if (options_.dry_run) {
      for (const int64_t step : report_.adopted) report_.newest = std::max(report_.newest, step);
      for (const int64_t step : report_.restored) report_.newest = std::max(report_.newest, step);
    }
    return std::move(report_);
  }

 private:
  template <typename Action>
  void attempt(const std::string& name, const Action& action) {
    const Status status = action();
    if (status.ok()) return;
    log_message(LogLevel::kWarning, "recovery of {}: {}", join_path(root_, name),
                status.to_string());
    report_.left.push_back(fmt::format("{}: {}", name, status.to_string()));
  }

  void look_at_owners() {
    for (const DirectoryEntry& entry : entries_) {
      if (!entry.name.starts_with(kOwnerPrefix)) continue;
      const std::string nonce = entry.name.substr(kOwnerPrefix.size());
      const std::string path = join_path(root_, entry.name);
      const Result<rendezvous::LeaseState> state = rendezvous::lease_state(io_, path);
      if (is_temporary(entry.name)) {
        // A lease that is being made is made again when it goes.
        if (state.ok() && *state != rendezvous::LeaseState::kLive)
          dead_owners_.push_back(entry.name);
        continue;
      }
      if (state.ok() && *state == rendezvous::LeaseState::kLive) locked_.insert(nonce);
      if (!state.ok() || *state == rendezvous::LeaseState::kLive ||
          *state == rendezvous::LeaseState::kFresh) {
        live_.insert(nonce);
        const Result<std::string> text = rendezvous::read_lease(io_, path);
        if (text.ok()) live_steps_.insert(*text);
      } else if (*state == rendezvous::LeaseState::kDead) {
        dead_owners_.push_back(entry.name);
      }
    }
  }

  // What replace_file and leases write before they rename it.
  static bool is_temporary(const std::string& name) { return name.ends_with(".new"); }

  bool is_live(const StepAndNonce& save) const { return live_.count(save.nonce) != 0; }

  Status settle_save(const std::string& name, const StepAndNonce& save) {
    if (is_live(save)) {
      report_.left.push_back(fmt::format("{}: a live process is saving step {}", name, save.step));
      return ok_status();
    }
    const std::string folder = join_path(root_, name);
    Result<CommitRecord> record = read_step(io_, folder, save.step);
    Status usable = record.ok() ? ok_status() : record.status();
    if (usable.ok() && record->nonce != save.nonce) {
      usable = data_loss("{} holds the COMMIT of another save, {}", folder, record->nonce);
    }
    if (usable.ok() && options_.verify) usable = options_.verify(folder, *record);
    if (usable.ok() && options_.adopt) return adopt(name, save);
    if (usable.code() != StatusCode::kNotFound && !usable.ok()) {
      log_message(LogLevel::kWarning, "the unfinished save {} is deleted: {}", folder,
                  usable.to_string());
    }
    return trash(name);
  }

  // As the save itself would have ended.
  Status adopt(const std::string& name, const StepAndNonce& save) {
    const std::string final_path = join_path(root_, step_name(save.step));
    HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> taken, find_file(io_, final_path));
    if (!options_.dry_run) {
      // Its last syncs may not have happened.
      HEKLA_RETURN_IF_ERROR(sync_folder(io_, join_path(root_, name)));
      if (taken) {
        HEKLA_RETURN_IF_ERROR(
            rename_path(io_, final_path, join_path(root_, old_name(save.step, save.nonce))));
        HEKLA_RETURN_IF_ERROR(sync_folder(io_, root_));
      }
      HEKLA_RETURN_IF_ERROR(rename_path(io_, join_path(root_, name), final_path));
      HEKLA_RETURN_IF_ERROR(sync_folder(io_, root_));
      if (taken) HEKLA_RETURN_IF_ERROR(discard(io_, root_, old_name(save.step, save.nonce)));
    }
    log_message(LogLevel::kInfo, "step {} was complete and is adopted from {}", save.step, name);
    report_.adopted.push_back(save.step);
    return ok_status();
  }

  Status settle_old(const std::string& name, const StepAndNonce& old) {
    HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> still,
                           find_file(io_, join_path(root_, name)));
    if (!still) return ok_status();  // went with the adoption of its successor
    const std::string final_path = join_path(root_, step_name(old.step));
    HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> taken, find_file(io_, final_path));
    // A lease that may be a dead machine's must not hide the step. Should its owner live after all,
    // then its save fails and nothing is lost.
    if (locked_.count(old.nonce) != 0 || (is_live(old) && taken)) {
      report_.left.push_back(fmt::format("{}: a live process replaces step {}", name, old.step));
      return ok_status();
    }
    const bool arrived = read_step(io_, final_path, old.step).ok() ||
                         std::find(report_.adopted.begin(), report_.adopted.end(), old.step) !=
                             report_.adopted.end();
    if (arrived) return trash(name);
    if (!read_step(io_, join_path(root_, name), old.step).ok()) return quarantine(name, "damaged");
    if (!options_.dry_run) {
      if (taken) HEKLA_RETURN_IF_ERROR(quarantine(step_name(old.step), "not a valid step"));
      HEKLA_RETURN_IF_ERROR(rename_path(io_, join_path(root_, name), final_path));
      HEKLA_RETURN_IF_ERROR(sync_folder(io_, root_));
    }
    log_message(LogLevel::kInfo, "step {} is back: the save that was to replace it did not end",
                old.step);
    report_.restored.push_back(old.step);
    return ok_status();
  }

  Status settle_step(const std::string& name, int64_t step) {
    const std::string folder = join_path(root_, name);
    const Result<CommitRecord> record = read_step(io_, folder, step);
    if (record.ok()) return ok_status();
    // Only what is known to be wrong: a disk that does not answer says nothing about the step.
    const StatusCode code = record.status().code();
    if (code != StatusCode::kNotFound && code != StatusCode::kDataLoss &&
        code != StatusCode::kInvalidArgument && code != StatusCode::kResourceExhausted) {
      return record.status();
    }
    HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> still, find_file(io_, folder));
    if (!still) return ok_status();  // moved by what came before
    if (live_steps_.count(std::to_string(step)) != 0) {
      report_.left.push_back(fmt::format("{}: a live process is saving it", name));
      return ok_status();
    }
    return quarantine(name, record.status().to_string());
  }

  Status quarantine(const std::string& name, const std::string& why) {
    const std::string bad = bad_name(name);
    if (!options_.dry_run) {
      HEKLA_RETURN_IF_ERROR(rename_path(io_, join_path(root_, name), join_path(root_, bad)));
      HEKLA_RETURN_IF_ERROR(sync_folder(io_, root_));
    }
    log_message(LogLevel::kWarning, "{} is not a valid step and is put aside as {}: {}",
                join_path(root_, name), bad, why);
    report_.quarantined.push_back(fmt::format("{}: {}", bad, why));
    return ok_status();
  }

  Status trash(const std::string& name) {
    report_.deleted.push_back(name);
    return options_.dry_run ? ok_status() : discard(io_, root_, name);
  }

  Status remove(const std::string& name) {
    report_.deleted.push_back(name);
    return options_.dry_run ? ok_status() : remove_tree(io_, join_path(root_, name));
  }

  Io& io_;
  const std::string& root_;
  const RecoveryOptions& options_;
  std::vector<DirectoryEntry> entries_;
  std::set<std::string> live_;        // nonces of saves that are, or may be, under way
  std::set<std::string> locked_;      // of those whose process lives on this machine
  std::set<std::string> live_steps_;  // their steps, as text
  std::vector<std::string> dead_owners_;
  RecoveryReport report_;
};

}  // namespace

Result<RecoveryReport> recover(Io& io, const std::string& root, const RecoveryOptions& options) {
  return Recovery(io, root, options).run();
}

}  // namespace hekla::checkpoint
