// SPDX-License-Identifier: Apache-2.0
// emit_kernel: a kernel as LLVM IR in explicit vector code, to be compiled without passes.
//
// The function is `void symbol(const void* const* operands, int64_t begin, int64_t end)` and runs
// the units [begin, end) of the kernel's schedule. It calls nothing but the helpers that jit/ links
// and touches no byte outside of the operands. Floats are strict: no contraction but Op::kFma,
// denormals as they are.
#pragma once

#include <string>

#include "backends/compiler/kernel/kernel.h"
#include "backends/cpu/codegen/lane_analysis.h"
#include "backends/cpu/codegen/schedule.h"
#include "backends/cpu/codegen/target.h"

namespace llvm {
class Module;
}

namespace hekla::cpu {

// Whether launches may give one memory as an operand that is read and as one that is written, or
// the kernel itself updates an operand: then no point may run twice.
bool updates_in_place(const kernel::Kernel& kernel);

struct KernelCode {
  const kernel::Kernel& kernel;
  const KernelPlan& plan;
  const Target& target;
  bool may_alias = false;
};

// Adds the function to `module`, whose triple and data layout are set. The body verifies and the
// grid has no zero.
void emit_kernel(const KernelCode& code, const std::string& symbol, llvm::Module& module);

}  // namespace hekla::cpu
