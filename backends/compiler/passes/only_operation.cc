// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/only_operation.h"

namespace hekla::passes {

using ir::OpCode;

std::optional<OpCode> only_operation(const ir::Region& region) {
  const ir::Block& block = region.front();
  if (block.operations().size() != 2 || block.argument_count() != 2) return std::nullopt;
  const ir::Operation& op = *block.operations().front();
  if (!ir::is_commutative_reducer(op.code())) return std::nullopt;
  const bool folds_both =
      (op.operand(0) == block.argument(0) && op.operand(1) == block.argument(1)) ||
      (op.operand(0) == block.argument(1) && op.operand(1) == block.argument(0));
  if (!folds_both || block.terminator()->operand(0) != op.result()) return std::nullopt;
  return op.code();
}

}  // namespace hekla::passes
