// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/only_operation.h"

namespace hekla::passes {

using ir::OpCode;

const ir::Operation* folding_operation(const ir::Block& block) {
  if (block.argument_count() != 2) return nullptr;
  const ir::Operation* op = block.terminator()->operand(0)->defining_op();
  if (op == nullptr || op->block() != &block || op->operand_count() != 2) return nullptr;
  const bool folds_both =
      (op->operand(0) == block.argument(0) && op->operand(1) == block.argument(1)) ||
      (op->operand(0) == block.argument(1) && op->operand(1) == block.argument(0));
  return folds_both ? op : nullptr;
}

std::optional<OpCode> only_operation(const ir::Region& region) {
  const ir::Block& block = region.front();
  const ir::Operation* op = folding_operation(block);
  if (op == nullptr || block.operations().size() != 2 || !ir::is_commutative_reducer(op->code())) {
    return std::nullopt;
  }
  return op->code();
}

}  // namespace hekla::passes
