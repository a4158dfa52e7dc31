// SPDX-License-Identifier: Apache-2.0
// The compiler's entry: from a program to the launch plan of an executable.
//
// Pure: the same module and options give the same plan. The caller's module is not changed.
#pragma once

#include <memory>

#include "backends/compiler/ir/ir.h"
#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/planner.h"
#include "runtime/base/status.h"

namespace hekla {

struct CompileOptions {
  // Verify the module after every pass; the default in debug builds and those with sanitizers.
#ifdef HEKLA_CHECKS
  bool verify_passes = true;
#else
  bool verify_passes = false;
#endif
  plan::PlanOptions plan;
};

// `module` is verified. Programs that have no place in a plan of kernels (dynamic shapes, tuples
// inside) become one host step, whose reason says why. Host steps may still hold operations that
// the evaluator cannot run: ask its check_supported for each.
Result<std::shared_ptr<const plan::LaunchPlan>> compile_program(
    std::shared_ptr<const ir::Module> module, const CompileOptions& options = {});

}  // namespace hekla
