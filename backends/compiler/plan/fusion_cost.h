// SPDX-License-Identifier: Apache-2.0
// What Fusion weighs: the cost of an operation, how often another one asks for its elements, and
// whether for the same ones.
//
// Estimates from shapes and opcodes alone. Pure; any thread; nothing fails.
#pragma once

#include "backends/compiler/lower/lower.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

// Operations of one kernel. Compile time grows with it, and a fused chain of this length is bound
// by arithmetic, not by memory.
inline constexpr int kMaxOperations = 400;

// Of an element of the result: roughly, in additions.
double cost_of(const ir::Operation& op, lower::Role role);

// How often, on average, an operation reads an element of an operand per element of its result,
// scaled by the sizes: above 1 where elements are read again and again.
double repeats_of(const ir::Operation& user, lower::Role role, const ir::Value& value);

// Whether element i of the result needs element i of the operand.
bool keeps_elements(const ir::Operation& user, lower::Role role, const ir::Value& value);

// Whether what is contiguous in the result is not in the operand.
bool is_strided_transpose(const ir::Operation& op);

}  // namespace hekla::plan
