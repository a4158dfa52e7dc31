// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>

#include "backends/compiler/passes/erf.h"
#include "backends/compiler/passes/passes.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

constexpr int64_t kMaxOperations = 1'000'000;
constexpr int kMaxDepth = 1'000;  // of calls; readers refuse recursion before

// The function whose body stands for the operation; null for other operations.
const ir::Function* callee_of(const ir::Module& module, const ir::Operation& op) {
  std::string_view attribute;
  if (op.code() == OpCode::kFuncCall) attribute = "callee";
  if (op.code() == OpCode::kComposite) attribute = "decomposition";
  if (attribute.empty()) return nullptr;
  const auto* symbol = op.attribute(attribute).get<ir::SymbolValue>();
  const ir::Function* function = symbol == nullptr ? nullptr : module.find(symbol->root);
  return function == nullptr || function->is_declaration() ? nullptr : function;
}

bool is_annotation(const ir::Operation& op) {
  if (op.operand_count() != op.result_count()) return false;
  for (size_t i = 0; i < op.operand_count(); ++i) {
    if (!(op.operand(i)->type() == op.result(i)->type())) return false;
  }
  switch (op.code()) {
    case OpCode::kOptimizationBarrier:
    case OpCode::kSdyShardingConstraint:
      return true;
    case OpCode::kCustomCall: {
      constexpr std::array<std::string_view, 5> kTargets = {
          "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
          "annotate_device_placement"};
      const std::string target = ir::text_value(op, "call_target_name");
      return std::find(kTargets.begin(), kTargets.end(), target) != kTargets.end() ||
             target.starts_with("xla.sdy.");
    }
    default:
      return false;
  }
}

// Without what says where the results of an operation are: one device has them.
ir::AttributeMap local_attributes(ir::AttributeMap attributes) {
  for (std::string_view name : {"sdy.sharding", "mhlo.sharding", "sdy.sharding_rule"}) {
    attributes.erase(name);
  }
  return attributes;
}

class Inliner {
 public:
  explicit Inliner(const ir::Module& module) : module_(module) {}

  // Appends copies of the operations of `from` but its terminator, calls replaced, to `to`; returns
  // what the terminator's operands became.
  Result<std::vector<ir::Value*>> copy_body(const ir::Block& from, ir::Block& to, ir::ValueMap& map,
                                            int depth) {
    if (depth > kMaxDepth) {
      return failed_precondition("calls nest deeper than {} functions", kMaxDepth);
    }
    for (const auto& op : from.operations()) {
      if (op.get() == from.terminator()) break;
      HEKLA_RETURN_IF_ERROR(copy(*op, to, map, depth));
    }
    std::vector<ir::Value*> results;
    if (from.terminator() != nullptr) {
      for (ir::Value* value : from.terminator()->operands()) results.push_back(mapped(value, map));
    }
    return results;
  }

 private:
  static ir::Value* mapped(ir::Value* value, const ir::ValueMap& map) {
    auto it = map.find(value);
    return it == map.end() ? value : it->second;
  }

  Status copy(const ir::Operation& op, ir::Block& to, ir::ValueMap& map, int depth) {
    if (++count_ > kMaxOperations) {
      return failed_precondition(
          "the program has more than {} operations once its calls are "
          "replaced by their bodies",
          kMaxOperations);
    }
    if (op.code() == OpCode::kComposite && is_erf(op)) {
      ir::GraphBuilder g(to, nullptr, op.location());
      map[op.result()] = make_erf(g, mapped(op.operand(0), map));
      return g.status();
    }
    if (const ir::Function* callee = callee_of(module_, op)) {
      ir::ValueMap inner;
      const ir::Block& body = callee->body().front();
      if (body.argument_count() == op.operand_count()) {
        for (size_t i = 0; i < op.operand_count(); ++i) {
          inner[body.argument(i)] = mapped(op.operand(i), map);
        }
        HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Value*> results,
                               copy_body(body, to, inner, depth + 1));
        for (size_t i = 0; i < op.result_count(); ++i) map[op.result(i)] = results[i];
        return ok_status();
      }
    }
    if (is_annotation(op)) {
      for (size_t i = 0; i < op.result_count(); ++i) {
        map[op.result(i)] = mapped(op.operand(i), map);
      }
      return ok_status();
    }
    std::vector<ir::Value*> operands;
    for (ir::Value* value : op.operands()) operands.push_back(mapped(value, map));
    std::unique_ptr<ir::Operation> made =
        op.code() == OpCode::kUnknown
            ? ir::Operation::unknown(std::string(op.name()), std::move(operands), op.result_types(),
                                     local_attributes(op.attributes()), op.location())
            : std::make_unique<ir::Operation>(op.code(), std::move(operands), op.result_types(),
                                              local_attributes(op.attributes()), op.location());
    ir::Operation* copy = to.append(std::move(made));
    for (size_t i = 0; i < op.result_count(); ++i) map[op.result(i)] = copy->result(i);
    for (size_t i = 0; i < op.region_count(); ++i) {
      HEKLA_RETURN_IF_ERROR(copy_region(op.region(i), copy->add_region(), map, depth));
    }
    return ok_status();
  }

  Status copy_region(const ir::Region& from, ir::Region& to, ir::ValueMap& map, int depth) {
    for (const auto& block : from.blocks()) {
      ir::Block& copy = to.add_block();
      for (size_t i = 0; i < block->argument_count(); ++i) {
        map[block->argument(i)] = copy.add_argument(block->argument(i)->type());
      }
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Value*> results,
                             copy_body(*block, copy, map, depth + 1));
      if (const ir::Operation* end = block->terminator()) {
        copy.append(end->code(), std::move(results), {}, end->attributes(), end->location());
      }
    }
    return ok_status();
  }

  const ir::Module& module_;
  int64_t count_ = 0;
};

}  // namespace

Status inline_calls(ir::Module& module) {
  const ir::Function* entry = module.entry();
  if (entry == nullptr || entry->is_declaration()) {
    return invalid_argument("the module has no entry function");
  }
  auto flat = std::make_unique<ir::Function>(entry->name());
  flat->visibility = entry->visibility;
  flat->type = entry->type;
  flat->argument_attributes = entry->argument_attributes;
  flat->result_attributes = entry->result_attributes;
  flat->attributes = entry->attributes;
  flat->location = entry->location;
  const ir::Block& from = entry->body().front();
  ir::Block& to = flat->body().add_block();
  ir::ValueMap map;
  for (size_t i = 0; i < from.argument_count(); ++i) {
    map[from.argument(i)] = to.add_argument(from.argument(i)->type());
  }
  Inliner inliner(module);
  HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Value*> results, inliner.copy_body(from, to, map, 0));
  const ir::Operation* end = from.terminator();
  to.append(end->code(), std::move(results), {}, end->attributes(), end->location());

  // What operations still name (comparators of custom calls, asynchronous computations) stays.
  std::vector<std::unique_ptr<ir::Function>> kept;
  bool names_functions = false;
  ir::walk(flat->body(), [&](const ir::Operation& op) {
    names_functions |= static_cast<bool>(op.attribute("called_computations")) ||
                       static_cast<bool>(op.attribute("callee")) ||
                       static_cast<bool>(op.attribute("decomposition"));
  });
  for (auto& function : module.functions) {
    if (function.get() == entry) {
      kept.push_back(std::move(flat));
    } else if (names_functions) {
      kept.push_back(std::move(function));
    }
  }
  // The old entry goes before the functions that its operations may have referred to.
  std::swap(module.functions, kept);
  return ok_status();
}

}  // namespace hekla::passes
