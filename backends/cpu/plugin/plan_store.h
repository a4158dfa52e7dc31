// SPDX-License-Identifier: Apache-2.0
// Launch plans on disk, so that a second process need not make them again.
//
// A plan is found by the program's fingerprint and by the build of the library that made it: any
// other build makes its own. Plans with host steps or with more than 4 MiB of bytes are not kept.
// Thread-safe; nothing here fails a compilation.
#pragma once

#include <memory>
#include <string>

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/base/file_cache.h"

namespace hekla::cpu {

// The identity of the library that holds this code, which the linker wrote; empty if it did not.
std::string build_id();

class PlanStore {
 public:
  // An empty folder or build: keeps nothing.
  PlanStore(const std::string& folder, std::string build);

  // Null: not there, or `fingerprint` is empty.
  std::shared_ptr<const plan::LaunchPlan> load(const std::string& fingerprint) const;
  void store(const std::string& fingerprint, const plan::LaunchPlan& plan) const;

 private:
  std::string key(const std::string& fingerprint) const;

  const std::string build_;
  std::unique_ptr<FileCache> cache_;  // null: nothing is kept
};

}  // namespace hekla::cpu
