// SPDX-License-Identifier: Apache-2.0
// Writes one committed step from a stream of tensors, by one process: for reshard and convert.
//
// The step is committed as every save is (runtime/checkpoint/commit), by a group of one. Memory is
// bounded by the staging pool and the index. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
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
  int64_t step = 0;
  checkpoint::SavePlan plan;
  int32_t world_size = 1;
  std::string reason = "manual";
  std::map<std::string, double> metrics;
  std::vector<ExtraFile> extra;
};

// Into the run's folder `root`, which is made if need be; the path of the new step.
// ALREADY_EXISTS: it has that step; errors of `source`, of the format and of files.
Result<std::string> write_step(Io& io, const std::string& root, const StepToWrite& step,
                               const BoxSource& source, const std::string& what);

}  // namespace hekla::tools
