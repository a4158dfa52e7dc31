// SPDX-License-Identifier: Apache-2.0
// check_plan: whether a launch plan stays within its memory. Pure.
#pragma once

#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/base/status.h"

namespace hekla::cpu {

// INTERNAL, naming the slice: it is outside of the memory it names, or of another size than what it
// is for.
Status check_plan(const plan::LaunchPlan& plan);

// Per kernel: whether some step gives one memory as an operand that is read and as one that is
// written, also once an output has taken the memory of its donated input.
std::vector<bool> kernels_in_place(const plan::LaunchPlan& plan);

}  // namespace hekla::cpu
