// SPDX-License-Identifier: Apache-2.0
// Row groups: steps that hand each other rows become one RowsStep.
//
// Softmax, layer norm, cross entropy and their gradients are chains of reductions along rows and
// elementwise work with what they give. Each step reads and writes rows that only the same row of
// the others touches, so a few rows may go through all steps while they are in the cache. Products
// whose rows these are join them: the scores of attention, all queries by all keys, then need no
// memory but for a few rows. A product whose other operand is too large to be read again
// for each few rows leads what follows it: it runs as a whole and hands on the rows that it has
// ended. Nothing is matched by name: what kernels touch says it (kernel/row_access.h). The same
// kernels compute the same points, so no bit depends on it. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

enum class RowGroups : uint8_t {
  kNone,
  kWherePays,  // where they save more traffic than a launch of many small steps would notice
  kAll,
  kAllLed,  // all, and of those that begin with a contraction the ones that it leads
};

// Run before assign_arenas and after whatever moves or renames steps. Steps between those of a
// group that depend on none of them go before it, others after it.
void group_rows(LaunchPlan& plan, RowGroups which);

}  // namespace hekla::plan
