// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/linear.h"
#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/one_device_pass.h"
#include "backends/compiler/spmd/op_cut.h"
#include "backends/compiler/spmd/rules.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

// The operations of a block but its end, in order; the end stays out of the block, too.
Operations take_operations(ir::Block& block) {
  Operations operations;
  while (!block.empty()) operations.push_back(block.take(block.terminator()));
  std::reverse(operations.begin(), operations.end());
  return operations;
}

// The array is a sum over the axes, which then cut no dimension.
void leave_addends(Tiling& tiling, const Axes& axes) {
  tiling.partial = axes;
  for (Axes& own : tiling.dims) {
    own.erase(std::find_if(own.begin(), own.end(), [&](int axis) { return contains(axes, axis); }),
              own.end());
  }
}

}  // namespace

Result<std::unique_ptr<ir::Operation>> ToOneDevice::convert_block(ir::Block& from, ir::Block& to,
                                                                  bool is_nested) {
  Operations operations = take_operations(from);
  std::unique_ptr<ir::Operation> end = std::move(operations.back());
  operations.pop_back();
  for (std::unique_ptr<ir::Operation>& op : operations) {
    versions_.set_location(op->location());
    const bool is_told = !is_nested && op->code() != OpCode::kConstant;
    std::vector<const ir::Value*> results;
    for (size_t i = 0; i < op->result_count(); ++i) results.push_back(op->result(i));
    const size_t line = is_told ? trace_.begin(*op) : 0;
    trace_.enter();
    HEKLA_RETURN_IF_ERROR(convert_op(std::move(op), to, is_nested));
    trace_.leave();
    if (is_told) trace_.end(line, results);
  }
  return end;
}

Status ToOneDevice::convert_whole(ir::Block& block) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end,
                         convert_block(block, block, /*is_nested=*/true));
  return append_whole(std::move(end), block);
}

Status ToOneDevice::append_whole(std::unique_ptr<ir::Operation> op, ir::Block& block) {
  for (size_t k = 0; k < op->operand_count(); ++k) {
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(op->operand(k)));
    op->set_operand(k, whole);
  }
  block.append(std::move(op));
  return ok_status();
}

Status ToOneDevice::convert_op(std::unique_ptr<ir::Operation> op, ir::Block& block,
                               bool is_nested) {
  if (op->code() == OpCode::kSdyManualComputation) {
    return open_manual(std::move(op), block, is_nested);
  }
  if (const bool is_in = is_entry(*op); is_in || is_exit(*op)) {
    return cross_border(std::move(op), is_in);
  }
  if (is_custom(*op)) return convert_custom(std::move(op), block, is_nested);
  if (is_call_of(*op, kConstraint)) return follow_constraint(std::move(op), is_nested);
  if (op->code() == OpCode::kSdyReshard || op->code() == OpCode::kSdyPropagationBarrier) {
    op->result()->replace_all_uses_with(op->operand(0));
    replaced_.push_back(std::move(op));
    return ok_status();
  }
  if (is_roll(*op)) return convert_roll(std::move(op), block, is_nested);
  if (is_control_flow(*op) && mesh_ != nullptr && !is_nested) {
    return convert_control_flow(std::move(op), block);
  }
  for (size_t r = 0; r < op->region_count(); ++r) {
    for (const auto& inner : op->region(r).blocks()) {
      // Loops and branches outside of manual computations may hold some.
      const bool is_inner = is_nested || !is_control_flow(*op);
      HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end,
                             convert_block(*inner, *inner, is_inner));
      HEKLA_RETURN_IF_ERROR(append_whole(std::move(end), *inner));
    }
  }
  if (mesh_ != nullptr && !is_nested) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_done, compute_in_parts(op, block));
    if (is_done) return ok_status();
  }
  return append_whole(std::move(op), block);
}

Status ToOneDevice::convert_roll(std::unique_ptr<ir::Operation> op, ir::Block& block,
                                 bool is_nested) {
  if (mesh_ != nullptr && !is_nested) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_done, compute_in_parts(op, block));
    if (is_done) return ok_status();
  }
  HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(op->operand(0)));
  ir::GraphBuilder g(block, nullptr, op->location());
  versions_.set_whole(op->result(), op->result()->type(), rolled(g, whole, *op));
  replaced_.push_back(std::move(op));
  return g.status();
}

