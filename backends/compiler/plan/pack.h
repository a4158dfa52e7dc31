// SPDX-License-Identifier: Apache-2.0
// Launch plans as bytes, so that another process need not make them again.
//
// The form belongs to one build: a reader of another may see other numbers of operations and types.
// Whoever keeps the bytes says which build wrote them. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/base/status.h"

namespace hekla::plan {

// nullopt: a plan with a host step, which holds a program.
std::optional<std::vector<std::byte>> pack(const LaunchPlan& plan);
// DATA_LOSS for bytes that pack did not write; kernels are verified, slices are not (a back end
// checks them as those of any plan).
Result<LaunchPlan> unpack(std::span<const std::byte> bytes);

}  // namespace hekla::plan
