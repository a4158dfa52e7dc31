// SPDX-License-Identifier: Apache-2.0
// The planner itself, whose parts are in planner.cc (programs, blocks, steps on the host),
// planner_kernels.cc (what becomes kernels) and planner_loops.cc (loops and branches). Owned by
// make_plan; for one thread; looks at a module that outlives it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/compiler/lower/lower.h"
#include "backends/compiler/lower/pointwise_loop.h"
#include "backends/compiler/plan/device_traits.h"
#include "backends/compiler/plan/fusion.h"
#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/plan_options.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

class Planner {
 public:
  // `cuts`: see Fusion; grows by what would make the kernels short enough that are too long.
  Planner(const ir::Module& module, const PlanOptions& options, const DeviceTraits& traits,
          std::unordered_set<const ir::Operation*>& cuts)
      : module_(module), options_(options), traits_(traits), known_cuts_(cuts), cuts_(cuts) {}

  Result<LaunchPlan> run();

 private:
  using Space = Slice::Space;

  // Memory.
  Slice new_buffer(int64_t bytes) {
    largest_ = std::max(largest_, bytes);
    return {Space::kArena, next_buffer_++, 0, bytes};
  }
  bool is_too_large(int64_t bytes) const {
    return traits_.max_buffer_bytes > 0 && bytes > traits_.max_buffer_bytes;
  }
  Slice add_constant(HostArray array) {
    const Slice slice{Space::kConstant, static_cast<int32_t>(plan_.constants.size()), 0,
                      array.size_bytes()};
    largest_ = std::max(largest_, slice.bytes);
    plan_.constants.push_back(std::move(array));
    return slice;
  }
  void copy(const Slice& from, const Slice& to, Steps& steps) {
    if (from == to || to.bytes == 0) return;
    steps.push_back({CopyStep{from, to}});
  }
  Status too_large(std::string_view what, int64_t bytes) const;
  // Of what was made for the operation.
  Status check_sizes(const ir::Operation& op) const;
  // Where a value is in memory; constants get there when they are asked for.
  Result<Slice> slice_of(const ir::Value& value);
  // The buffer that a new value is written to.
  Slice make_slice(const ir::Value& value);

  // Blocks.
  Status plan_block(const ir::Block& block, Steps& steps,
                    std::unordered_set<const ir::Value*> unwanted = {});
  Status plan_operation(const ir::Operation& op, const Fusion& fusion, Steps& steps);

  // Steps on the host, and collectives.
  // `step`: a HostStep or a StartStep.
  Status fill_host_step(const ir::Operation& op, auto& step);
  Status plan_host_step(const ir::Operation& op, Steps& steps);
  Status plan_collective(const ir::Operation& op, Steps& steps);

  // Kernels.
  lower::LowerOptions lower_options() const { return plan::lower_options(options_, traits_); }
  void add_decision(const ir::Operation& op, const Fusion& fusion);
  void add_decision(Decision decision);
  Status plan_contraction(const ir::Operation& op, const Fusion& fusion, Steps& steps);
  Status plan_kernel(const ir::Operation& op, const std::vector<const ir::Value*>& outputs,
                     const Fusion& fusion, Steps& steps);
  // A kernel of several outputs becomes one for each. Of another, which is `size` instructions
  // long, values are stored so that what is computed between them is as much as fits a kernel.
  void cut(const std::vector<const ir::Operation*>& inside,
           const std::vector<const ir::Value*>& outputs, size_t size);
  // `result`, which `op` updates in part, begins as a copy of `from` or takes its memory over.
  Status copy_or_take(const ir::Operation& op, const ir::Value& from, const ir::Value& result,
                      const Fusion& fusion, Steps& steps);
  Status add_kernel(lower::LoweredKernel lowered, Steps& steps,
                    const std::vector<Slice>& temporaries = {},
                    const std::vector<Slice>& constants = {});
  // Whether `op` is the last to use the memory of `value`, which it may then overwrite: its
  // operand, or a value that the regions of a branch use.
  bool may_overwrite(const ir::Operation& op, const ir::Value& value, const Fusion& fusion);
  // Whether `reader`, of the same block, has read all that it reads when `op` begins.
  bool has_run_before(const ir::Operation& reader, const ir::Operation& op, const Fusion& fusion);
  // Whether the result of `op` may have the memory of `value` by it.
  bool may_take(const ir::Operation& op, const ir::Value& value, const ir::Value& result,
                const Fusion& fusion) {
    return !wanted_.contains(&result) && may_overwrite(op, value, fusion);
  }
  int64_t order_of(const ir::Operation& op);
  Status plan_update(const ir::Operation& op, const Fusion& fusion, Steps& steps);

  // Loops and branches.
  // Copies each of `from` to the slice of the same number in `to`, as if all at once.
  void copy_all(const std::vector<Slice>& from, const std::vector<Slice>& to, Steps& steps);
  // How many iterations of a loop one kernel may do, of `count`; 0: none.
  Result<int64_t> iterations_at_once(const lower::PointwiseLoop& loop, int64_t count) const;
  // All iterations, or as many as may be at once, as one kernel; false: it takes steps.
  Result<bool> plan_pointwise_loop(const ir::Operation& op, int64_t count, const Fusion& fusion,
                                   Steps& steps);
  // Carried value `i` of the loop stays what it is, in one slice before, in and after the loop.
  void keep_carried(const ir::Operation& loop, size_t i, const Slice& slice, const Fusion& fusion);
  Status plan_while(const ir::Operation& op, const Fusion& fusion, Steps& steps);
  // The value from outside whose memory the result of a branch takes over, since at least half of
  // the regions give it back as it is or with updates in place; null: there is none.
  const ir::Value* taken_by(const ir::Operation& op, size_t result, const Fusion& fusion);
  Status plan_branch(const ir::Operation& op, const Fusion& fusion, Steps& steps);

  const ir::Module& module_;
  const PlanOptions options_;
  const DeviceTraits traits_;
  const std::unordered_set<const ir::Operation*> known_cuts_;
  std::unordered_set<const ir::Operation*>& cuts_;
  LaunchPlan plan_;
  std::unordered_map<const ir::Value*, Slice> slices_;
  std::unordered_map<const ir::Value*, Slice> wanted_;  // outputs, by the value returned first
  std::unordered_set<const ir::Value*> shared_;         // in slices that other values have as well
  // Values from outside that a branch takes over, and the block of it that is being planned: the
  // last to use them.
  std::unordered_map<const ir::Value*, const ir::Block*> lent_;
  std::unordered_map<std::string, int32_t> kernels_;
  std::unordered_map<const ir::Block*, std::unordered_map<const ir::Operation*, int64_t>> orders_;
  int32_t next_buffer_ = 0;
  int64_t largest_ = 0;  // bytes of a buffer
};

}  // namespace hekla::plan
