// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/one_device.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/spmd/cut.h"
#include "backends/compiler/spmd/local_op.h"
#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/op_cut.h"
#include "backends/compiler/spmd/propagate.h"
#include "backends/compiler/spmd/reshard.h"
#include "backends/compiler/spmd/rules.h"
#include "backends/compiler/spmd/versions.h"
#include "runtime/base/log.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/text.h"

namespace hekla::spmd {
namespace {

using ir::OpCode;
using sharding::HloSharding;
using sharding::TensorSharding;

using Operations = std::vector<std::unique_ptr<ir::Operation>>;

std::string where(const ir::Operation& op) {
  return fmt::format("{} at {}", op.name(), ir::location_string(op.location()));
}

bool is_control_flow(const ir::Operation& op) {
  return op.code() == OpCode::kWhile || op.code() == OpCode::kCase || op.code() == OpCode::kIf;
}

// The operations of a block but its end, in order; the end stays out of the block, too.
Operations take_operations(ir::Block& block) {
  Operations operations;
  while (!block.empty()) operations.push_back(block.take(block.terminator()));
  std::reverse(operations.begin(), operations.end());
  return operations;
}

// What a manual computation's own axes cut of its operand or result k.
Result<HloSharding> border_of(const ir::Operation& op, const char* name, size_t k, size_t rank,
                              const ir::Module& module) {
  const auto list_of = [&](const char* attribute) -> const sharding::Attribute* {
    const auto* value = op.attribute(attribute).get<ir::ShardingValue>();
    return value == nullptr ? nullptr : &value->value;
  };
  const auto* shardings = list_of(name);
  const auto* manual = list_of("manual_axes");
  const auto* list =
      shardings == nullptr ? nullptr : std::get_if<sharding::ShardingList>(shardings);
  const auto* axes = manual == nullptr ? nullptr : std::get_if<sharding::ManualAxes>(manual);
  if (list == nullptr || axes == nullptr || k >= list->values.size()) {
    return invalid_argument("{} has no {} for array {}", where(op), name, k);
  }
  TensorSharding own = list->values[k];
  const sharding::Mesh* mesh = ir::mesh_of(own, module);
  if (mesh == nullptr) return invalid_argument("{}: {} names no mesh", where(op), to_text(own));
  if (mesh->is_maximal()) {
    return unimplemented("{}: {} {}: arrays on one partition alone are not there", where(op), name,
                         to_text(own));
  }
  const auto is_free = [&](const sharding::AxisRef& axis) {
    return std::find(axes->names.begin(), axes->names.end(), axis.name) == axes->names.end();
  };
  own.replicated.clear();
  std::erase_if(own.unreduced, is_free);
  for (sharding::DimensionSharding& dimension : own.dimensions) {
    dimension.is_open = false;
    dimension.priority.reset();
    std::erase_if(dimension.axes, is_free);
  }
  return sharding::to_hlo(own, *mesh, rank);
}

// How an array is cut where a manual computation begins or ends.
struct Border {
  HloSharding sharding;
  Cut cut;
  std::optional<Tiling> tiling;
};

class ToOneDevice {
 public:
  ToOneDevice(ir::Module& module, Layout& layout, const PrimeMesh* mesh)
      : module_(module),
        layout_(layout),
        mesh_(mesh),
        resharder_(layout.replicas, layout.partitions, mesh),
        versions_(resharder_, mesh) {
    if (mesh != nullptr) local_ops_.emplace(resharder_, versions_, *mesh);
  }

  Status run() {
    ir::Function& entry = *module_.entry();
    ir::Block& block = entry.body().front();
    HEKLA_RETURN_IF_ERROR(mark_ends(block));
    if (mesh_ != nullptr) HEKLA_RETURN_IF_ERROR(propagate_given(block));
    HEKLA_RETURN_IF_ERROR(cut_parameters(block));
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end, convert(block, /*is_nested=*/false));
    HEKLA_RETURN_IF_ERROR(cut_results(*end));
    block.append(std::move(end));
    // What operations name stays as it is; nobody follows constraints in there.
    for (const auto& function : module_.functions) {
      for (const auto& inner : function->body().blocks()) {
        if (function.get() != &entry) HEKLA_RETURN_IF_ERROR(convert_whole(*inner));
      }
    }
    drop_replaced();
    std::vector<ir::Type> results;
    for (const ir::Value* value : block.terminator()->operands()) results.push_back(value->type());
    entry.type = ir::Type::function(block.argument_types(), std::move(results));
    finish_attributes(entry);
    do {
      passes::clean_up(module_);
    } while (resharder_.erase_unused());
    finish_trace();
    if (!log_enabled(LogLevel::kVerbose)) return ok_status();
    if (const int64_t bytes = resharder_.gathered_bytes(); bytes > 0) {
      log_message(LogLevel::kVerbose,
                  "program {}: each of {} partitions sends {} bytes (loops counted once); "
                  "hekla compile --emit shardings shows why",
                  module_.name, layout_.partitions, bytes);
    }
    return ok_status();
  }

