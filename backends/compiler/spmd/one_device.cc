// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/one_device.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/spmd/cut.h"
#include "backends/compiler/spmd/reshard.h"
#include "runtime/base/log.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/text.h"

namespace hekla::spmd {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using sharding::HloSharding;
using sharding::TensorSharding;

// The sharding of the whole array at a border of a manual region, kept while calls are inlined.
constexpr const char* kBorder = "hekla.border";

// A constraint on an array in between, which inlining would drop.
constexpr std::string_view kConstraint = "hekla.constraint";

// Programs that gather more say so in the log without being asked.
constexpr int64_t kLoudBytes = int64_t{1} << 20;

// An array in parts.
struct Parts {
  Cut cut;
  HloSharding sharding;
  ir::Value* value = nullptr;
};

bool is_call_of(const ir::Operation& op, std::string_view target) {
  return op.code() == OpCode::kCustomCall && ir::text_value(op, "call_target_name") == target;
}

std::string where(const ir::Operation& op) {
  return fmt::format("{} at {}", op.name(), ir::location_string(op.location()));
}

// GSPMD's borders take the sharding of the array outside, which on the way in stands at the
// operand.
void mark_borders(ir::Module& module) {
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](ir::Operation& op) {
      if (is_call_of(op, "SPMDShardToFullShape")) {
        op.attributes().set(kBorder, op.attribute("mhlo.sharding"));
      } else if (is_call_of(op, "SPMDFullToShardShape") && op.operand_count() == 1) {
        const ir::Value& operand = *op.operand(0);
        if (const ir::Operation* maker = operand.defining_op()) {
          op.attributes().set(kBorder, maker->attribute("mhlo.sharding"));
        } else if (static_cast<size_t>(operand.index()) < function->argument_attributes.size() &&
                   op.block()->region()->parent() == nullptr) {
          op.attributes().set(
              kBorder, function->argument_attributes[static_cast<size_t>(operand.index())].get(
                           "mhlo.sharding"));
        }
      }
    });
  }
}

// The tiles that a constraint asks for, open dimensions as far as it goes; none where it says
// something else.
std::optional<HloSharding> wanted_by(const ir::Operation& op, const ir::Module& module) {
  Result<HloSharding> wanted = HloSharding();
  if (op.code() == OpCode::kSdyShardingConstraint) {
    const auto* value = op.attribute("sharding").get<ir::ShardingValue>();
    const auto* given = value == nullptr ? nullptr : std::get_if<TensorSharding>(&value->value);
    const sharding::Mesh* mesh = given == nullptr ? nullptr : ir::mesh_of(*given, module);
    if (mesh == nullptr || mesh->is_maximal()) return std::nullopt;
    wanted = sharding::to_hlo(*given, *mesh, given->dimensions.size());
  } else if (is_call_of(op, "Sharding") && op.attribute("mhlo.sharding")) {
    wanted = ir::hlo_sharding_of(op.attribute("mhlo.sharding"));
  }
  if (!wanted.ok() || wanted->kind != HloSharding::Kind::kTiled) return std::nullopt;
  return *std::move(wanted);
}

// Constraints as operations that outlive inlining.
void mark_constraints(ir::Region& region, const ir::Module& module) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block->operations()) operations.push_back(op.get());
    for (ir::Operation* op : operations) {
      for (size_t r = 0; r < op->region_count(); ++r) mark_constraints(op->region(r), module);
      if (op->operand_count() != 1 || op->result_count() != 1 ||
          !op->result()->type().is_static_tensor()) {
        continue;
      }
      std::optional<HloSharding> wanted = wanted_by(*op, module);
      if (!wanted) continue;
      ir::AttributeMap attributes;
      attributes.set("call_target_name", ir::StringValue{std::string(kConstraint)});
      attributes.set(kBorder, ir::hlo_sharding_attribute(*std::move(wanted)));
      ir::Operation* mark = block->insert_before(
          op,
          std::make_unique<ir::Operation>(OpCode::kCustomCall, op->operands(), op->result_types(),
                                          std::move(attributes), op->location()));
      op->result()->replace_all_uses_with(mark->result());
      block->erase(op);
    }
  }
}

class ToOneDevice {
 public:
  ToOneDevice(ir::Module& module, Layout& layout)
      : module_(module), layout_(layout), resharder_(layout.replicas, layout.partitions) {}

