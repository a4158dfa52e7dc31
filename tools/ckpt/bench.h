// SPDX-License-Identifier: Apache-2.0
// `hekla ckpt bench`: what the disk gives, and what of it saves and restores reach.
//
// Interleaved, `repeat` times: a plain file written with direct I/O and synced, a committed step of
// the same bytes written by `ranks` threads as ranks of a group, both read again into memory, the
// step with every block verified. The best of each counts. Uses twice `bytes` of memory and of
// disk.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"

namespace hekla::tools {

struct BenchOptions {
  int64_t bytes = int64_t{1} << 30;
  int32_t ranks = 1;
  int repeat = 3;
  bool write = true;  // measured; a step is written in any case
  bool read = true;
};

struct BenchReport {
  int64_t bytes = 0;
  // Seconds, the shortest of the rounds; 0 where not measured.
  double raw_write = 0, save = 0, raw_read = 0, restore = 0;
  double save_cpu = 0, restore_cpu = 0;        // processor seconds of that round
  double spread_save = 0, spread_restore = 0;  // longest over shortest
};

// `folder` is made and must be empty or missing; what was written is removed. DATA_LOSS: what was
// read is not what was written.
Result<BenchReport> bench(Io& io, const std::string& folder, const BenchOptions& options);

}  // namespace hekla::tools
