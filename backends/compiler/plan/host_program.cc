// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/host_program.h"

#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/uses.h"

namespace hekla::plan {
HostProgram extract(const ir::Module& whole, const ir::Operation& op) {
  HostProgram extracted;
  std::vector<const ir::Value*> used(op.operands().begin(), op.operands().end());
  const std::vector<ir::Value*> captured = ir::captured_values(op);
  used.insert(used.end(), captured.begin(), captured.end());
  auto module = std::make_shared<ir::Module>();
  module->meshes = whole.meshes;
  auto function = std::make_unique<ir::Function>("main");
  function->visibility = ir::Function::Visibility::kPublic;
  ir::Block& block = function->body().add_block();
  ir::ValueMap map;
  std::vector<ir::Type> inputs;
  for (const ir::Value* value : used) {
    if (map.contains(value)) continue;
    map[value] = block.add_argument(value->type());
    inputs.push_back(value->type());
    extracted.inputs.push_back(value);
  }
  ir::Operation* copy = block.append(ir::clone_operation(op, map));
  std::vector<ir::Value*> results;
  for (size_t i = 0; i < copy->result_count(); ++i) results.push_back(copy->result(i));
  block.append(ir::OpCode::kFuncReturn, results, {}, {}, op.location());
  function->type = ir::Type::function(std::move(inputs), copy->result_types());
  function->argument_attributes.resize(extracted.inputs.size());
  function->result_attributes.resize(copy->result_count());
  module->functions.push_back(std::move(function));
  if (op.attribute("called_computations")) {
    const std::unique_ptr<ir::Module> all = ir::clone_module(whole);
    for (auto& other : all->functions) {
      if (whole.entry() == nullptr || other->name() != whole.entry()->name()) {
        other->visibility = ir::Function::Visibility::kPrivate;
        if (other->name() != "main") module->functions.push_back(std::move(other));
      }
    }
  }
  extracted.module = std::move(module);
  return extracted;
}

}  // namespace hekla::plan
