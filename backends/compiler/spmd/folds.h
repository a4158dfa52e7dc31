// SPDX-License-Identifier: Apache-2.0
// Folds: what a reduction's body does to two values, where that is one operation on both.
//
// Of this folder alone. Pure functions; any thread.
#pragma once

#include <optional>

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// Whether it does no harm to fold a value twice.
bool is_idempotent(ir::OpCode code);

// What changes no value; of idempotent operations on numbers there is no need for one.
ir::Value* neutral(ir::GraphBuilder& g, ir::OpCode code, DType dtype, const Dims& dims);

// reduce_window whose results along a dimension are the folds of all elements up to their own, or
// from their own on: what cumsum and its like are written as.
struct RunningFold {
  ir::OpCode code = ir::OpCode::kAdd;
  bool is_reversed = false;
};
// Of an operand that is this long along dimension d. None where the initial value does more than
// begin: it stands in every window, in the padding.
std::optional<RunningFold> running_fold(const ir::Operation& op, size_t d, int64_t size);

}  // namespace hekla::spmd
