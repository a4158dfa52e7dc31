// SPDX-License-Identifier: Apache-2.0
// Planner: a flat module becomes a launch plan.
//
// Fusion decides what is in memory; each stored value becomes a kernel step, an operation without
// kernel a host step, `while`, `if` and `case` steps with steps inside. Every stored value gets a
// buffer of its own first; memory.h then shares the arena among them. Pure.
#pragma once

#include "backends/compiler/plan/device_traits.h"
#include "backends/compiler/plan/fusion.h"
#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/row_groups.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

// Whether reductions are done by trees of points, which gives sums other bits.
enum class TreeReductions : uint8_t {
  kNone,           // in the order of the elements
  kDevice,         // as the device's traits say
  kWherePossible,  // on devices with teams
};

// Switches for tests and for the search of a wrong result; none but tree_reductions and
// small_limits changes a bit of any result.
struct PlanOptions {
  // Off: every operation is a kernel of its own, but constants and iotas, and no ContractionStep.
  bool fuse = true;
  // Off: every value has bytes of its own in the arena, and nothing is updated in place.
  bool reuse_memory = true;
  // Which row groups there are (row_groups.h), where the device gains by them.
  RowGroups row_groups = RowGroups::kWherePays;
  // See FusionOptions.
  StoredTransposes stored_transposes = StoredTransposes::kWherePays;
  TreeReductions tree_reductions = TreeReductions::kDevice;
  // Off: collectives stand where the program has them, and nothing runs beside them.
  bool overlap_collectives = true;
  // Scalar instructions of a kernel that computes several operations; a longer one is cut into
  // several kernels, with the same bits.
  size_t max_instructions = 20'000;
  // See lower::LowerOptions; other bits.
  bool small_limits = false;
};

// `module`: calls inlined (passes.h), verified; only its entry function is looked at.
// UNIMPLEMENTED: types that have no place in a plan (dynamic shapes, tuples).
Result<LaunchPlan> make_plan(const ir::Module& module, const PlanOptions& options = {},
                             const DeviceTraits& traits = {});

// A plan with one host step that runs the whole program; any program has one, as long as the sizes
// of its inputs and outputs are known.
Result<LaunchPlan> make_host_plan(std::shared_ptr<const ir::Module> module, std::string reason);

// Bytes of a value in memory, 0 for tokens.
int64_t byte_size(const ir::Type& type);

}  // namespace hekla::plan