  Status run() {
    ir::Function& entry = *module_.entry();
    ir::Block& block = entry.body().front();
    HEKLA_RETURN_IF_ERROR(cut_parameters(block));
    HEKLA_RETURN_IF_ERROR(convert(block, /*is_nested=*/false));
    // What operations name stays as it is; nobody follows constraints in there.
    for (const auto& function : module_.functions) {
      for (const auto& inner : function->body().blocks()) {
        if (function.get() != &entry) HEKLA_RETURN_IF_ERROR(convert(*inner, /*is_nested=*/true));
      }
    }
    HEKLA_RETURN_IF_ERROR(cut_results(block));
    entry.type = ir::Type::function(block.argument_types(), result_types(block));
    finish_attributes(entry);
    do {
      passes::clean_up(module_);
    } while (resharder_.erase_unused());
    if (const int64_t bytes = resharder_.gathered_bytes(); bytes > 0) {
      log_message(bytes < kLoudBytes ? LogLevel::kVerbose : LogLevel::kInfo,
                  "program {}: each of {} partitions gathers {} bytes (loops counted once), since "
                  "operations outside of manual computations (shard_map) are computed whole unless "
                  "they are elementwise",
                  module_.name, layout_.partitions, bytes);
    }
    return ok_status();
  }

 private:
  static std::vector<ir::Type> result_types(const ir::Block& block) {
    std::vector<ir::Type> types;
    for (const ir::Value* value : block.terminator()->operands()) types.push_back(value->type());
    return types;
  }

  // In front of everything, in the order of the parameters.
  Status cut_parameters(ir::Block& block) {
    const ir::Operation* first = block.operations().front().get();
    for (size_t i = 0; i < block.argument_count(); ++i) {
      ir::Value* parameter = block.argument(i);
      const std::string what = fmt::format("parameter {}", i);
      HEKLA_ASSIGN_OR_RETURN(const bool is_cut, choose_parameter(i, *parameter, what));
      if (!is_cut) continue;
      Parts parts;
      parts.sharding = *layout_.parameters[i];
      const Dims whole = parameter->type().dims();
      HEKLA_ASSIGN_OR_RETURN(parts.cut,
                             cut_of(parts.sharding, layout_.partitions, whole.size(), what));
      const ir::Type element = parameter->type().element();
      // All uses become those of the whole array, but for its own.
      GraphBuilder g(block, first, block.operations().front()->location());
      const std::vector<ir::Operation*> users = parameter->users();
      parameter->set_type(ir::Type::tensor(element, parts.cut.local_shape(whole)));
      ir::Value* gathered = resharder_.gather(g, parameter, parts.cut, whole);
      HEKLA_RETURN_IF_ERROR(g.status());
      for (ir::Operation* user : users) {
        for (size_t k = 0; k < user->operand_count(); ++k) {
          if (user->operand(k) == parameter) user->set_operand(k, gathered);
        }
      }
      parts.value = parameter;
      parts_.emplace(gathered, std::move(parts));
    }
    return ok_status();
  }

  // Settles the parameter's sharding; whether it cuts anything.
  Result<bool> choose_parameter(size_t i, const ir::Value& parameter, const std::string& what) {
    std::optional<HloSharding>& given = layout_.parameters[i];
    if (!given && !parameter.type().is_static_tensor()) given = HloSharding();
    if (!given) {
      given = HloSharding();
      // What a manual computation takes in parts is best brought in parts.
      for (const ir::Operation* user : parameter.users()) {
        if (user->code() != OpCode::kSdyManualComputation) continue;
        for (size_t k = 0; k < user->operand_count(); ++k) {
          if (user->operand(k) != &parameter) continue;
          HEKLA_ASSIGN_OR_RETURN(HloSharding wanted, border_of(*user, "in_shardings", k,
                                                               parameter.type().dims().size()));
          HEKLA_ASSIGN_OR_RETURN(const Cut cut, cut_of(wanted, layout_.partitions,
                                                       parameter.type().dims().size(), what));
          if (cut.sum.parts == 1 && cut.is_even(parameter.type().dims())) given = std::move(wanted);
        }
        break;
      }
    }
    if (given->kind == HloSharding::Kind::kReplicated) return false;
    if (!parameter.type().is_static_tensor()) {
      return unimplemented(
          "{} has the type {} and the sharding {}: only arrays of known shape are "
          "cut. Replicate it",
          what, parameter.type().to_string(), to_text(*given));
    }
    return true;
  }

