// SPDX-License-Identifier: Apache-2.0
// Visits of the slices that steps name, for the passes over a launch plan that is being made.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

using SliceVisitor = std::function<void(Slice&, bool is_written)>;

// Before memory is assigned a buffer is a space and an index.
using Buffer = std::pair<Slice::Space, int32_t>;
inline Buffer buffer_of(const Slice& slice) { return {slice.space, slice.index}; }
struct BufferHash {
  size_t operator()(const Buffer& b) const {
    return static_cast<size_t>(b.second) * 4 + static_cast<size_t>(b.first);
  }
};

// Steps inside loops and branches are shared pointers to const for the users of a plan; while it is
// made nobody else has them.
LoopStep& mutable_loop(const std::shared_ptr<const LoopStep>& loop);
BranchStep& mutable_branch(const std::shared_ptr<const BranchStep>& branch);
RowsStep& mutable_rows(const std::shared_ptr<const RowsStep>& rows);

// The slices that a step itself names, not those of steps inside it, but for a RowsStep: it is one
// step to all that asks what happens before what.
void visit_own(Step& step, const std::vector<kernel::Kernel>& kernels, const SliceVisitor& visit);
// Every slice of a step and of the steps in it; of a loop the condition, the predicate and the
// body, in this order.
void visit_deep(Step& step, const std::vector<kernel::Kernel>& kernels, const SliceVisitor& visit);
void visit_deep(Steps& steps, const std::vector<kernel::Kernel>& kernels,
                const SliceVisitor& visit);
// A copy that shares no step with the original.
Steps copy_steps(const Steps& steps);
// Steps, those inside of loops and branches included.
int64_t count_steps(const Steps& steps);

}  // namespace hekla::plan
