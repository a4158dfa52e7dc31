// SPDX-License-Identifier: Apache-2.0
// Committer: the two-phase protocol by which all ranks of a group save one step, or none does.
//
//   P0 plan      coordinator: nonce, lease, .tmp-<step>-<nonce>/{data,extra}; PLAN to all
//   P1 allocate  each rank makes its files; no rank goes on before all could
//   P2 snapshot  each rank takes hold of its state
//   P3 write     each rank writes, syncs, closes; sync of data/ and extra/; READY with its records
//   P4 commit    coordinator: files made from all records; sizes looked at again; the decision;
//                COMMIT written, synced, renamed, its folder synced
//   P5 publish   rename to step-..., root synced; COMMITTED to all; LATEST
//
// The decision is one key of the store, set once: "commit" by the coordinator when everything is
// there, or "abort" with a reason by whoever fails, dies being noticed, or waits too long. So all
// ranks agree, whatever the order of events. After an abort every rank stops writing and the
// coordinator removes the folder; a coordinator that died leaves it to recovery. Each wait has a
// deadline and names the ranks that are missing.
//
// It knows nothing of tensors and HDF5: SavePayload does. Used by one thread at a time; every rank
// calls run() for the same saves in the same order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/rendezvous/group.h"

namespace hekla::checkpoint {

enum class Phase { kPlan, kAllocate, kSnapshot, kWrite, kCommit, kPublish, kDone };

// "P3 write" and so on.
std::string_view phase_name(Phase phase);

// A committed step whose files a save may take over by hard links. Nobody deletes it meanwhile.
struct ParentStep {
  int64_t step = 0;
  std::string folder;
};

// Where a save writes.
struct SaveSite {
  std::string folder;  // has data/ and extra/
  int64_t step = 0;
  std::string run_uuid;
  std::string nonce;
  std::stop_token stop;              // requested when the save is given up: whoever works ends soon
  std::optional<ParentStep> parent;  // if the request wants one and there is one
};

// What a save writes. The calls come from the thread of run(), in this order, each at most once.
class SavePayload {
 public:
  virtual ~SavePayload() = default;
  // P1: this rank's files, with their space. Disk full is found here.
  virtual Status allocate(const SaveSite& site) = 0;
  // P2: after it the caller's arrays may change.
  virtual Status snapshot(const SaveSite& site) = 0;
  // P3: the records of this rank's files (paths relative to the site), written, synced and closed.
  virtual Result<std::vector<FileRecord>> write(const SaveSite& site) = 0;
  // P4, on the coordinator: files that need all records (the index, the view), in the site's folder
  // itself, written and synced;
  // may fill in tensors, logical_bytes, mesh, metrics and parent of the record, and put its files
  // into another order.
  virtual Result<std::vector<FileRecord>> finish(const SaveSite& site,
                                                 const std::vector<FileRecord>& files,
                                                 CommitRecord* record) = 0;
  // The save was given up; closes what is open. Nothing of the folder need be removed.
  virtual void abandon() = 0;
};

struct SaveRequest {
  int64_t step = 0;
  std::string id;                 // equal on all ranks, never used before in the group
  uint64_t layout_hash = 0;       // must be equal on all ranks
  std::string layout_text;        // said when it is not: what this rank's layout is, in short
  std::string reason = "manual";  // "interval", "manual", "preempt", "final"
  std::map<std::string, double> metrics;
  std::string writer_version;
  bool overwrite = false;     // take the place of an existing step
  bool reads_back = false;    // COMMIT is compared with the disk before it counts
  bool wants_parent = false;  // the coordinator's word counts
  // Called at most once, from a thread of its own, while this rank writes and another one has said
  // raise_priority(); may be empty.
  std::function<void()> on_priority_raised;
  std::stop_token stop;  // the caller gives up
};

struct CommitOptions {
  std::chrono::nanoseconds plan_deadline = std::chrono::minutes(5);
  std::chrono::nanoseconds allocate_deadline = std::chrono::minutes(5);
  std::chrono::nanoseconds write_deadline = std::chrono::minutes(20);
  std::chrono::nanoseconds commit_deadline = std::chrono::minutes(5);
  std::chrono::nanoseconds report_every = std::chrono::seconds(10);
  // False where folders cannot be renamed atomically: the step is written under its final name, and
  // COMMIT, made exclusively, comes last.
  bool atomic_rename = true;
  // Called when a phase begins, from the thread of run().
  std::function<void(Phase)> on_phase;
};

class Committer {
 public:
  // `root` was opened by open_root; `io` and `group` outlive the object.
  Committer(Io& io, rendezvous::Group& group, std::string root, std::string run_uuid,
            CommitOptions options);

  // Ok: the step is committed and durable. Else the step of before is what it was; the message
  // names step, phase, rank, and what the payload or the file system said. The one exception names
  // itself: UNAVAILABLE when the coordinator dies while it commits; then recovery decides.
  Status run(const SaveRequest& request, SavePayload& payload);

  // Before run() is called for it on this rank: ranks that have called it give up. Any thread.
  Status refuse(const std::string& id, const Status& reason);

  // Tells all ranks that somebody waits for the save. Any thread.
  void raise_priority(const std::string& id);

  const std::string& root() const { return root_; }

 private:
  class Save;
  Io& io_;
  rendezvous::Group& group_;
  const std::string root_;
  const std::string run_uuid_;
  const CommitOptions options_;
  std::vector<std::string> old_ids_;  // of saves whose keys are still in the store
};

}  // namespace hekla::checkpoint
