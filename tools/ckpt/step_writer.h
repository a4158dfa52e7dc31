// SPDX-License-Identifier: Apache-2.0
// Writes one committed step from a stream of tensors, by one process: for reshard and convert.
//
// The step appears under its final name at once and complete: files are written and synced in a
// temporary folder beside it, COMMIT last, then the folder is renamed. On failure the temporary
// folder is removed. Memory is bounded by the staging pool and the index. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/io/io.h"
#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::tools {

// Gives the elements of a box of tensor number `tensor`, dense and row major as in host memory.
using BoxSource =
    std::function<Status(int32_t tensor, const checkpoint::Box& box, std::span<std::byte> memory)>;

// A file of the step that is copied as it is; its digest is taken on the way.
struct ExtraFile {
  std::string path;  // in the step: "extra/config.json"
  std::string from;  // on the disk
};

struct StepToWrite {
  checkpoint::CommitRecord commit;  // step, run, mesh, reason, metrics; the rest is filled in
  checkpoint::SavePlan plan;
  std::vector<ExtraFile> extra;
};

// The new step's folder is `folder`, which must not exist; its parents are made. ALREADY_EXISTS;
// errors of `source`, of the format and of files.
Status write_step(checkpoint::Io& io, const std::string& folder, const StepToWrite& step,
                  const BoxSource& source, const std::string& what);

}  // namespace hekla::tools