 private:
  // Users before what they use.
  void drop_replaced() {
    for (; !replaced_.empty(); replaced_.pop_back()) replaced_.back()->set_operands({});
  }

  // The sharding as the mesh says it and as a table.
  Result<Border> border(HloSharding sharding, size_t rank, const std::string& what) const {
    Border border;
    HEKLA_ASSIGN_OR_RETURN(border.cut, cut_of(sharding, layout_.partitions, rank, what));
    if (mesh_ != nullptr) {
      if (Result<Tiling> tiling = mesh_->tiling_of(sharding, rank); tiling.ok()) {
        border.tiling = *std::move(tiling);
      }
    }
    border.sharding = std::move(sharding);
    return border;
  }

  Result<ir::Value*> part(ir::Value* value, const Border& border) {
    return border.tiling ? versions_.part(value, *border.tiling)
                         : versions_.part(value, border.cut, /*copies_agree=*/true);
  }

  // Where an array has to be cut in a way, a constraint in front says so: of given results and of
  // what manual computations take.
  Status mark_ends(ir::Block& block) {
    ir::Operation* end = block.terminator();
    for (size_t i = 0; i < end->operand_count(); ++i) {
      const std::optional<HloSharding>& given = layout_.results[i];
      if (!given || !end->operand(i)->type().is_static_tensor()) continue;
      end->set_operand(i, insert_constraint(end->operand(i), *given, *end));
    }
    return mark_operands(block);
  }

