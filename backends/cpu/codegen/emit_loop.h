// SPDX-License-Identifier: Apache-2.0
// emit_loop: a loop of a launch plan whose steps are small kernels, copies, loops and branches, as
// one function, for iterations that take no longer than calling their kernels would.
//
// `void symbol(const void* const* operands, int64_t, int64_t)`: one pointer to each buffer of
// `memory`, and as the last one a byte that is looked at in each iteration: once it is not 0 the
// function returns soon, with the loop done in part. The numbers mean nothing. Kernels stand in it
// as emit_kernel has them, all their units one after the other, with the same bits; what is known
// of the memory that they share goes with loads and stores, so that passes (jit/object_code.h) keep
// in registers what one kernel hands another. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"
#include "backends/cpu/codegen/emit_kernel.h"
#include "backends/cpu/codegen/loop_memory.h"

namespace hekla::cpu {

struct LoopKernel {
  int32_t number = 0;  // of the plan
  std::shared_ptr<const KernelPlan> plan;
  bool may_alias = false;  // see KernelCode
};

struct LoopCode {
  const plan::LaunchPlan& plan;
  const plan::Step& loop;  // a RepeatStep or a WhileStep of the plan
  const LoopMemory& memory;
  const std::vector<LoopKernel>& kernels;  // all that run in it and have points
  const Target& target;
  int64_t most_unrolled = 0;  // vectors of a kernel, see emit_all_units
};

// Adds the function to `module`, whose triple and data layout are set.
void emit_loop(const LoopCode& code, const std::string& symbol, llvm::Module& module);

}  // namespace hekla::cpu
