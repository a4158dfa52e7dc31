// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/isolate.h"

#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/uses.h"

namespace hekla::passes {

using ir::OpCode;

Exposed expose_values(const ir::Module& module) {
  Exposed exposed{ir::clone_module(module), {}};
  ir::Function& entry = *exposed.module->entry();
  ir::Block& block = entry.body().front();
  std::vector<ir::Value*> results = block.terminator()->operands();
  for (const auto& op : block.operations()) {
    exposed.places.emplace_back();
    for (size_t i = 0; i < op->result_count(); ++i) {
      exposed.places.back().push_back(-1);
      if (!op->result(i)->type().is_static_tensor()) continue;
      exposed.places.back().back() = static_cast<int64_t>(results.size());
      results.push_back(op->result(i));
    }
  }
  block.terminator()->set_operands(results);
  std::vector<ir::Type> types;
  for (const ir::Value* value : results) types.push_back(value->type());
  entry.type = ir::Type::function(block.argument_types(), std::move(types));
  entry.result_attributes.resize(results.size());
  return exposed;
}

SingleOperation isolate_operation(const ir::Module& whole, const ir::Operation& op) {
  SingleOperation single;
  std::vector<const ir::Value*> used(op.operands().begin(), op.operands().end());
  const std::vector<ir::Value*> captured = ir::captured_values(op);
  used.insert(used.end(), captured.begin(), captured.end());
  bool calls = op.code() == OpCode::kFuncCall;
  for (size_t i = 0; i < op.region_count(); ++i) {
    ir::walk(op.region(i),
             [&](const ir::Operation& inner) { calls |= inner.code() == OpCode::kFuncCall; });
  }
  auto module = std::make_shared<ir::Module>();
  auto function = std::make_unique<ir::Function>("main");
  function->visibility = ir::Function::Visibility::kPublic;
  ir::Block& block = function->body().add_block();
  ir::ValueMap map;
  // Each operand has an argument of its own, also where two are one value.
  for (size_t i = 0; i < used.size(); ++i) {
    if (i >= op.operand_count() && map.contains(used[i])) continue;
    map[used[i]] = block.add_argument(used[i]->type());
    single.inputs.push_back(used[i]);
  }
  ir::Operation* copy = block.append(ir::clone_operation(op, map));
  for (size_t i = 0; i < op.operand_count(); ++i) copy->set_operand(i, block.argument(i));
  std::vector<ir::Value*> results;
  for (size_t i = 0; i < copy->result_count(); ++i) results.push_back(copy->result(i));
  block.append(OpCode::kFuncReturn, results, {});
  function->type = ir::Type::function(block.argument_types(), copy->result_types());
  function->argument_attributes.resize(single.inputs.size());
  function->result_attributes.resize(results.size());
  module->functions.push_back(std::move(function));
  if (calls) {
    const std::unique_ptr<ir::Module> all = ir::clone_module(whole);
    for (auto& other : all->functions) {
      if (other->visibility == ir::Function::Visibility::kPrivate) {
        module->functions.push_back(std::move(other));
      }
    }
  }
  single.module = std::move(module);
  return single;
}

}  // namespace hekla::passes
