// SPDX-License-Identifier: Apache-2.0
// A save whose every byte is known from its step, and the look whether a root holds such steps
// alone. For tests of the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/commit/committer.h"

namespace hekla::checkpoint {

// Where tests keep their steps.
inline constexpr char kRoot[] = "/run";

// Writes data/rank-<r>-<k>.bin, each in a few parts; the coordinator adds index.bin.
class SampleSave : public SavePayload {
 public:
  SampleSave(Io& io, int rank, int files = 2, int64_t bytes = 3000)
      : io_(io), rank_(rank), file_count_(files), bytes_(bytes) {}

  Status allocate(const SaveSite& site) override;
  Status snapshot(const SaveSite& site) override;
  Result<std::vector<FileRecord>> write(const SaveSite& site) override;
  Result<std::vector<FileRecord>> finish(const SaveSite& site, const std::vector<FileRecord>& files,
                                         CommitRecord* record) override;
  void abandon() override { files_.clear(); }

  // Called at the start of each phase's work; an error is the payload's.
  std::function<Status(Phase, const SaveSite&)> hook;

 private:
  Status hooked(Phase phase, const SaveSite& site) const {
    return hook ? hook(phase, site) : ok_status();
  }
  Io& io_;
  const int rank_;
  const int file_count_;
  const int64_t bytes_;
  std::vector<File> files_;
};

// The bytes of a file of a step.
std::string sample_bytes(int64_t step, const std::string& path, int64_t bytes);

// Whether a committed step is bit for bit what SampleSave writes.
Status check_sample(Io& io, const std::string& root, int64_t step);
// check_sample of all valid steps; the newest, -1 if there is none.
Result<int64_t> check_samples(Io& io, const std::string& root);

// Short deadlines; no step of a test waits that long but for what never comes.
CommitOptions quick_options();

// Saves `step` with `world` ranks that are threads of this process; one status per rank.
std::vector<Status> save_sample(
    const std::vector<Io*>& ios, const std::string& root, int64_t step,
    const CommitOptions& options = quick_options(), bool overwrite = false,
    const std::function<void(int rank, SampleSave&, SaveRequest&)>& prepare = {});
// The same on one Io; ok when all ranks say so.
Status save_sample(Io& io, const std::string& root, int64_t step, int world = 1,
                   bool overwrite = false);

}  // namespace hekla::checkpoint
