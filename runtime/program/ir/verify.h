// SPDX-License-Identifier: Apache-2.0
// verify: whether a module is a well-formed StableHLO program.
//
// Checks structure (one block per region with a terminator, values defined before use and visible,
// calls that exist and do not recurse, types of arguments and returns), for every operation
// StableHLO's own constraints and that the declared result types agree with the inferred ones, and
// that meshes and shardings mean something and fit the types that they stand at.
// INVALID_ARGUMENT lists up to kMaxReportedProblems problems, a line each, with op and location.
// Run it on everything that comes from outside, and after passes in debug builds. Pure.
#pragma once

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir {

inline constexpr size_t kMaxReportedProblems = 20;

Status verify(const Module& module);

}  // namespace hekla::ir
