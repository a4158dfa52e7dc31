// SPDX-License-Identifier: Apache-2.0
// Recovery: puts the root folder of a run in order after processes or the machine died.
//
// Who calls it holds the ManagerLock. What a live process is writing is left alone (its lease, not
// its age, says so). Else: a save with a valid COMMIT is adopted, one without is deleted; a step
// that was being replaced comes back when its successor did not arrive; a step folder without a
// valid COMMIT is put aside under another name, never deleted; what lies in the trash goes.
// Recovery may itself be killed at any call and started again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"

namespace hekla::checkpoint {

struct RecoveryOptions {
  bool adopt = true;     // false: a save that was not yet renamed is deleted
  bool dry_run = false;  // says what it would do
  // Looks closer at a step before it is adopted (digests of metadata); sizes are checked anyway.
  std::function<Status(const std::string& folder, const CommitRecord& record)> verify;
};

struct RecoveryReport {
  std::vector<int64_t> adopted;          // steps
  std::vector<int64_t> restored;         // steps that an unfinished replacement had moved
  std::vector<std::string> quarantined;  // "step-...: why", under their new names
  std::vector<std::string> deleted;      // names of folders and leases
  std::vector<std::string> left;         // "name: why": live saves, what could not be removed
  int64_t newest = -1;                   // the newest valid step after it
};

// Errors: those of the root folder itself. One that concerns one entry is in `left`, and logged.
Result<RecoveryReport> recover(Io& io, const std::string& root,
                               const RecoveryOptions& options = {});

}  // namespace hekla::checkpoint
