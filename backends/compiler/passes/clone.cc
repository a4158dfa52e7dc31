// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/clone.h"

namespace hekla::passes {

std::unique_ptr<ir::Operation> clone_operation(const ir::Operation& op, ValueMap& map) {
  std::vector<ir::Value*> operands;
  operands.reserve(op.operand_count());
  for (ir::Value* value : op.operands()) {
    auto it = map.find(value);
    operands.push_back(it == map.end() ? value : it->second);
  }
  std::unique_ptr<ir::Operation> copy =
      op.code() == ir::OpCode::kUnknown
          ? ir::Operation::unknown(std::string(op.name()), std::move(operands), op.result_types(),
                                   op.attributes(), op.location())
          : std::make_unique<ir::Operation>(op.code(), std::move(operands), op.result_types(),
                                            op.attributes(), op.location());
  for (size_t i = 0; i < op.result_count(); ++i) map[op.result(i)] = copy->result(i);
  for (size_t i = 0; i < op.region_count(); ++i) {
    clone_region(op.region(i), copy->add_region(), map);
  }
  return copy;
}

void clone_region(const ir::Region& from, ir::Region& to, ValueMap& map) {
  for (const auto& block : from.blocks()) {
    ir::Block& copy = to.add_block();
    for (size_t i = 0; i < block->argument_count(); ++i) {
      map[block->argument(i)] = copy.add_argument(block->argument(i)->type());
    }
    for (const auto& op : block->operations()) copy.append(clone_operation(*op, map));
  }
}

std::unique_ptr<ir::Module> clone_module(const ir::Module& module) {
  auto copy = std::make_unique<ir::Module>();
  copy->name = module.name;
  copy->attributes = module.attributes;
  copy->meshes = module.meshes;
  for (const auto& function : module.functions) {
    auto f = std::make_unique<ir::Function>(function->name());
    f->visibility = function->visibility;
    f->type = function->type;
    f->argument_attributes = function->argument_attributes;
    f->result_attributes = function->result_attributes;
    f->attributes = function->attributes;
    f->location = function->location;
    ValueMap map;
    clone_region(function->body(), f->body(), map);
    copy->functions.push_back(std::move(f));
  }
  return copy;
}

}  // namespace hekla::passes
