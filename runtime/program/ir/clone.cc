// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/clone.h"

namespace hekla::ir {

std::unique_ptr<Operation> clone_operation(const Operation& op, ValueMap& map) {
  std::vector<Value*> operands;
  operands.reserve(op.operand_count());
  for (Value* value : op.operands()) {
    auto it = map.find(value);
    operands.push_back(it == map.end() ? value : it->second);
  }
  std::unique_ptr<Operation> copy =
      op.code() == OpCode::kUnknown
          ? Operation::unknown(std::string(op.name()), std::move(operands), op.result_types(),
                               op.attributes(), op.location())
          : std::make_unique<Operation>(op.code(), std::move(operands), op.result_types(),
                                        op.attributes(), op.location());
  for (size_t i = 0; i < op.result_count(); ++i) map[op.result(i)] = copy->result(i);
  for (size_t i = 0; i < op.region_count(); ++i) {
    clone_region(op.region(i), copy->add_region(), map);
  }
  return copy;
}

void clone_region(const Region& from, Region& to, ValueMap& map) {
  for (const auto& block : from.blocks()) {
    Block& copy = to.add_block();
    for (size_t i = 0; i < block->argument_count(); ++i) {
      map[block->argument(i)] = copy.add_argument(block->argument(i)->type());
    }
    for (const auto& op : block->operations()) copy.append(clone_operation(*op, map));
  }
}

std::unique_ptr<Module> clone_module(const Module& module) {
  auto copy = std::make_unique<Module>();
  copy->name = module.name;
  copy->attributes = module.attributes;
  copy->meshes = module.meshes;
  for (const auto& function : module.functions) {
    auto f = std::make_unique<Function>(function->name());
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

}  // namespace hekla::ir
