// SPDX-License-Identifier: Apache-2.0
// Runs a launch plan on the host, kernels point by point: the plan's oracle in tests.
#pragma once

#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/base/host_array.h"

namespace hekla::testing {

// Points times instructions of all kernel steps, loops counted once: how long `run_plan` takes.
double plan_work(const plan::LaunchPlan& plan);

// One array of bytes per output. The arena is filled with a pattern first, so that what is read
// before it was written shows. Errors of kernels that leave their buffers and of host steps.
Result<std::vector<std::vector<std::byte>>> run_plan(const plan::LaunchPlan& plan,
                                                     const std::vector<HostArray>& inputs);

}  // namespace hekla::testing