  Status cut_results(ir::Block& block) {
    ir::Operation* end = block.terminator();
    for (size_t i = 0; i < end->operand_count(); ++i) {
      ir::Value* value = end->operand(i);
      std::optional<HloSharding>& given = layout_.results[i];
      if (!given) {
        given = HloSharding();
        const auto known = parts_.find(value);
        if (const auto wanted = wanted_.find(value); wanted != wanted_.end()) {
          given = wanted->second;
        } else if (known != parts_.end() && known->second.cut.sum.parts == 1 &&
                   known->second.cut.is_even(value->type().dims())) {
          given = known->second.sharding;
        }
      }
      if (given->kind == HloSharding::Kind::kReplicated) continue;
      const std::string what = fmt::format("result {}", i);
      if (!value->type().is_static_tensor()) {
        return unimplemented(
            "{} has the type {} and the sharding {}: only arrays of known shape "
            "are cut. Replicate it",
            what, value->type().to_string(), to_text(*given));
      }
      HEKLA_ASSIGN_OR_RETURN(const Cut cut,
                             cut_of(*given, layout_.partitions, value->type().dims().size(), what));
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const part, part_of(value, cut, *end));
      end->set_operand(i, part);
    }
    return ok_status();
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

  // The part of a whole array, in front of `before`.
  Result<ir::Value*> part_of(ir::Value* whole, const Cut& cut, const ir::Operation& before) {
    if (cut.is_whole()) return whole;
    const auto known = parts_.find(whole);
    if (known != parts_.end() && known->second.cut == cut) return known->second.value;
    GraphBuilder g(*before.block(), &before, before.location());
    ir::Value* part = resharder_.take_part(g, whole, cut);
    HEKLA_RETURN_IF_ERROR(g.status());
    return part;
  }

  // The whole array of parts, in front of `before`.
  Result<ir::Value*> whole_of(Parts parts, const Dims& dims, const ir::Operation& before) {
    if (parts.cut.is_whole()) return parts.value;
    GraphBuilder g(*before.block(), &before, before.location());
    ir::Value* whole = resharder_.gather(g, parts.value, parts.cut, dims);
    HEKLA_RETURN_IF_ERROR(g.status());
    parts_.emplace(whole, std::move(parts));
    return whole;
  }

  Status convert(ir::Block& block, bool is_nested) {
    for (size_t i = 0; i < block.operations().size();) {
      ir::Operation& op = *block.operations()[i];
      if (op.code() == OpCode::kSdyManualComputation) {
        HEKLA_RETURN_IF_ERROR(open_manual(block, op, is_nested));
        continue;  // with what stands in its place
      }
      const bool is_entry = is_call_of(op, "SPMDFullToShardShape");
      if (is_entry || is_call_of(op, "SPMDShardToFullShape")) {
        HEKLA_RETURN_IF_ERROR(cross_border(block, op, is_entry));
        continue;
      }
      if (is_call_of(op, kConstraint)) {
        HEKLA_RETURN_IF_ERROR(follow_constraint(block, op, is_nested));
        continue;
      }
      if (op.code() == OpCode::kSdyReshard || op.code() == OpCode::kSdyPropagationBarrier) {
        op.result()->replace_all_uses_with(op.operand(0));
        block.erase(&op);
        continue;
      }
      for (size_t r = 0; r < op.region_count(); ++r) {
        for (const auto& inner : op.region(r).blocks()) {
          HEKLA_RETURN_IF_ERROR(convert(*inner, is_nested));
        }
      }
      compute_in_parts(block, op);
      while (block.operations()[i].get() != &op) ++i;
      ++i;
    }
    return ok_status();
  }

