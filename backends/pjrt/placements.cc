// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/placements.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::pjrt {
namespace {

using ir::OpCode;

constexpr std::string_view kMemoryKind = "mhlo.memory_kind";
constexpr std::string_view kLayoutMode = "mhlo.layout_mode";

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

bool is_one_to_one(const ir::Operation& op) {
  return op.operand_count() == 1 && op.result_count() == 1 &&
         op.operand(0)->type() == op.result()->type();
}

bool is_placement(const ir::Operation& op) {
  return is_custom_call(op, "annotate_device_placement") && is_one_to_one(op);
}

bool is_layout(const ir::Operation& op) {
  return is_custom_call(op, "LayoutConstraint") && is_one_to_one(op);
}

// "{0,1}", the result's layout by a constraint; empty where it says none.
std::string constrained_layout(const ir::Operation& op) {
  const auto* layouts = op.attribute("result_layouts").get<ir::ArrayValue>();
  if (layouts == nullptr || layouts->elements.size() != 1) return {};
  const auto* dense = layouts->elements[0].get<ir::DenseValue>();
  if (dense == nullptr || dense->values.dtype() != DType::kI64) return {};
  const Result<HostArray> order = dense->expand();
  if (!order.ok()) return {};
  const int64_t* first = order->as<int64_t>();
  return fmt::format("{{{}}}", fmt::join(first, first + order->size(), ","));
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

// What a value of the entry is, seen through calls and what gives its operands back: the last
// operation for which `is_answer`, or the argument that it is; null: computed by anything else.
struct Origin {
  const ir::Operation* op = nullptr;
  const ir::Value* argument = nullptr;
};
Origin origin_of(const ir::Module& module, const ir::Value* value,
                 bool (*is_answer)(const ir::Operation&)) {
  // Each step goes up in the program or into a callee, but a program may call itself.
  constexpr int kMostSteps = 1000;
  const ir::Block* entry = &module.entry()->body().front();
  for (int step = 0; step < kMostSteps; ++step) {
    const ir::Operation* op = value->defining_op();
    const auto index = static_cast<size_t>(value->index());
    if (op == nullptr) return {nullptr, value->argument_of() == entry ? value : nullptr};
    if (is_answer(*op)) return {op, nullptr};
    if (const ir::Function* callee = callee_of(module, *op)) {
      const ir::Operation* end = callee->body().front().terminator();
      if (end == nullptr || index >= end->operand_count()) return {};
      value = end->operand(index);
    } else if ((passes_on(*op) || is_placement(*op) || is_layout(*op)) &&
               index < op->operand_count()) {
      value = op->operand(index);
    } else {
      return {};
    }
  }
  return {};
}

// The kind of memory that a value of the entry was last told; empty: none.
std::string placement_of(const ir::Module& module, const ir::Value* value) {
  const auto [op, argument] = origin_of(module, value, is_placement);
  if (op != nullptr) return frontend_attribute(*op, "_xla_buffer_placement");
  const auto& attributes = module.entry()->argument_attributes;
  const auto index =
      argument == nullptr ? attributes.size() : static_cast<size_t>(argument->index());
  return index < attributes.size() ? text_of(attributes[index].get(kMemoryKind)) : std::string();
}

// Operations that give their one operand back.
void erase_all(ir::Region& region, bool (*is_erased)(const ir::Operation&)) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> found;
    for (const auto& op : block->operations()) {
      for (size_t i = 0; i < op->region_count(); ++i) erase_all(op->region(i), is_erased);
      if (is_erased(*op)) found.push_back(op.get());
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
    if (attributes.get(kMemoryKind).is_absent()) {
      const std::string kind = placement_of(module, end->operand(i));
      if (!kind.empty()) attributes.set(kMemoryKind, ir::StringValue{kind});
    }
    if (text_of(attributes.get(kLayoutMode)) == "auto") {
      const ir::Operation* op = origin_of(module, end->operand(i), is_layout).op;
      const std::string layout = op == nullptr ? std::string() : constrained_layout(*op);
      if (!layout.empty()) attributes.set(kLayoutMode, ir::StringValue{layout});
    }
  }
  for (const auto& function : module.functions) {
    erase_all(function->body(),
              [](const ir::Operation& op) { return is_placement(op) || is_layout(op); });
  }
}

void erase_sharding_constraints(ir::Module& module) {
  for (const auto& function : module.functions) {
    erase_all(function->body(), [](const ir::Operation& op) {
      return op.code() == OpCode::kSdyShardingConstraint && is_one_to_one(op);
    });
  }
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