Result<bool> ToOneDevice::compute_in_parts(std::unique_ptr<ir::Operation>& op, ir::Block& block) {
  if (op->code() == OpCode::kConstant || op->code() == OpCode::kIota) return false;
  std::vector<Tiling> wanted;
  bool is_cut = false;
  for (size_t i = 0; i < op->result_count(); ++i) {
    if (!op->result(i)->type().is_static_tensor())
      return note_whole(*op, "its results have no known shape");
    wanted.push_back(tiling_of(op->result(i)));
    leave_addends(wanted.back(), wanted_addends(*op->result(i)));
    is_cut = is_cut || !wanted.back().is_replicated();
  }
  for (const ir::Value* operand : op->operands()) is_cut = is_cut || !versions_.is_whole(operand);
  if (!is_cut || op->result_count() == 0) return false;
  const std::optional<sharding::ShardingRule> rule = rule_in_whole(*op, versions_);
  if (!rule) return note_whole(*op, "it has no sharding rule");
  if (!meets_own_parts(*op, wanted)) return note_whole(*op, "it joins devices with other parts");
  CutProblem problem{*mesh_, *rule, {}, {}, {}, {}, {}};
  for (const ir::Value* operand : op->operands()) {
    problem.operands.push_back({versions_.type(operand), versions_.tilings(operand)});
  }
  for (size_t i = 0; i < op->result_count(); ++i) {
    problem.results.push_back({op->result(i)->type(), {wanted[i]}});
  }
  // A loop takes slices of what comes from outside more than once: sent once, in front of it.
  const bool is_repeated =
      op->code() == OpCode::kDynamicSlice && versions_.is_from_outside(op->operand(0), block);
  problem.may_cut = [&](int64_t factor, bool is_even) {
    if (is_repeated && contains(rule->reduction, factor)) return false;
    return may_cut(*op, *rule, factor, is_even);
  };
  Addends addends = local_ops_->addends_of(*op, wanted[0].partial, block);
  problem.addends = addends.axes;
  problem.operand_bytes = [&](const OpCut& cut, size_t operand) {
    return local_ops_->operand_bytes(*op, *rule, cut, operand, addends);
  };
  problem.bytes = [&](const Tiling& from, const Tiling& to, const ir::Type& whole) {
    return versions_.bytes(from, to, whole);
  };
  OpCut cut = choose_cut(problem);
  if (!addends.axes.empty() && !addends.is_wanted) {
    const double bytes = bytes_of(problem, cut);
    const Addends waiting = std::exchange(addends, {});
    problem.addends.clear();
    OpCut of_sums = choose_cut(problem);
    if (bytes_of(problem, of_sums) < bytes) {
      cut = std::move(of_sums);
    } else {
      addends = waiting;
    }
  }
  if (addends.axes.empty() &&
      std::all_of(cut.begin(), cut.end(), [](const Axes& axes) { return axes.empty(); })) {
    trace_.note("computed whole: cut in any way that is known, more bytes would move");
    return false;
  }
  HEKLA_RETURN_IF_ERROR(local_ops_->compute(*op, *rule, cut, wanted, block, addends));
  if (addends.axes.empty() && may_recompute(*op)) versions_.set_maker(op->result(), *op);
  replaced_.push_back(std::move(op));
  return true;
}

bool ToOneDevice::note_whole(const ir::Operation& op, const char* reason) {
  std::vector<std::string> gathered;
  for (const ir::Value* operand : op.operands()) {
    if (!versions_.is_whole(operand)) gathered.push_back(versions_.type(operand).to_string());
  }
  if (gathered.empty()) return false;
  trace_.note(fmt::format("computed whole: {}", reason));
  wholes_.push_back(fmt::format("{} ({}), since {}", where(op), fmt::join(gathered, ", "), reason));
  return false;
}

bool ToOneDevice::meets_own_parts(const ir::Operation& op, std::vector<Tiling> tilings) const {
  if (!ir::is_collective(op.code())) return true;
  const ir::DeviceGrid grid = {layout_.replicas, layout_.partitions};
  std::vector<std::vector<int64_t>> groups;
  if (op.code() == OpCode::kCollectivePermute) {
    const auto pairs = ir::device_pairs(op, grid);
    if (!pairs.ok()) return false;
    for (const auto& [from, to] : *pairs) groups.push_back({from, to});
  } else {
    auto found = ir::device_groups(op, grid, module_.meshes);
    if (!found.ok()) return false;
    groups = *std::move(found);
  }
  for (const ir::Value* operand : op.operands()) {
    for (Tiling& tiling : versions_.tilings(operand)) tilings.push_back(std::move(tiling));
  }
  for (int axis = 0; axis < mesh_->axis_count(); ++axis) {
    if (std::none_of(tilings.begin(), tilings.end(),
                     [axis](const Tiling& tiling) { return tiling.uses(axis); })) {
      continue;
    }
    const std::vector<int64_t> part = mesh_->part_of_partitions({axis});
    const auto part_of = [&](int64_t device) {
      return part[static_cast<size_t>(device % layout_.partitions)];
    };
    for (const std::vector<int64_t>& group : groups) {
      for (int64_t device : group) {
        if (part_of(device) != part_of(group.front())) return false;
      }
    }
  }
  return true;
}