  // What a manual computation's own axes cut of its operand or result k.
  Result<HloSharding> border_of(const ir::Operation& op, const char* name, size_t k,
                                size_t rank) const {
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
    const sharding::Mesh* mesh = ir::mesh_of(own, module_);
    if (mesh == nullptr) return invalid_argument("{}: {} names no mesh", where(op), to_text(own));
    if (mesh->is_maximal()) {
      return unimplemented("{}: {} {}: arrays on one partition alone are not there", where(op),
                           name, to_text(own));
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

  // The body takes the place of the operation.
  Status open_manual(ir::Block& block, ir::Operation& op, bool is_nested) {
    if (is_nested) HEKLA_RETURN_IF_ERROR(check_nested(op));
    ir::Block& body = op.region(0).front();
    HEKLA_RETURN_IF_ERROR(convert(body, /*is_nested=*/true));
    for (size_t k = 0; k < op.operand_count(); ++k) {
      ir::Value* operand = op.operand(k);
      ir::Value* inside = body.argument(k);
      if (operand->type().is_static_tensor()) {
        HEKLA_ASSIGN_OR_RETURN(const HloSharding border,
                               border_of(op, "in_shardings", k, operand->type().dims().size()));
        HEKLA_ASSIGN_OR_RETURN(const Cut cut, cut_of(border, layout_.partitions,
                                                     operand->type().dims().size(), where(op)));
        HEKLA_ASSIGN_OR_RETURN(operand, part_of(operand, cut, op));
      }
      HEKLA_RETURN_IF_ERROR(expect_type(op, *operand, inside->type()));
      inside->replace_all_uses_with(operand);
    }
    std::vector<ir::Value*> returned = body.terminator()->operands();
    while (body.operations().size() > 1) {
      block.insert_before(&op, body.take(body.operations().front().get()));
    }
    for (size_t k = 0; k < op.result_count(); ++k) {
      const ir::Type type = op.result(k)->type();
      ir::Value* whole = returned[k];
      if (type.is_static_tensor()) {
        Parts parts;
        HEKLA_ASSIGN_OR_RETURN(parts.sharding,
                               border_of(op, "out_shardings", k, type.dims().size()));
        HEKLA_ASSIGN_OR_RETURN(
            parts.cut, cut_of(parts.sharding, layout_.partitions, type.dims().size(), where(op)));
        parts.value = whole;
        HEKLA_RETURN_IF_ERROR(expect_type(
            op, *whole, ir::Type::tensor(type.element(), parts.cut.local_shape(type.dims()))));
        HEKLA_ASSIGN_OR_RETURN(whole, whole_of(std::move(parts), type.dims(), op));
      }
      op.result(k)->replace_all_uses_with(whole);
    }
    block.erase(&op);
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
  Status cross_border(ir::Block& block, ir::Operation& op, bool is_entry) {
    if (op.operand_count() != 1 || op.result_count() != 1) {
      return invalid_argument("{} has {} operands and {} results, not one each", where(op),
                              op.operand_count(), op.result_count());
    }
    ir::Value* operand = op.operand(0);
    const ir::Type& whole = is_entry ? operand->type() : op.result()->type();
    const ir::Type& local = is_entry ? op.result()->type() : operand->type();
    ir::Value* made = operand;
    if (!(whole == local)) {
      if (!whole.is_static_tensor() || !local.is_static_tensor()) {
        return invalid_argument("{} makes {} of {}: only arrays of known shape are cut", where(op),
                                op.result()->type().to_string(), operand->type().to_string());
      }
      const ir::Attribute& given = op.attribute(kBorder);
      if (given.is_absent()) {
        return unimplemented("{}: the array outside has no sharding that says how it is cut",
                             where(op));
      }
      Parts parts;
      HEKLA_ASSIGN_OR_RETURN(parts.sharding, ir::hlo_sharding_of(given));
      HEKLA_ASSIGN_OR_RETURN(
          parts.cut, cut_of(parts.sharding, layout_.partitions, whole.dims().size(), where(op)));
      for (size_t i = 0; i < whole.dims().size() && i < local.dims().size(); ++i) {
        if (whole.dims()[i] == local.dims()[i] && parts.cut.dimensions[i].parts > 1) {
          parts.cut.dimensions[i] = {};
          parts.sharding = HloSharding();  // says more than the cut: nobody may take it over
        }
      }
      if (is_entry) {
        HEKLA_ASSIGN_OR_RETURN(made, part_of(operand, parts.cut, op));
        HEKLA_RETURN_IF_ERROR(expect_type(op, *made, local));
      } else {
        HEKLA_RETURN_IF_ERROR(expect_type(
            op, *operand, ir::Type::tensor(whole.element(), parts.cut.local_shape(whole.dims()))));
        parts.value = operand;
        HEKLA_ASSIGN_OR_RETURN(made, whole_of(std::move(parts), whole.dims(), op));
      }
    }
    op.result()->replace_all_uses_with(made);
    block.erase(&op);
    return ok_status();
  }

  // The value goes on as it is, known in the parts that were asked for. In manual computations
  // constraints stand in the bodies of scalars too and mean nothing.
  Status follow_constraint(ir::Block& block, ir::Operation& op, bool is_nested) {
    ir::Value* value = op.operand(0);
    if (!is_nested) {
      const Dims& dims = value->type().dims();
      Parts parts;
      HEKLA_ASSIGN_OR_RETURN(parts.sharding, ir::hlo_sharding_of(op.attribute(kBorder)));
      Result<Cut> cut = cut_of(parts.sharding, layout_.partitions, dims.size(), where(op));
      HEKLA_RETURN_IF_ERROR(cut.status());
      if (!cut->is_whole() && cut->sum.parts == 1) {
        if (cut->is_even(dims)) wanted_.insert_or_assign(value, parts.sharding);
        // Parts of what comes from around a region would not be seen after it.
        const ir::Block* home =
            value->defining_op() == nullptr ? value->argument_of() : value->defining_op()->block();
        if (home == &block && !parts_.contains(value)) {
          HEKLA_ASSIGN_OR_RETURN(parts.value, part_of(value, *cut, op));
          parts.cut = *std::move(cut);
          parts_.emplace(value, std::move(parts));
        }
      }
    }
    op.result()->replace_all_uses_with(value);
    block.erase(&op);
    return ok_status();
  }

  // Beside an elementwise operation whose arrays are all known in equal parts, the same on the
  // parts. What of the two nobody needs goes in the end.
  void compute_in_parts(ir::Block& block, ir::Operation& op) {
    if (!ir::is_elementwise(op.code()) || op.region_count() != 0 || op.result_count() != 1 ||
        !op.result()->type().is_static_tensor()) {
      return;
    }
    const Dims& whole = op.result()->type().dims();
    const Parts* first = nullptr;
    for (ir::Value* operand : op.operands()) {
      if (!operand->type().is_static_tensor()) return;
      const auto known = parts_.find(operand);
      if (known == parts_.end() || operand->type().dims() != whole) continue;
      if (known->second.cut.sum.parts > 1) continue;  // functions of sums are not sums of functions
      if (first == nullptr) first = &known->second;
    }
    if (first == nullptr) return;
    const Dims local = first->cut.local_shape(whole);
    ir::GraphBuilder g(block, &op, op.location());
    std::vector<ir::Value*> operands;
    for (ir::Value* operand : op.operands()) {
      const auto known = parts_.find(operand);
      if (operand->type().dims() != whole) {
        if (!operand->type().dims().empty()) return;
        operands.push_back(operand);
      } else if (known != parts_.end() && known->second.cut == first->cut) {
        operands.push_back(known->second.value);
      } else if (ir::Value* equal = equal_elements(*operand)) {
        operands.push_back(g.broadcast(equal, local, {}));
      } else {
        // Each device has it whole, or has other parts of it.
        operands.push_back(resharder_.take_part(g, operand, first->cut));
      }
    }
    Parts parts = *first;
    ir::Operation* made = g.make_op(op.code(), operands, op.attributes(), {},
                                    {ir::Type::tensor(op.result()->type().element(), local)});
    parts.value = made->result();
    parts_.insert_or_assign(op.result(), std::move(parts));
  }

  // The one number that all elements are, where a scalar is broadcast.
  static ir::Value* equal_elements(const ir::Value& value) {
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || op->code() != OpCode::kBroadcastInDim) return nullptr;
    return op->operand(0)->type().dims().empty() ? op->operand(0) : nullptr;
  }

  ir::Module& module_;
  Layout& layout_;
  Resharder resharder_;
  // What else is known of whole arrays; what the last constraint asked for, where it cuts evenly.
  std::unordered_map<const ir::Value*, Parts> parts_;
  std::unordered_map<const ir::Value*, HloSharding> wanted_;
};

}  // namespace

Status to_one_device(ir::Module& module, Layout& layout) {
  mark_borders(module);
  for (const auto& function : module.functions) mark_constraints(function->body(), module);
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(module));
  return ToOneDevice(module, layout).run();
}

}  // namespace hekla::spmd
