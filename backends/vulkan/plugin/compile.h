// SPDX-License-Identifier: Apache-2.0
// From a program to its launch program.
#pragma once

#include <memory>

#include "backends/pjrt/backend.h"
#include "backends/vulkan/device/plan.h"
#include "backends/vulkan/launch/steps.h"

namespace hekla::vulkan {

// One input per flat parameter of the entry function and one output per flat result; tokens have
// zero bytes. UNIMPLEMENTED lists all that cannot be done. Pure; `memory_limit_bytes` bounds the
// memory of host steps.
Result<std::shared_ptr<const LaunchProgram>> compile_program(const pjrt::CompileRequest& request,
                                                             const DevicePlan& plan,
                                                             int64_t memory_limit_bytes);

}  // namespace hekla::vulkan
