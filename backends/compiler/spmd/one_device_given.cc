// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/one_device_pass.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

Status ToOneDevice::mark_ends(ir::Block& block) {
  ir::Operation* end = block.terminator();
  for (size_t i = 0; i < end->operand_count(); ++i) {
    const std::optional<HloSharding>& given = layout_.results[i];
    if (!given || !end->operand(i)->type().is_static_tensor()) continue;
    end->set_operand(i, insert_constraint(end->operand(i), *given, *end));
  }
  return mark_operands(block);
}

Status ToOneDevice::mark_operands(ir::Block& block) {
  std::vector<ir::Operation*> operations;
  for (const auto& op : block.operations()) operations.push_back(op.get());
  for (ir::Operation* op : operations) {
    if (op->code() == OpCode::kSdyManualComputation) {
      HEKLA_RETURN_IF_ERROR(mark_manual(*op));
    } else if (is_control_flow(*op)) {
      for (size_t r = 0; r < op->region_count(); ++r) {
        HEKLA_RETURN_IF_ERROR(mark_operands(op->region(r).front()));
      }
    }
  }
  return ok_status();
}

Status ToOneDevice::mark_manual(ir::Operation& op) {
  std::optional<Manual> manual;
  if (mesh_ != nullptr) {
    HEKLA_ASSIGN_OR_RETURN(manual, manual_of(op, *mesh_, module_));
  }
  for (size_t k = 0; k < op.operand_count(); ++k) {
    ir::Value* operand = op.operand(k);
    if (!operand->type().is_static_tensor()) continue;
    HEKLA_ASSIGN_OR_RETURN(
        ManualBorder wanted,
        manual_border(op, "in_shardings", k, operand->type().dims().size(), module_));
    op.set_operand(k, manual ? insert_constraint(operand, std::move(wanted.all), op, wanted.open)
                             : insert_constraint(operand, std::move(wanted.own), op));
  }
  if (!manual) return ok_status();
  manuals_.emplace(&op, *std::move(manual));
  return mark_operands(op.region(0).front());
}

Status ToOneDevice::propagate_given(const ir::Block& block) {
  std::unordered_map<const ir::Value*, Given> given;
  for (size_t i = 0; i < block.argument_count(); ++i) {
    const ir::Value& parameter = *block.argument(i);
    if (!layout_.parameters[i] || !parameter.type().is_static_tensor()) continue;
    if (auto tiling = mesh_->tiling_of(*layout_.parameters[i], parameter.type().dims().size());
        tiling.ok()) {
      given[&parameter] = {*std::move(tiling), {}, {}, {}};
    }
  }
  HEKLA_RETURN_IF_ERROR(collect_given(block, given, {}));
  tilings_ = propagate(block, *mesh_, given, manuals_);
  return ok_status();
}

Status ToOneDevice::collect_given(const ir::Block& block,
                                  std::unordered_map<const ir::Value*, Given>& given,
                                  const Axes& manual_axes) const {
  for (const auto& op : block.operations()) {
    if (is_call_of(*op, kConstraint)) {
      const size_t rank = op->result()->type().dims().size();
      HEKLA_ASSIGN_OR_RETURN(const HloSharding wanted, ir::hlo_sharding_of(op->attribute(kBorder)));
      auto tiling = mesh_->tiling_of(wanted, rank);
      if (tiling.ok() && std::none_of(manual_axes.begin(), manual_axes.end(),
                                      [&](int axis) { return tiling->uses(axis); })) {
        given[op->result()] = {*std::move(tiling), open_dimensions(*op, rank), priorities(*op), {}};
      }
    } else if (op->code() == OpCode::kSdyManualComputation) {
      HEKLA_RETURN_IF_ERROR(collect_given_of_manual(*op, given, manual_axes));
    } else if (is_exit(*op) && op->attribute(kBorder) && op->result_count() == 1 &&
               op->operand_count() == 1 && op->result()->type().is_static_tensor() &&
               op->operand(0)->type().is_static_tensor()) {
      HEKLA_ASSIGN_OR_RETURN(const Border made,
                             border_between(*op, op->result()->type(), op->operand(0)->type()));
      if (made.tiling) given[op->result()] = {*made.tiling, {}, {}, {}};
    } else if (is_control_flow(*op)) {
      for (size_t r = 0; r < op->region_count(); ++r) {
        HEKLA_RETURN_IF_ERROR(collect_given(op->region(r).front(), given, manual_axes));
      }
    }
  }
  return ok_status();
}

Status ToOneDevice::collect_given_of_manual(const ir::Operation& op,
                                            std::unordered_map<const ir::Value*, Given>& given,
                                            Axes manual_axes) const {
  const auto manual = manuals_.find(&op);
  for (size_t k = 0; k < op.result_count(); ++k) {
    const ir::Type& type = op.result(k)->type();
    if (!type.is_static_tensor()) continue;
    HEKLA_ASSIGN_OR_RETURN(ManualBorder made,
                           manual_border(op, "out_shardings", k, type.dims().size(), module_));
    if (manual == manuals_.end()) made.open.clear();
    const HloSharding& sharding = manual == manuals_.end() ? made.own : made.all;
    if (auto tiling = mesh_->tiling_of(sharding, type.dims().size()); tiling.ok()) {
      given[op.result(k)] = {*std::move(tiling), std::move(made.open), {}, {}};
    }
  }
  if (manual == manuals_.end()) return ok_status();
  const ir::Block& body = op.region(0).front();
  for (size_t k = 0; k < op.operand_count(); ++k) {
    const auto outside = given.find(op.operand(k));
    if (outside == given.end() || !op.operand(k)->type().is_static_tensor()) continue;
    if (auto inside = tiling_inside(manual->second.in[k], outside->second.tiling)) {
      given[body.argument(k)] = {*std::move(inside), outside->second.open, {}, {}};
    }
  }
  const Axes& own = manual->second.axes;
  manual_axes.insert(manual_axes.end(), own.begin(), own.end());
  return collect_given(body, given, manual_axes);
}

}  // namespace hekla::spmd
