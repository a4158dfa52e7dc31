// SPDX-License-Identifier: Apache-2.0
// Four processes save; one is killed at its n-th file or store call, for all n and all ranks. The
// restart must find the previous or the new step, bit for bit, and save again. What is saved is a
// SweptSave's to say.
//
//   PROGRAM                     a quick part of all points
//   PROGRAM --points=10000      that many; beyond all there are, seeds repeat
//
// Each point runs in a process of its own, several side by side. A point that fails prints its
// number: --only=N repeats it. For main programs of tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
#include "runtime/rendezvous/group.h"

namespace hekla::checkpoint {

class SweptSave {
 public:
  static constexpr int kWorld = 4;

  virtual ~SweptSave() = default;
  // Step 1, whole, by this process.
  virtual Status prepare(Io& io, const std::string& root) = 0;
  // This process's part of a step; the values of a step are always the same.
  virtual Status save(Io& io, rendezvous::Group& group, const std::string& root, int64_t step,
                      bool overwrite) = 0;
  // Another step, whole, by this process.
  virtual Status save_next(Io& io, const std::string& root, int64_t step) = 0;
  // Whether all valid steps hold their values; the newest, -1 if there is none.
  virtual Result<int64_t> check(Io& io, const std::string& root) = 0;
};

// Runs the sweep's test and gives main's exit status. `quick_points`: without --points.
int run_kill_sweep(int argc, char** argv, std::unique_ptr<SweptSave> save, int64_t quick_points);

}  // namespace hekla::checkpoint
