// SPDX-License-Identifier: Apache-2.0
// StepDetails: what a profiler shows of the steps of a plan (runtime/base/trace.h).
//
// Made when first asked for and kept, since a step runs many times. Thread-safe.
#pragma once

#include <mutex>
#include <unordered_map>

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/base/trace.h"

namespace hekla::plan {

class StepDetails {
 public:
  // `step` is one of the plan's and lives as long as this object. Its name is the kernel's or the
  // operation's. Stats: "long_name" (to_string), "tf_op" and "source" (the operation that the
  // program has, where known), "bytes_accessed" (of all it names; not of loops), "flops" (of
  // contractions).
  TraceDetailRef of(const Step& step, const LaunchPlan& plan);

 private:
  std::mutex mutex_;
  std::unordered_map<const Step*, TraceDetailRef> known_;  // guarded by mutex_
};

}  // namespace hekla::plan
