// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/placements.h"

#include <string>
#include <vector>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::pjrt {
namespace {

using ir::OpCode;

constexpr std::string_view kMemoryKind = "mhlo.memory_kind";

std::string text_of(const ir::Attribute& attribute) {
  const auto* text = attribute.get<ir::StringValue>();
  return text == nullptr ? std::string() : text->value;
}

std::string frontend_attribute(const ir::Operation& op, std::string_view name) {
  const auto* all = op.attribute("mhlo.frontend_attributes").get<ir::DictionaryValue>();
  const ir::Attribute* one = all == nullptr ? nullptr : all->find(name);
  return one == nullptr ? std::string() : text_of(*one);
}

bool is_custom_call(const ir::Operation& op, std::string_view target) {
  return op.code() == OpCode::kCustomCall && ir::text_value(op, "call_target_name") == target;
}

bool is_placement(const ir::Operation& op) {
  return is_custom_call(op, "annotate_device_placement") && op.operand_count() == 1 &&
         op.result_count() == 1 && op.operand(0)->type() == op.result()->type();
}

// Gives its operands back, whatever they are.
bool passes_on(const ir::Operation& op) {
  return op.code() == OpCode::kOptimizationBarrier || op.code() == OpCode::kSdyShardingConstraint ||
         is_custom_call(op, "Sharding");
}

const ir::Function* callee_of(const ir::Module& module, const ir::Operation& op) {
  if (op.code() != OpCode::kFuncCall) return nullptr;
  const auto* symbol = op.attribute("callee").get<ir::SymbolValue>();
  const ir::Function* function = symbol == nullptr ? nullptr : module.find(symbol->root);
  return function == nullptr || function->is_declaration() ? nullptr : function;
}

// The kind of memory that a value of `function` was last told; empty: none.
std::string placement_of(const ir::Module& module, const ir::Function& function,
                         const ir::Value* value) {
  // Each step goes up in the program or into a callee, but a program may call itself.
  constexpr int kMostSteps = 1000;
  const ir::Function* in = &function;
  for (int step = 0; step < kMostSteps; ++step) {
    const ir::Operation* op = value->defining_op();
    const auto index = static_cast<size_t>(value->index());
    if (op == nullptr) {
      const bool is_argument = in == module.entry() && value->argument_of() == &in->body().front();
      return is_argument && index < in->argument_attributes.size()
                 ? text_of(in->argument_attributes[index].get(kMemoryKind))
                 : std::string();
    }
    if (is_placement(*op)) return frontend_attribute(*op, "_xla_buffer_placement");
    if (const ir::Function* callee = callee_of(module, *op)) {
      const ir::Operation* end = callee->body().front().terminator();
      if (end == nullptr || index >= end->operand_count()) return {};
      in = callee;
      value = end->operand(index);
    } else if (passes_on(*op) && index < op->operand_count()) {
      value = op->operand(index);
    } else {
      return {};
    }
  }
  return {};
}

void erase_placements(ir::Region& region) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> found;
    for (const auto& op : block->operations()) {
      for (size_t i = 0; i < op->region_count(); ++i) erase_placements(op->region(i));
      if (is_placement(*op)) found.push_back(op.get());
    }
    for (ir::Operation* op : found) {
      op->result()->replace_all_uses_with(op->operand(0));
      block->erase(op);
    }
  }
}

}  // namespace

void take_placements(ir::Module& module) {
  ir::Function& entry = *module.entry();
  const ir::Operation* end = entry.body().front().terminator();
  const size_t results = entry.type.results().size();
  entry.result_attributes.resize(results);
  for (size_t i = 0; end != nullptr && i < results && i < end->operand_count(); ++i) {
    ir::AttributeMap& attributes = entry.result_attributes[i];
    if (!attributes.get(kMemoryKind).is_absent()) continue;
    std::string kind = placement_of(module, entry, end->operand(i));
    if (!kind.empty())
      attributes.set(std::string_view(kMemoryKind), ir::StringValue{std::move(kind)});
  }
  for (const auto& function : module.functions) erase_placements(function->body());
}

bool asks_for_host_compute(const ir::Module& module) {
  bool asks = false;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      asks = asks || frontend_attribute(op, "_xla_compute_type") == "host";
    });
  }
  return asks;
}

}  // namespace hekla::pjrt
