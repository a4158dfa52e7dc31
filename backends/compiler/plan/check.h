// SPDX-License-Identifier: Apache-2.0
// check: whether a launch plan says what may be run. For plans of this process a proof, for those
// from a disk (pack.h) a guard: whoever runs plans asks first. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/base/status.h"

namespace hekla::plan {

// INTERNAL, naming step and slice: memory that is not there or may not be written, a slice of
// another size than what it is for, a kernel or contraction that is not there, loops and branches
// without what they go by, host steps whose program has other operands, row groups of other steps
// than kernels, a start without its done or with memory that a step in between changes or looks at,
// an input that two outputs take or that has another size.
Status check(const LaunchPlan& plan);

}  // namespace hekla::plan