  Status mark_operands(ir::Block& block) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block.operations()) operations.push_back(op.get());
    for (ir::Operation* op : operations) {
      if (op->code() == OpCode::kSdyManualComputation) {
        for (size_t k = 0; k < op->operand_count(); ++k) {
          ir::Value* operand = op->operand(k);
          if (!operand->type().is_static_tensor()) continue;
          HEKLA_ASSIGN_OR_RETURN(
              HloSharding wanted,
              border_of(*op, "in_shardings", k, operand->type().dims().size(), module_));
          op->set_operand(k, insert_constraint(operand, std::move(wanted), *op));
        }
      } else if (is_control_flow(*op)) {
        for (size_t r = 0; r < op->region_count(); ++r) {
          HEKLA_RETURN_IF_ERROR(mark_operands(op->region(r).front()));
        }
      }
    }
    return ok_status();
  }

  Status propagate_given(const ir::Block& block) {
    std::unordered_map<const ir::Value*, Given> given;
    for (size_t i = 0; i < block.argument_count(); ++i) {
      const ir::Value& parameter = *block.argument(i);
      if (!layout_.parameters[i] || !parameter.type().is_static_tensor()) continue;
      if (auto tiling = mesh_->tiling_of(*layout_.parameters[i], parameter.type().dims().size());
          tiling.ok()) {
        given[&parameter] = {*std::move(tiling), {}, {}, {}};
      }
    }
    HEKLA_RETURN_IF_ERROR(collect_given(block, given));
    tilings_ = propagate(block, *mesh_, given);
    return ok_status();
  }

  Status collect_given(const ir::Block& block,
                       std::unordered_map<const ir::Value*, Given>& given) const {
    for (const auto& op : block.operations()) {
      if (is_call_of(*op, kConstraint)) {
        const size_t rank = op->result()->type().dims().size();
        HEKLA_ASSIGN_OR_RETURN(const HloSharding wanted,
                               ir::hlo_sharding_of(op->attribute(kBorder)));
        if (auto tiling = mesh_->tiling_of(wanted, rank); tiling.ok()) {
          given[op->result()] = {
              *std::move(tiling), open_dimensions(*op, rank), priorities(*op), {}};
        }
      } else if (op->code() == OpCode::kSdyManualComputation) {
        for (size_t k = 0; k < op->result_count(); ++k) {
          const ir::Type& type = op->result(k)->type();
          if (!type.is_static_tensor()) continue;
          HEKLA_ASSIGN_OR_RETURN(const HloSharding made,
                                 border_of(*op, "out_shardings", k, type.dims().size(), module_));
          if (auto tiling = mesh_->tiling_of(made, type.dims().size()); tiling.ok()) {
            given[op->result(k)] = {*std::move(tiling), {}, {}, {}};
          }
        }
      } else if (is_call_of(*op, "SPMDShardToFullShape") && op->attribute(kBorder) &&
                 op->result_count() == 1 && op->operand_count() == 1 &&
                 op->result()->type().is_static_tensor() &&
                 op->operand(0)->type().is_static_tensor()) {
        HEKLA_ASSIGN_OR_RETURN(const Border made,
                               border_between(*op, op->result()->type(), op->operand(0)->type()));
        if (made.tiling) given[op->result()] = {*made.tiling, {}, {}, {}};
      } else if (is_control_flow(*op)) {
        for (size_t r = 0; r < op->region_count(); ++r) {
          HEKLA_RETURN_IF_ERROR(collect_given(op->region(r).front(), given));
        }
      }
    }
    return ok_status();
  }

  Tiling tiling_of(const ir::Value* value) const {
    const auto found = tilings_.find(value);
    return found == tilings_.end() ? Tiling::replicated(value->type().dims().size())
                                   : found->second;
  }

  // What may be told to clients of an array that they left open: whole axes, even parts.
  HloSharding choice(const Tiling& given, const Dims& dims) const {
    Tiling tiling = given;
    tiling.partial.clear();
    for (size_t d = 0; d < dims.size(); ++d) {
      tiling.dims[d] = mesh_->whole_prefix(tiling.dims[d]);
      while (!tiling.dims[d].empty() && dims[d] % mesh_->parts(tiling.dims[d]) != 0) {
        tiling.dims[d].pop_back();
        tiling.dims[d] = mesh_->whole_prefix(tiling.dims[d]);
      }
    }
    return mesh_->to_hlo(tiling);
  }

  Status refuse_type(const std::string& what, const ir::Type& type,
                     const HloSharding& sharding) const {
    return unimplemented(
        "{} has the type {} and the sharding {}: only arrays of known shape are cut. Replicate it",
        what, type.to_string(), to_text(sharding));
  }

  Status cut_parameters(ir::Block& block) {
    for (size_t i = 0; i < block.argument_count(); ++i) {
      ir::Value* parameter = block.argument(i);
      const std::string what = fmt::format("parameter {}", i);
      const ir::Type whole = parameter->type();
      std::optional<HloSharding>& given = layout_.parameters[i];
      if (!given) {
        given = mesh_ == nullptr || !whole.is_static_tensor()
                    ? HloSharding()
                    : choice(tiling_of(parameter), whole.dims());
      }
      if (given->kind == HloSharding::Kind::kReplicated) continue;
      if (!whole.is_static_tensor()) return refuse_type(what, whole, *given);
      HEKLA_ASSIGN_OR_RETURN(Border own, border(*given, whole.dims().size(), what));
      parameter->set_type(ir::Type::tensor(whole.element(), own.cut.local_shape(whole.dims())));
      versions_.add(parameter, whole, {std::move(own.cut), std::move(own.tiling), parameter});
    }
    depth_ = 1;
    for (size_t i = 0; i < block.argument_count(); ++i) {
      end_line(begin_line(fmt::format("parameter {}", i)), {block.argument(i)});
    }
    depth_ = 0;
    return ok_status();
  }

  Status cut_results(ir::Operation& end) {
    depth_ = 1;
    for (size_t i = 0; i < end.operand_count(); ++i) {
      ir::Value* value = end.operand(i);
      const ir::Type type = versions_.type(value);
      const std::string what = fmt::format("result {}", i);
      const size_t line = begin_line(what);
      std::optional<HloSharding>& given = layout_.results[i];
      if (!given) {
        given = mesh_ == nullptr || !type.is_static_tensor()
                    ? HloSharding()
                    : choice(wanted_tiling(value), type.dims());
      }
      if (given->kind == HloSharding::Kind::kReplicated) {
        HEKLA_ASSIGN_OR_RETURN(value, versions_.whole(value));
      } else {
        if (!type.is_static_tensor()) return refuse_type(what, type, *given);
        HEKLA_ASSIGN_OR_RETURN(const Border own, border(*given, type.dims().size(), what));
        HEKLA_ASSIGN_OR_RETURN(value, part(value, own));
      }
      end_line(line, {end.operand(i)});
      end.set_operand(i, value);
    }
    return ok_status();
  }

  // What propagation says of a value, also where it has become an array in parts.
  Tiling wanted_tiling(const ir::Value* value) const {
    const auto found = tilings_.find(value);
    return found == tilings_.end() ? Tiling::replicated(versions_.type(value).dims().size())
                                   : found->second;
  }

  void finish_attributes(ir::Function& entry) const {
    for (size_t i = 0; i < entry.argument_attributes.size(); ++i) {
      ir::AttributeMap& attributes = entry.argument_attributes[i];
      attributes.erase("sdy.sharding");
      attributes.erase("mhlo.sharding");
      const auto* output = attributes.get("tf.aliasing_output").get<ir::IntegerValue>();
      if (output == nullptr) continue;
      const auto k = static_cast<size_t>(output->value);
      if (k < entry.type.results().size() && entry.type.results()[k] == entry.type.elements()[i]) {
        continue;
      }
      // Cut apart from its result: its memory may serve another.
      attributes.erase("tf.aliasing_output");
      attributes.set("jax.buffer_donor", ir::BoolValue{true});
    }
    for (ir::AttributeMap& attributes : entry.result_attributes) {
      attributes.erase("sdy.sharding");
      attributes.erase("mhlo.sharding");
    }
  }

  // All but the end of the block, which the caller gets with the operands that it had.
  Result<std::unique_ptr<ir::Operation>> convert(ir::Block& block, bool is_nested) {
    Operations operations = take_operations(block);
    std::unique_ptr<ir::Operation> end = std::move(operations.back());
    operations.pop_back();
    ++depth_;
    for (std::unique_ptr<ir::Operation>& op : operations) {
      versions_.set_location(op->location());
      const bool is_told = !is_nested && op->code() != OpCode::kConstant;
      std::vector<const ir::Value*> results;
      for (size_t i = 0; i < op->result_count(); ++i) results.push_back(op->result(i));
      const size_t line =
          is_told ? begin_line(told_name(*op), ir::location_string(op->location())) : 0;
      HEKLA_RETURN_IF_ERROR(convert(std::move(op), block, is_nested));
      if (is_told) end_line(line, results);
    }
    --depth_;
    return end;
  }

  // --- lines of the trace ---

  static std::string told_name(const ir::Operation& op) {
    return is_call_of(op, kConstraint) ? "constraint" : std::string(op.name());
  }

  size_t begin_line(std::string what, std::string location = {}) {
    if (layout_.trace == nullptr) return 0;
    line_starts_.push_back(resharder_.collectives().size());
    layout_.trace->lines.push_back({depth_ - 1, std::move(what), std::move(location), {}, {}});
    return layout_.trace->lines.size() - 1;
  }

  // The values as they are at hand, and the collectives made since the line began that no line
  // inside of it has taken.
  void end_line(size_t line, const std::vector<const ir::Value*>& values) {
    if (layout_.trace == nullptr) return;
    for (const ir::Value* value : values) {
      const ir::Type& type = versions_.type(value);
      if (!type.is_static_tensor()) continue;
      ShardingTrace::Array array{type.to_string(), "", type.to_string()};
      for (const Tiling& tiling : versions_.tilings(value)) {
        if (tiling.is_replicated()) continue;
        array.sharding = mesh_->to_text(tiling);
        const Dims local = local_shape(*mesh_, tiling, type.dims());
        array.local = ir::Type::tensor(type.element(), local).to_string();
        break;
      }
      layout_.trace->lines[line].arrays.push_back(std::move(array));
    }
    const std::vector<ir::Operation*>& made = resharder_.collectives();
    for (size_t i = line_starts_.back(); i < made.size(); ++i) maker_of_.emplace(made[i], line);
    line_starts_.pop_back();
  }

  // Once only what is used is left.
  void finish_trace() {
    if (layout_.trace == nullptr) return;
    for (const ir::Operation* op : resharder_.collectives()) {
      const auto maker = maker_of_.find(op);
      const Result<Collective> known =
          collective_of(*op, {layout_.replicas, layout_.partitions}, {});
      if (maker == maker_of_.end() || !known.ok()) continue;
      layout_.trace->lines[maker->second].collectives.push_back(*known);
    }
  }

  // A block whose values stay whole.
  Status convert_whole(ir::Block& block) {
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end, convert(block, /*is_nested=*/true));
    return append_whole(std::move(end), block);
  }

  Status append_whole(std::unique_ptr<ir::Operation> op, ir::Block& block) {
    for (size_t k = 0; k < op->operand_count(); ++k) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(op->operand(k)));
      op->set_operand(k, whole);
    }
    block.append(std::move(op));
    return ok_status();
  }

  Status convert(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested) {
    if (op->code() == OpCode::kSdyManualComputation) {
      return open_manual(std::move(op), block, is_nested);
    }
    const bool is_entry = is_call_of(*op, "SPMDFullToShardShape");
    if (is_entry || is_call_of(*op, "SPMDShardToFullShape")) {
      return cross_border(std::move(op), is_entry);
    }
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
        HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end, convert(*inner, is_inner));
        HEKLA_RETURN_IF_ERROR(append_whole(std::move(end), *inner));
      }
    }
    if (mesh_ != nullptr && !is_nested) {
      HEKLA_ASSIGN_OR_RETURN(const bool is_done, compute_in_parts(op, block));
      if (is_done) return ok_status();
    }
    return append_whole(std::move(op), block);
  }

  Status convert_roll(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested) {
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

  // Whether the operation is computed in parts; it is taken then.
  Result<bool> compute_in_parts(std::unique_ptr<ir::Operation>& op, ir::Block& block) {
    if (op->code() == OpCode::kConstant || op->code() == OpCode::kIota) return false;
    std::vector<Tiling> wanted;
    bool is_cut = false;
    for (size_t i = 0; i < op->result_count(); ++i) {
      if (!op->result(i)->type().is_static_tensor()) return false;
      wanted.push_back(tiling_of(op->result(i)));
      wanted.back().partial = wanted_addends(*op->result(i));
      is_cut = is_cut || !wanted.back().is_replicated();
    }
    bool is_at_hand = true;
    for (const ir::Value* operand : op->operands()) {
      const bool is_whole = versions_.is_whole(operand);
      is_cut = is_cut || !is_whole;
      is_at_hand = is_at_hand && is_whole;
    }
    if (!is_cut || op->result_count() == 0) return false;
    if (const auto addends = local_ops_->addends_of(*op, block)) {
      HEKLA_RETURN_IF_ERROR(local_ops_->compute_of_addends(*op, *addends, wanted, block));
      replaced_.push_back(std::move(op));
      return true;
    }
    const std::optional<sharding::ShardingRule> rule = rule_in_parts(*op);
    if (!rule) return false;
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
    problem.operand_bytes = [&](const OpCut& cut, size_t operand) {
      return local_ops_->operand_bytes(*op, *rule, cut, operand);
    };
    problem.bytes = [&](const Tiling& from, const Tiling& to, const ir::Type& whole) {
      return versions_.bytes(from, to, whole);
    };
    const OpCut cut = choose_cut(problem);
    if (std::all_of(cut.begin(), cut.end(), [](const Axes& axes) { return axes.empty(); })) {
      return false;
    }
    // Whoever needs it whole computes it once more: elementwise operations cost less than sending.
    std::unique_ptr<ir::Operation> whole;
    if (is_at_hand && ir::is_elementwise(op->code())) {
      ir::ValueMap map;
      whole = ir::clone_operation(*op, map);
    }
    HEKLA_RETURN_IF_ERROR(local_ops_->compute(*op, *rule, cut, wanted, block));
    if (whole != nullptr) {
      versions_.set_whole(op->result(), op->result()->type(), whole->result());
      HEKLA_RETURN_IF_ERROR(append_whole(std::move(whole), block));
    }
    replaced_.push_back(std::move(op));
    return true;
  }

  // The axes that a sum is left partial over, where all who use it are constraints that say so.
  Axes wanted_addends(const ir::Value& value) const {
    std::optional<Axes> axes;
    for (const ir::Operation* user : value.users()) {
      const auto known =
          is_call_of(*user, kConstraint) ? tilings_.find(user->result()) : tilings_.end();
      if (known == tilings_.end() || (axes && *axes != known->second.partial)) return {};
      axes = known->second.partial;
    }
    return axes.value_or(Axes());
  }

  // The rule by the shapes of the program over all partitions: block arguments have those of parts
  // already.
  std::optional<sharding::ShardingRule> rule_in_parts(ir::Operation& op) const {
    std::vector<std::pair<ir::Value*, ir::Type>> local;
    for (ir::Value* operand : op.operands()) {
      const ir::Type& whole = versions_.type(operand);
      if (operand->type() == whole) continue;
      local.emplace_back(operand, operand->type());
      operand->set_type(whole);
    }
    std::optional<sharding::ShardingRule> rule = rule_of(op);
    for (auto& [value, type] : local) value->set_type(std::move(type));
    return rule;
  }

  // An array that control flow carries: its parts have its place.
  void carry(ir::Value* value, const Tiling& tiling) {
    if (tiling.is_replicated() || !value->type().is_static_tensor()) return;
    const ir::Type whole = value->type();
    value->set_type(ir::Type::tensor(whole.element(), local_shape(*mesh_, tiling, whole.dims())));
    versions_.add(value, whole, {mesh_->cut_of(tiling), tiling, value});
  }

  Result<ir::Value*> carried(ir::Value* value, const Tiling& tiling) {
    return versions_.type(value).is_static_tensor() ? versions_.part(value, tiling)
                                                    : versions_.whole(value);
  }

  Status convert_control_flow(std::unique_ptr<ir::Operation> op, ir::Block& block) {
    const bool is_loop = op->code() == OpCode::kWhile;
    std::vector<Tiling> tilings;
    for (size_t k = 0; k < op->result_count(); ++k) tilings.push_back(tiling_of(op->result(k)));
    for (size_t k = 0; k < op->operand_count(); ++k) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const operand, is_loop ? carried(op->operand(k), tilings[k])
                                                               : versions_.whole(op->operand(k)));
      op->set_operand(k, operand);
    }
    for (size_t r = 0; r < op->region_count(); ++r) {
      ir::Block& inner = op->region(r).front();
      for (size_t k = 0; k < inner.argument_count(); ++k) carry(inner.argument(k), tilings[k]);
      HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end,
                             convert(inner, /*is_nested=*/false));
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

  // The body takes the place of the operation.
  Status open_manual(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested) {
    if (is_nested) HEKLA_RETURN_IF_ERROR(check_nested(*op));
    ir::Block& body = op->region(0).front();
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end, convert(body, /*is_nested=*/true));
    // What the body returns as it came in is a part as it is: the operand that takes its place may
    // be known as a part of something else.
    std::vector<ir::Value*> returned;
    for (ir::Value* value : end->operands()) {
      if (value->argument_of() != &body) {
        HEKLA_ASSIGN_OR_RETURN(value, versions_.whole(value));
      }
      returned.push_back(value);
    }
    for (size_t k = 0; k < op->operand_count(); ++k) {
      ir::Value* operand = op->operand(k);
      ir::Value* inside = body.argument(k);
      const ir::Type type = versions_.type(operand);
      if (type.is_static_tensor()) {
        HEKLA_ASSIGN_OR_RETURN(HloSharding given,
                               border_of(*op, "in_shardings", k, type.dims().size(), module_));
        HEKLA_ASSIGN_OR_RETURN(const Border own,
                               border(std::move(given), type.dims().size(), where(*op)));
        HEKLA_ASSIGN_OR_RETURN(operand,
                               is_nested ? versions_.part(operand, own.cut) : part(operand, own));
      } else {
        HEKLA_ASSIGN_OR_RETURN(operand, versions_.whole(operand));
      }
      HEKLA_RETURN_IF_ERROR(expect_type(*op, *operand, inside->type()));
      std::replace(returned.begin(), returned.end(), inside, operand);
      inside->replace_all_uses_with(operand);
    }
    for (std::unique_ptr<ir::Operation>& inner : take_operations(body)) {
      block.append(std::move(inner));
    }
    for (size_t k = 0; k < op->result_count(); ++k) {
      const ir::Type type = op->result(k)->type();
      if (!type.is_static_tensor()) {
        versions_.set_whole(op->result(k), type, returned[k]);
        continue;
      }
      HEKLA_ASSIGN_OR_RETURN(HloSharding given,
                             border_of(*op, "out_shardings", k, type.dims().size(), module_));
      HEKLA_ASSIGN_OR_RETURN(Border own, border(std::move(given), type.dims().size(), where(*op)));
      HEKLA_RETURN_IF_ERROR(expect_type(
          *op, *returned[k], ir::Type::tensor(type.element(), own.cut.local_shape(type.dims()))));
      if (is_nested) own.tiling.reset();
      versions_.add(op->result(k), type, {std::move(own.cut), std::move(own.tiling), returned[k]});
    }
    replaced_.push_back(std::move(op));
    replaced_.push_back(std::move(end));
    return ok_status();
  }

  // Copies of an array within a manual computation differ; which of them belong together, a mesh in
  // another order does not tell by their numbers.
  Status check_nested(const ir::Operation& op) const {
    for (const ir::Mesh& mesh : module_.meshes) {
      if (!mesh.value.device_ids.empty() && !mesh.value.is_maximal()) {
        return unimplemented(
            "{}: manual computations in each other over mesh @{}, which has the "
            "partitions in an order of its own",
            where(op), mesh.name);
      }
    }
    return ok_status();
  }

  Status expect_type(const ir::Operation& op, const ir::Value& value, const ir::Type& type) const {
    if (value.type() == type) return ok_status();
    return invalid_argument("{}: its shardings make {} of an array, not {}", where(op),
                            value.type().to_string(), type.to_string());
  }

  // GSPMD's form: dimensions whose size changes are cut by what the array is cut by outside.
  Result<Border> border_between(const ir::Operation& op, const ir::Type& outer,
                                const ir::Type& local) const {
    HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, ir::hlo_sharding_of(op.attribute(kBorder)));
    HEKLA_ASSIGN_OR_RETURN(Border own, border(std::move(sharding), outer.dims().size(), where(op)));
    for (size_t i = 0; i < outer.dims().size() && i < local.dims().size(); ++i) {
      if (outer.dims()[i] != local.dims()[i]) continue;
      own.cut.dimensions[i] = {};
      if (own.tiling) own.tiling->dims[i].clear();
    }
    return own;
  }

  Status cross_border(std::unique_ptr<ir::Operation> op, bool is_entry) {
    if (op->operand_count() != 1 || op->result_count() != 1) {
      return invalid_argument("{} has {} operands and {} results, not one each", where(*op),
                              op->operand_count(), op->result_count());
    }
    ir::Value* operand = op->operand(0);
    const ir::Type outer = is_entry ? versions_.type(operand) : op->result()->type();
    const ir::Type local = is_entry ? op->result()->type() : versions_.type(operand);
    if (outer == local) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(operand));
      versions_.set_whole(op->result(), outer, whole);
      replaced_.push_back(std::move(op));
      return ok_status();
    }
    if (!outer.is_static_tensor() || !local.is_static_tensor()) {
      return invalid_argument("{} makes {} of {}: only arrays of known shape are cut", where(*op),
                              op->result()->type().to_string(),
                              versions_.type(operand).to_string());
    }
    if (op->attribute(kBorder).is_absent()) {
      return unimplemented("{}: the array outside has no sharding that says how it is cut",
                           where(*op));
    }
    HEKLA_ASSIGN_OR_RETURN(Border own, border_between(*op, outer, local));
    if (is_entry) {
      // It may stand in another one, where copies differ.
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, own.tiling
                                                        ? versions_.part(operand, *own.tiling)
                                                        : versions_.part(operand, own.cut));
      HEKLA_RETURN_IF_ERROR(expect_type(*op, *made, local));
      versions_.set_whole(op->result(), local, made);
      replaced_.push_back(std::move(op));
      return ok_status();
    }
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, versions_.whole(operand));
    HEKLA_RETURN_IF_ERROR(expect_type(
        *op, *made, ir::Type::tensor(outer.element(), own.cut.local_shape(outer.dims()))));
    versions_.add(op->result(), outer, {std::move(own.cut), std::move(own.tiling), made});
    replaced_.push_back(std::move(op));
    return ok_status();
  }

  // In manual computations constraints stand in the bodies of scalars too and mean nothing.
  Status follow_constraint(std::unique_ptr<ir::Operation> op, bool is_nested) {
    ir::Value* value = op->operand(0);
    const auto tiling = tilings_.find(op->result());
    if (is_nested || tiling == tilings_.end()) {
      op->result()->replace_all_uses_with(value);
      replaced_.push_back(std::move(op));
      return ok_status();
    }
    HEKLA_RETURN_IF_ERROR(versions_.part(value, tiling->second).status());
    versions_.copy(op->result(), value);
    replaced_.push_back(std::move(op));
    return ok_status();
  }

  ir::Module& module_;
  Layout& layout_;
  const PrimeMesh* mesh_;
  Resharder resharder_;
  Versions versions_;
  std::optional<LocalOps> local_ops_;
  Tilings tilings_;
  int64_t depth_ = 0;                // of blocks
  std::vector<size_t> line_starts_;  // of the lines that are open: collectives made before
  std::unordered_map<const ir::Operation*, size_t> maker_of_;  // of a collective: the line
  // Operations whose results stand for what `versions_` knows, until nothing names them any more.
  Operations replaced_;
};

