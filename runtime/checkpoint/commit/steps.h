// SPDX-License-Identifier: Apache-2.0
// The steps of a run's root folder: which exist, what they hold, reading and deleting them.
//
// A step exists if its folder has its final name, its COMMIT is valid and of that step, and each
// listed file has the listed size. Listing costs one readdir, and per step one small read and one
// stat a file. Functions are thread-safe; they may run while others save, list and delete.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/rendezvous/lease.h"

namespace hekla::checkpoint {

struct RootInfo {
  int major = 1;
  int minor = 0;
  std::string run_uuid;
  std::map<std::string, std::string> metadata;  // the user's
};

// Makes the folder and ROOT.json when they are missing, else reads it; of several processes that
// make it at once one wins. DATA_LOSS: not one of ours; UNIMPLEMENTED: of a newer major version.
Result<RootInfo> open_root(Io& io, const std::string& root,
                           const std::map<std::string, std::string>& metadata = {});

struct StepEntry {
  int64_t step = 0;
  std::string path;
  bool is_pinned = false;
  Status status;        // ok: a step; else why it is none
  CommitRecord record;  // if ok
};

// The COMMIT of a folder, and whether its files have their sizes. NOT_FOUND: no COMMIT; DATA_LOSS:
// damaged, of another step, a file missing or of another size (named).
Result<CommitRecord> read_step(Io& io, const std::string& folder, int64_t step);
// What is named like a step, by step; valid or not. NOT_FOUND: no such root.
Result<std::vector<StepEntry>> list_steps(Io& io, const std::string& root);
// The newest valid step, -1 if there is none.
Result<int64_t> newest_step(Io& io, const std::string& root);

// Keeps a step from being deleted while it is read; ends with the object or the process.
class StepLease {
 public:
  // NOT_FOUND: no such step, or it was deleted a moment ago. Where folder and locks allow neither
  // flock nor a file of its own, the step is read without protection: is_held() says so.
  static Result<StepLease> acquire(Io& io, const std::string& root, int64_t step);
  StepLease() = default;

  bool is_held() const { return file_.is_open() || lease_.is_held(); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  File file_;                // COMMIT, locked
  rendezvous::Lease lease_;  // where there is no flock
};

// Whether somebody holds a lease on the step in this folder; for people, as it may end at any
// moment.
Result<bool> is_being_read(Io& io, const std::string& folder);

Status pin_step(Io& io, const std::string& root, int64_t step);
Status unpin_step(Io& io, const std::string& root, int64_t step);
// Renames it away, syncs the root, removes it: there is no half-deleted step. FAILED_PRECONDITION:
// pinned; UNAVAILABLE: somebody reads it. NOT_FOUND: no such folder. What is not removed after the
// rename, is at the next recovery.
Status delete_step(Io& io, const std::string& root, int64_t step);

// While the file is open nobody begins to read the step and nobody else removes it. UNAVAILABLE:
// somebody reads it. A file that is not open: there is nothing to lock (no COMMIT, no flock).
Result<File> claim_step(Io& io, const std::string& folder);

// Moves a folder of the root to the trash and removes it there.
Status discard(Io& io, const std::string& root, std::string_view name);

}  // namespace hekla::checkpoint
