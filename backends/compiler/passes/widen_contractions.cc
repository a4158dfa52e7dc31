// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/passes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;
using Predicate = std::function<bool(const ir::Operation&)>;

void widen(ir::Block& block, const Predicate& is_wanted, const Predicate& is_kept) {
  std::vector<ir::Operation*> narrow;
  for (const auto& op : block.operations()) {
    for (size_t i = 0; i < op->region_count(); ++i) {
      for (const auto& inner : op->region(i).blocks()) widen(*inner, is_wanted, is_kept);
    }
    if (op->code() != OpCode::kDotGeneral && op->code() != OpCode::kConvolution) continue;
    const ir::Type& type = op->result()->type();
    if (!type.is_static_tensor() || type.quantization() != nullptr) continue;
    if (type.dtype() == DType::kBF16 || type.dtype() == DType::kF16) narrow.push_back(op.get());
  }
  for (ir::Operation* op : narrow) {
    if (is_kept && is_kept(*op)) continue;
    const ir::Type type = op->result()->type();
    auto wide = std::make_unique<ir::Operation>(
        op->code(), op->operands(),
        std::vector<ir::Type>{ir::Type::tensor(DType::kF32, type.dims())}, op->attributes(),
        op->location());
    ir::Operation* sum = block.insert_before(op, std::move(wide));
    if (!is_wanted(*sum)) {
      block.erase(sum);
      continue;
    }
    ir::Operation* rounded = block.insert_before(
        op, std::make_unique<ir::Operation>(
                OpCode::kConvert, std::vector<ir::Value*>{sum->result()},
                std::vector<ir::Type>{type}, ir::AttributeMap(), op->location()));
    op->result()->replace_all_uses_with(rounded->result());
    block.erase(op);
  }
}

}  // namespace

void widen_contractions(ir::Module& module, const Predicate& is_wanted, const Predicate& is_kept) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) widen(*block, is_wanted, is_kept);
  }
}

}  // namespace hekla::passes
