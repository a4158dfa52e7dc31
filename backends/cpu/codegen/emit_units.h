// SPDX-License-Identifier: Apache-2.0
// What functions of kernels and of loops (emit_loop.h) are made of: the head of a function, and the
// units of a kernel where the builder stands. Used by emit_kernel.cc and emit_loop.cc only.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <string>
#include <vector>

#include "backends/cpu/codegen/emit_body.h"

namespace hekla::cpu {

struct FunctionStart {
  llvm::Function* function = nullptr;
  std::vector<llvm::Value*> operands;  // pointers
};

// `void symbol(const void* const* operands, int64_t, int64_t)`, its operands loaded; the builder
// stands behind that.
FunctionStart begin_function(const Target& target, const std::string& symbol, size_t operand_count,
                             llvm::IRBuilder<>& builder, llvm::Module& module);

// The units [begin, end) of the kernel's schedule. The builder stands behind them afterwards.
void emit_units(const KernelCode& code, llvm::IRBuilder<>& builder,
                const std::vector<llvm::Value*>& operands, llvm::Value* begin, llvm::Value* end);

// All units; where they are at most `most_unrolled` vectors of points, these stand in the code one
// after the other. Their indices are constants then: of what depends on them nothing is left, and
// addresses tell what is where.
void emit_all_units(const KernelCode& code, llvm::IRBuilder<>& builder,
                    const std::vector<llvm::Value*>& operands, int64_t most_unrolled);

}  // namespace hekla::cpu
