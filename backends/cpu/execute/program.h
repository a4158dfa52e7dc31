// SPDX-License-Identifier: Apache-2.0
// Program: a launch plan with its kernels as native code, ready to run any number of times at once.
//
// Immutable. It knows nothing of devices and buffers: a launch gives addresses. Steps run in the
// plan's order on the caller's thread; large kernels and copies are split over the thread pool, and
// loops of small kernels are one function each.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/compiler/plan/plan_options.h"
#include "backends/compiler/plan/step_details.h"
#include "backends/cpu/contraction/contraction.h"
#include "backends/cpu/execute/persistent_loops.h"
#include "backends/cpu/execute/row_blocks.h"
#include "backends/cpu/jit/kernel_compiler.h"
#include "backends/reference/launch_context.h"

namespace hekla {
class SerialQueue;
}

namespace hekla::cpu {

struct LaunchMemory {
  // As many as the plan has, each of the plan's size. Outputs may be the inputs that the plan's
  // output_input names; no other memory is shared.
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::vector<std::byte*> arenas;  // of Program::arenas bytes each, aligned to 64
};

// `cancelled` is looked at between steps, iterations of loops, pieces of a split kernel or copy,
// blocks of rows and blocks of a contraction: CANCELLED soon after it becomes true. What is not cut
// ends first: one unit of a kernel (the sum of a whole row), and one operation of a host step,
// LAPACK's too. The memory limit is that of each host step.
struct RunOptions : reference::LaunchContext {
  // Whether work may be split over the pool.
  bool is_parallel = false;
  // Where collectives wait for peers; null: a launch of one device.
  SerialQueue* communication_lane = nullptr;
};

// The row groups of a plan that run block by block.
using RowGroups = std::unordered_map<const plan::RowsStep*, PreparedRows>;

// A loop that is one function: that, and what buffers it is given.
struct LoopFunction {
  KernelFunction function = nullptr;
  std::shared_ptr<const LoopMemory> memory;
};
using LoopCodes = std::unordered_map<const void*, LoopFunction>;  // by RepeatStep or WhileStep

class Program {
 public:
  // Compiles the plan's kernels. INTERNAL: the plan names memory that it does not have.
  // `schedule_seed`: see plan_kernel, PreparedContraction and find_persistent_loops.
  static Result<std::shared_ptr<const Program>> create(
      std::shared_ptr<const plan::LaunchPlan> plan, KernelCompiler& compiler,
      uint64_t schedule_seed = 0, plan::PersistentLoops loops = plan::PersistentLoops::kWherePays);

  const plan::LaunchPlan& plan() const { return *plan_; }
  const CompiledKernels& code() const { return *code_; }
  // What was compiled, in the order of `code`: the plan's kernels, then more forms of some.
  const std::vector<KernelRequest>& requests() const { return requests_; }
  const FoundLoops& loops() const { return loops_; }
  const std::vector<PreparedContraction>& contractions() const { return contractions_; }
  // What a launch needs of the plan's arenas: less where all rows go a few at a time.
  std::vector<int64_t> arenas() const;
  int64_t arena_bytes() const;  // of all
  // How long a launch takes on one thread; a guess where a loop's trips are not known. Host steps
  // count as a millisecond.
  double estimated_ns() const { return estimated_ns_; }
  int64_t host_step_count() const { return host_steps_; }
  // Host steps that ran so far, of all launches.
  int64_t host_steps_run() const { return host_steps_run_.load(std::memory_order_relaxed); }

  // The error of the first host step that fails, with its name.
  Status run(const LaunchMemory& memory, const RunOptions& options) const;

 private:
  Program(std::shared_ptr<const plan::LaunchPlan> plan) : plan_(std::move(plan)) {}
  class Estimate;
  Status compile(KernelCompiler& compiler, uint64_t schedule_seed, plan::PersistentLoops loops);

  const std::shared_ptr<const plan::LaunchPlan> plan_;  // shared with whoever shows it
  std::shared_ptr<const CompiledKernels> code_;
  std::vector<KernelRequest> requests_;
  FoundLoops loops_;
  LoopCodes loop_codes_;
  std::vector<PreparedContraction> contractions_;     // those of the plan
  std::deque<PreparedContraction> row_contractions_;  // those in row groups
  RowGroups row_groups_;
  int vector_bits_ = 0;  // of the instructions
  double estimated_ns_ = 0;
  int64_t host_steps_ = 0;
  mutable std::atomic<int64_t> host_steps_run_ = 0;
  mutable plan::StepDetails details_;
};

}  // namespace hekla::cpu
