// SPDX-License-Identifier: Apache-2.0
// `hekla ckpt repair`: what can be made again is made again.
//
// index.h5 and model.h5 follow from the shards bit for bit, so a damaged or missing one is replaced
// by what COMMIT lists, and by nothing else. Shards cannot be made again; they are reported.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"

namespace hekla::tools {

struct RepairReport {
  std::vector<std::string> done;
  std::vector<std::string> left;  // what is damaged and stays so
};

// `root`: a run's folder. `dry_run`: says what would be done. NOT_FOUND: no such folder.
Result<RepairReport> repair_run(Io& io, const std::string& root, bool dry_run);

}  // namespace hekla::tools
