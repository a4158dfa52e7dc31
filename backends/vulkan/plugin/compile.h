// SPDX-License-Identifier: Apache-2.0
// From a program to its launch program.
#pragma once

#include <memory>

#include "backends/pjrt/backend.h"
#include "backends/vulkan/codegen/target.h"
#include "backends/vulkan/launch/launch_program.h"

namespace hekla::vulkan {

// One input per flat parameter of the entry function and one output per flat result; tokens have
// zero bytes. Kernels become shaders for `target`; one that the target cannot run, and operations
// without kernel, become host steps, which verbose logs name with their reason. Loops and branches
// decide on the device, or on the host where a host step is in them. UNIMPLEMENTED lists all that
// cannot be done at all, and with `fail_on_fallback` all that would run on the host. Pure but for
// the log; `memory_limit_bytes` bounds the memory of each host step.
// `plan` is plan_program's for this target or another; null: it is made.
Result<std::shared_ptr<const LaunchProgram>> compile_program(
    const pjrt::CompileRequest& request, const Target& target, int64_t memory_limit_bytes,
    bool fail_on_fallback = false, std::shared_ptr<const plan::LaunchPlan> plan = nullptr);

// Devices that meet in a program come to its collectives in the order of the plan and by its steps:
// those of several kinds have one, with kernels of their own.
Result<std::shared_ptr<const plan::LaunchPlan>> plan_program(const pjrt::CompileRequest& request,
                                                             const Target& target);

}  // namespace hekla::vulkan