Axes ToOneDevice::wanted_addends(const ir::Value& value) const {
  std::optional<Axes> axes;
  for (const ir::Operation* user : value.users()) {
    const auto known =
        is_call_of(*user, kConstraint) ? tilings_.find(user->result()) : tilings_.end();
    if (known == tilings_.end() || (axes && *axes != known->second.partial)) return {};
    axes = known->second.partial;
  }
  return axes.value_or(Axes());
}

Axes ToOneDevice::given_addends(const ir::Value* value) const {
  const ir::Operation* op = value->defining_op();
  const auto known =
      op != nullptr && is_call_of(*op, kConstraint) ? tilings_.find(value) : tilings_.end();
  return known == tilings_.end() ? Axes() : known->second.partial;
}

void ToOneDevice::carry(ir::Value* value, const Tiling& tiling) {
  if (tiling.is_replicated() || !value->type().is_static_tensor()) return;
  const ir::Type whole = value->type();
  value->set_type(ir::Type::tensor(whole.element(), local_shape(*mesh_, tiling, whole.dims())));
  versions_.add(value, whole, {mesh_->cut_of(tiling), tiling, value});
}

Result<ir::Value*> ToOneDevice::carried(ir::Value* value, const Tiling& tiling) {
  return versions_.type(value).is_static_tensor() ? versions_.part(value, tiling)
                                                  : versions_.whole(value);
}

Status ToOneDevice::convert_control_flow(std::unique_ptr<ir::Operation> op, ir::Block& block) {
  const bool is_loop = op->code() == OpCode::kWhile;
  std::vector<Tiling> tilings;
  for (size_t k = 0; k < op->result_count(); ++k) {
    tilings.push_back(tiling_of(op->result(k)));
    // A sum whose addends stay apart, where the program says so in front of the loop and at its
    // end, or at the ends of all branches; of zeros it need not.
    std::vector<const ir::Value*> ends;
    if (is_loop) ends.push_back(op->operand(k));
    for (size_t r = is_loop ? 1 : 0; r < op->region_count(); ++r) {
      ends.push_back(op->region(r).front().terminator()->operand(k));
    }
    std::optional<Axes> common;
    for (const ir::Value* value : ends) {
      if (is_zero(*value)) continue;
      const Axes given = given_addends(value);
      if (common && *common != given) common = Axes();
      if (!common) common = given;
    }
    if (common) leave_addends(tilings.back(), *common);
  }
  for (size_t k = 0; k < op->operand_count(); ++k) {
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const operand, is_loop ? carried(op->operand(k), tilings[k])
                                                             : versions_.whole(op->operand(k)));
    op->set_operand(k, operand);
  }
  for (size_t r = 0; r < op->region_count(); ++r) {
    ir::Block& inner = op->region(r).front();
    for (size_t k = 0; k < inner.argument_count(); ++k) carry(inner.argument(k), tilings[k]);
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end,
                           convert_block(inner, inner, /*is_nested=*/false));
    const bool is_condition = is_loop && r == 0;
    for (size_t k = 0; k < end->operand_count(); ++k) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const value, is_condition
                                                         ? versions_.whole(end->operand(k))
                                                         : carried(end->operand(k), tilings[k]));
      end->set_operand(k, value);
    }
    inner.append(std::move(end));
  }
  for (size_t k = 0; k < op->result_count(); ++k) carry(op->result(k), tilings[k]);
  block.append(std::move(op));
  return ok_status();
}

Status ToOneDevice::follow_constraint(std::unique_ptr<ir::Operation> op, bool is_nested) {
  ir::Value* value = op->operand(0);
  const auto tiling = tilings_.find(op->result());
  if (is_nested || tiling == tilings_.end()) {
    op->result()->replace_all_uses_with(value);
    replaced_.push_back(std::move(op));
    return ok_status();
  }
  HEKLA_RETURN_IF_ERROR(versions_.part(value, tiling->second).status());
  versions_.alias(op->result(), value);
  replaced_.push_back(std::move(op));
  return ok_status();
}

}  // namespace hekla::spmd