// Every sharding that the program says, but inside of manual computations.
Status collect_shardings(const ir::Region& region, const ir::Module& module,
                         std::vector<HloSharding>& found) {
  for (const auto& block : region.blocks()) {
    for (const auto& op : block->operations()) {
      if (const ir::Attribute& given = op->attribute(kBorder)) {
        HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, ir::hlo_sharding_of(given));
        found.push_back(std::move(sharding));
      }
      if (op->code() == OpCode::kSdyManualComputation) {
        const auto add = [&](const char* name, size_t k, const ir::Type& type) -> Status {
          if (!type.is_static_tensor()) return ok_status();
          HEKLA_ASSIGN_OR_RETURN(HloSharding sharding,
                                 border_of(*op, name, k, type.dims().size(), module));
          found.push_back(std::move(sharding));
          return ok_status();
        };
        for (size_t k = 0; k < op->operand_count(); ++k) {
          HEKLA_RETURN_IF_ERROR(add("in_shardings", k, op->operand(k)->type()));
        }
        for (size_t k = 0; k < op->result_count(); ++k) {
          HEKLA_RETURN_IF_ERROR(add("out_shardings", k, op->result(k)->type()));
        }
        continue;
      }
      for (size_t r = 0; r < op->region_count(); ++r) {
        HEKLA_RETURN_IF_ERROR(collect_shardings(op->region(r), module, found));
      }
    }
  }
  return ok_status();
}

