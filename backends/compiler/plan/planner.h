// SPDX-License-Identifier: Apache-2.0
// Planner: a flat module becomes a launch plan.
//
// Fusion decides what is in memory; each stored value becomes a kernel step, an operation without
// kernel a host step, `while`, `if` and `case` steps with steps inside. Every stored value gets a
// buffer of its own first; memory.h then shares arenas among them. Pure.
#pragma once

#include "backends/compiler/plan/device_traits.h"
#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/plan_options.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

// `module`: calls inlined (passes.h), verified; only its entry function is looked at.
// UNIMPLEMENTED: types that have no place in a plan (dynamic shapes, tuples). RESOURCE_EXHAUSTED: a
// value or temporary that is larger than any buffer of the device.
Result<LaunchPlan> make_plan(const ir::Module& module, const PlanOptions& options = {},
                             const DeviceTraits& traits = {});

// A plan with one host step that runs the whole program; any program has one, as long as the sizes
// of its inputs and outputs are known.
Result<LaunchPlan> make_host_plan(std::shared_ptr<const ir::Module> module, std::string reason);

// Bytes of a value in memory, 0 for tokens.
int64_t byte_size(const ir::Type& type);

}  // namespace hekla::plan
