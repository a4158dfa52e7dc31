// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/one_device_pass.h"
#include "backends/compiler/spmd/partition_program.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {
namespace {

// Functions that a partition's program names are not there once its body stands elsewhere.
Status expect_no_functions(const ir::Operation& call, const ir::Region& body) {
  Status status;
  ir::walk(body, [&](const ir::Operation& op) {
    for (const auto& [name, attribute] : op.attributes()) {
      const auto* symbol = attribute.get<ir::SymbolValue>();
      if (symbol == nullptr || !status.ok()) continue;
      status = unimplemented("{}: {} in what its partitioner made names the function @{}",
                             where(call), op.name(), symbol->root);
    }
  });
  return status;
}

}  // namespace

bool ToOneDevice::is_custom(const ir::Operation& op) const {
  if (op.code() != ir::OpCode::kCustomCall) return false;
  const std::string target = ir::text_value(op, "call_target_name");
  return target == kCustomPartitioning || (layout_.custom && layout_.custom(target) != nullptr);
}

Result<HloSharding> ToOneDevice::proposal(const ir::Operation& op, const ir::Value& value,
                                          bool is_nested) const {
  const ir::Type& type = versions_.type(&value);
  if (!type.is_static_tensor()) {
    return unimplemented("{} has an array of the type {}: only arrays of known shape are cut",
                         where(op), type.to_string());
  }
  if (is_nested || mesh_ == nullptr) return HloSharding();
  return choice(wanted_tiling(&value), type.dims());
}

Result<CustomPartition> ToOneDevice::ask_partitioner(const ir::Operation& op,
                                                     bool is_nested) const {
  const std::string target = ir::text_value(op, "call_target_name");
  const auto partitioner = layout_.custom ? layout_.custom(target) : nullptr;
  if (partitioner == nullptr) {
    return unimplemented(
        "{}: how {} is partitioned only the process knows that made the program, and it has "
        "registered no function for it here",
        where(op), target);
  }
  std::vector<CustomArray> operands, results;
  std::vector<ir::Type> types;
  for (const ir::Value* operand : op.operands()) {
    HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, proposal(op, *operand, is_nested));
    operands.push_back({versions_.type(operand), std::move(sharding)});
  }
  for (size_t k = 0; k < op.result_count(); ++k) {
    HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, proposal(op, *op.result(k), is_nested));
    results.push_back({op.result(k)->type(), std::move(sharding)});
    types.push_back(op.result(k)->type());
  }
  const auto is_whole = [](const CustomArray& array) {
    return array.sharding.kind == HloSharding::Kind::kReplicated;
  };
  const std::string config = ir::text_value(op, "backend_config");
  // Without a rule nothing propagates through the call: its results lie as its operands make them,
  // or as their users want them.
  const bool is_wanted = !std::all_of(results.begin(), results.end(), is_whole);
  if (op.attribute(kRule).is_absent() &&
      (is_wanted || !std::all_of(operands.begin(), operands.end(), is_whole))) {
    Result<std::vector<HloSharding>> inferred = is_wanted
                                                    ? partitioner->revise(config, results)
                                                    : partitioner->infer(config, operands, types);
    if (!inferred.ok()) return inferred.status().with_context(where(op));
    if (inferred->size() != results.size()) {
      return invalid_argument("{}: its partitioner infers {} shardings for {} results", where(op),
                              inferred->size(), results.size());
    }
    for (size_t k = 0; k < results.size(); ++k) results[k].sharding = std::move((*inferred)[k]);
  }
  Result<CustomPartition> made = partitioner->partition(config, operands, results);
  if (!made.ok()) return made.status().with_context(where(op));
  const ir::Function* entry = made->program == nullptr ? nullptr : made->program->entry();
  if (entry == nullptr || entry->is_declaration() || made->operands.size() != op.operand_count() ||
      made->results.size() != op.result_count() ||
      entry->type.elements().size() != op.operand_count() ||
      entry->type.results().size() != op.result_count()) {
    return invalid_argument("{}: its partitioner made a program of other arrays", where(op));
  }
  return made;
}

Result<Border> ToOneDevice::border_of_custom(const ir::Operation& op, HloSharding sharding,
                                             size_t rank, bool is_nested) const {
  HEKLA_ASSIGN_OR_RETURN(Border own, border(std::move(sharding), rank, where(op)));
  const bool is_cut = own.sharding.kind != HloSharding::Kind::kReplicated;
  const bool uses_manual_axes =
      own.tiling && std::any_of(manual_axes_.begin(), manual_axes_.end(),
                                [&](int axis) { return own.tiling->uses(axis); });
  if (uses_manual_axes || (is_cut && (is_nested || (!own.tiling && !manual_axes_.empty())))) {
    return unimplemented(
        "{}: its partitioner cuts an array by {}, which the manual computation around does",
        where(op), to_text(own.sharding));
  }
  return own;
}

Status ToOneDevice::convert_custom(std::unique_ptr<ir::Operation> op, ir::Block& block,
                                   bool is_nested) {
  HEKLA_ASSIGN_OR_RETURN(CustomPartition made, ask_partitioner(*op, is_nested));
  layout_.has_custom_partitions = true;
  HEKLA_RETURN_IF_ERROR(list_groups(*made.program));
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(*made.program));
  const ir::Block& body = made.program->entry()->body().front();
  HEKLA_RETURN_IF_ERROR(expect_no_functions(*op, made.program->entry()->body()));
  ir::ValueMap map;
  for (size_t k = 0; k < op->operand_count(); ++k) {
    ir::Value* operand = op->operand(k);
    const size_t rank = versions_.type(operand).dims().size();
    HEKLA_ASSIGN_OR_RETURN(const Border own,
                           border_of_custom(*op, made.operands[k], rank, is_nested));
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const at_hand,
                           own.sharding.kind == HloSharding::Kind::kReplicated
                               ? versions_.whole(operand)
                               : part(operand, own));
    HEKLA_RETURN_IF_ERROR(expect_type(*op, *at_hand, body.argument(k)->type()));
    map[body.argument(k)] = at_hand;
  }
  for (const auto& inner : body.operations()) {
    if (inner.get() != body.terminator()) block.append(ir::clone_operation(*inner, map));
  }
  for (size_t k = 0; k < op->result_count(); ++k) {
    const ir::Type type = op->result(k)->type();
    HEKLA_ASSIGN_OR_RETURN(Border own,
                           border_of_custom(*op, made.results[k], type.dims().size(), is_nested));
    ir::Value* value = map.at(body.terminator()->operand(k));
    HEKLA_RETURN_IF_ERROR(expect_type(
        *op, *value, ir::Type::tensor(type.element(), own.cut.local_shape(type.dims()))));
    if (own.sharding.kind == HloSharding::Kind::kReplicated) {
      versions_.set_whole(op->result(k), type, value);
    } else {
      versions_.add(op->result(k), type, {std::move(own.cut), std::move(own.tiling), value});
    }
  }
  replaced_.push_back(std::move(op));
  return ok_status();
}

}  // namespace hekla::spmd