// The mesh that the whole program is over: the module's where all shardings are by its axes, else
// one that they have in common; none where they have not.
Result<std::optional<PrimeMesh>> mesh_of_program(const ir::Module& module, const Layout& layout) {
  std::vector<HloSharding> shardings;
  for (const auto* list : {&layout.parameters, &layout.results}) {
    for (const std::optional<HloSharding>& one : *list) {
      if (one) shardings.push_back(*one);
    }
  }
  HEKLA_RETURN_IF_ERROR(collect_shardings(module.entry()->body(), module, shardings));
  std::erase_if(shardings, [](const HloSharding& sharding) {
    return sharding.kind != HloSharding::Kind::kTiled ||
           std::find(sharding.subgroups.begin(), sharding.subgroups.end(),
                     HloSharding::Kind::kManual) != sharding.subgroups.end();
  });
  for (const ir::Mesh& one : module.meshes) {
    if (one.value.is_maximal() || device_count(one.value) != layout.partitions) continue;
    PrimeMesh mesh(one.value);
    const bool fits = std::all_of(shardings.begin(), shardings.end(), [&](const HloSharding& s) {
      return mesh.tiling_of(s, s.tile_dims.size() - s.subgroups.size()).ok();
    });
    if (fits) return std::optional<PrimeMesh>(std::move(mesh));
  }
  Result<sharding::Mesh> common = sharding::common_mesh(shardings, layout.partitions);
  if (!common.ok()) return std::optional<PrimeMesh>();
  return std::optional<PrimeMesh>(PrimeMesh(*std::move(common)));
}

}  // namespace

Status to_one_device(ir::Module& module, Layout& layout) {
  mark_borders(module);
  mark_constraints(module);
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(module));
  mark_rolls(module.entry()->body());
  HEKLA_ASSIGN_OR_RETURN(const std::optional<PrimeMesh> mesh, mesh_of_program(module, layout));
  return ToOneDevice(module, layout, mesh ? &*mesh : nullptr).run();
}

}  // namespace hekla::spmd
