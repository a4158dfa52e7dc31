// SPDX-License-Identifier: Apache-2.0
// The compiler's entry: from a program to the launch plan of an executable.
//
// Pure: the same module and options give the same plan. The caller's module is not changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/planner.h"
#include "backends/compiler/spmd/partition_schedule.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla {

struct CompilerOptions {
  // Verify the module after every pass; the default in debug builds and those with sanitizers.
#ifdef HEKLA_CHECKS
  bool verify_passes = true;
#else
  bool verify_passes = false;
#endif
  plan::PlanOptions plan;
  // What compile_program does not see: partition_program comes before it.
  spmd::PartitionSchedule partition;
  // Not 0, for tests: what is decided by sizes and devices, schedules of kernels, some of the plan
  // options and the traits as other devices have them, is drawn from all that is right on this one,
  // differently for each number. The bits are the same.
  uint64_t schedule_seed = 0;
  // What contractions of f32 that name no algorithm and ask for the precision DEFAULT are computed
  // by, a name of lower::f32_algorithm; empty: f32 is f32. Other bits.
  std::string f32_algorithm;
};

// `module` is verified. INVALID_ARGUMENT: an algorithm that is not known. Programs that have no
// place in a plan of kernels (dynamic shapes, tuples inside) become one host step, whose reason
// says why. Host steps may still hold operations that the evaluator cannot run: ask its
// check_supported for each.
Result<std::shared_ptr<const plan::LaunchPlan>> compile_program(
    std::shared_ptr<const ir::Module> module, const CompilerOptions& options = {},
    const plan::DeviceTraits& traits = {});

}  // namespace hekla
