// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/planner.h"

#include <unordered_set>

#include "backends/compiler/plan/donation.h"
#include "backends/compiler/plan/host_program.h"
#include "backends/compiler/plan/memory.h"
#include "backends/compiler/plan/overlap.h"
#include "backends/compiler/plan/planner_parts.h"
#include "backends/compiler/plan/rotate.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::plan {
namespace {

using ir::OpCode;
using lower::Role;

bool has_memory(const ir::Type& type) { return type.is_static_tensor() || type.is_token(); }

Status no_memory(const ir::Type& type, std::string_view what) {
  return unimplemented("{} of type {} has no memory in a launch plan", what, type.to_string());
}

// To the steps from `first` on, which are the operation's.
void tell_origin(const ir::Operation& op, Steps& steps, size_t first) {
  if (steps.size() == first) return;
  ir::LocationParts parts = ir::location_parts(op.location());
  if (parts.name.empty() && parts.place.empty()) return;
  const auto origin = std::make_shared<const ir::LocationParts>(std::move(parts));
  for (size_t i = first; i < steps.size(); ++i) {
    if (steps[i].origin == nullptr) steps[i].origin = origin;
  }
}

}  // namespace

Result<LaunchPlan> Planner::run() {
  const ir::Function& entry = *module_.entry();
  const ir::Block& block = entry.body().front();
  for (size_t i = 0; i < block.argument_count(); ++i) {
    const ir::Type& type = block.argument(i)->type();
    if (!has_memory(type)) return no_memory(type, "argument of the entry function");
    if (is_too_large(byte_size(type))) {
      return too_large(fmt::format("argument {} of type {}", i, type.to_string()), byte_size(type));
    }
    plan_.input_bytes.push_back(byte_size(type));
    slices_[block.argument(i)] = {Space::kInput, static_cast<int32_t>(i), 0, byte_size(type)};
  }
  // A result is made where it is wanted, when the program makes it and returns it once.
  const std::vector<ir::Value*>& results = block.terminator()->operands();
  for (size_t i = 0; i < results.size(); ++i) {
    const ir::Type& type = results[i]->type();
    if (!has_memory(type)) return no_memory(type, "result of the entry function");
    plan_.output_bytes.push_back(byte_size(type));
    const Slice output{Space::kOutput, static_cast<int32_t>(i), 0, byte_size(type)};
    const ir::Operation* op = results[i]->defining_op();
    if (op != nullptr && op->code() != OpCode::kConstant) wanted_.emplace(results[i], output);
  }
  HEKLA_RETURN_IF_ERROR(plan_block(block, plan_.steps));
  for (size_t i = 0; i < results.size(); ++i) {
    const Slice output{Space::kOutput, static_cast<int32_t>(i), 0, plan_.output_bytes[i]};
    HEKLA_ASSIGN_OR_RETURN(const Slice from, slice_of(*results[i]));
    copy(from, output, plan_.steps);
  }
  if (options_.reuse_memory) {
    elide_copies(plan_);
    rotate_loops(plan_);
  }
  if (options_.fuse && traits_.has_row_groups) group_rows(plan_, options_.row_groups);
  number_collectives(plan_);
  if (options_.overlap_collectives) {
    overlap_collectives(plan_, options_.keeps_collective_order);
  }
  HEKLA_RETURN_IF_ERROR(
      assign_arenas(plan_, options_.reuse_memory, max_arena_bytes(options_, traits_)));
  plan_.output_input.assign(plan_.output_bytes.size(), -1);
  if (options_.reuse_memory) choose_donations(entry, plan_);
  return std::move(plan_);
}

Status Planner::too_large(std::string_view what, int64_t bytes) const {
  return resource_exhausted(
      "{} takes {} bytes, more than the largest buffer of the device, {} bytes: split the array "
      "along a dimension, over several devices or in a loop over its parts",
      what, bytes, traits_.max_buffer_bytes);
}

Status Planner::check_sizes(const ir::Operation& op) const {
  if (!is_too_large(largest_)) return ok_status();
  for (size_t i = 0; i < op.result_count(); ++i) {
    const ir::Type& type = op.result(i)->type();
    if (!is_too_large(byte_size(type))) continue;
    return too_large(fmt::format("{}: its result of type {}", op.name(), type.to_string()),
                     byte_size(type));
  }
  return too_large(
      fmt::format("{} to {}: memory between its kernels", op.name(),
                  op.result_count() == 0 ? "no result" : op.result()->type().to_string()),
      largest_);
}

Result<Slice> Planner::slice_of(const ir::Value& value) {
  if (auto it = slices_.find(&value); it != slices_.end()) return it->second;
  const ir::Operation* op = value.defining_op();
  if (op != nullptr && op->code() == OpCode::kConstant) {
    const auto* dense = op->attribute("value").get<ir::DenseValue>();
    if (dense != nullptr) {
      HEKLA_ASSIGN_OR_RETURN(HostArray array, dense->expand());
      return slices_[&value] = add_constant(std::move(array));
    }
  }
  return internal_error("{} has no memory", op == nullptr ? "a block argument" : op->name());
}

Slice Planner::make_slice(const ir::Value& value) {
  Slice slice;
  if (auto it = wanted_.find(&value); it != wanted_.end()) {
    slice = it->second;
    largest_ = std::max(largest_, slice.bytes);
  } else {
    slice = new_buffer(byte_size(value.type()));
  }
  slices_[&value] = slice;
  return slice;
}

Status Planner::plan_block(const ir::Block& block, Steps& steps,
                           std::unordered_set<const ir::Value*> unwanted) {
  const Fusion fusion(block, options_, traits_, &known_cuts_, std::move(unwanted));
  for (const auto& op : block.operations()) {
    if (op.get() == block.terminator()) break;
    const size_t first = steps.size();
    HEKLA_RETURN_IF_ERROR(plan_operation(*op, fusion, steps));
    if (const Status status = check_sizes(*op); !status.ok()) {
      return status.with_context(ir::location_string(op->location()));
    }
    tell_origin(*op, steps, first);
  }
  return ok_status();
}

Status Planner::plan_operation(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
  if (fusion.is_unwanted(op)) return ok_status();
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (!has_memory(op.result(i)->type())) return no_memory(op.result(i)->type(), op.name());
  }
  if (op.result_count() > 0 && op.result()->has_uses()) add_decision(op, fusion);
  const Role role = fusion.role(op);
  if (role == Role::kNone) {
    switch (op.code()) {
      case OpCode::kWhile:
        return plan_while(op, fusion, steps);
      case OpCode::kIf:
      case OpCode::kCase:
        return plan_branch(op, fusion, steps);
      case OpCode::kAfterAll:
      case OpCode::kCreateToken:
        make_slice(*op.result());  // of no bytes: the order of steps is the program's
        return ok_status();
      case OpCode::kReplicaId:
        slices_[op.result()] = {Space::kLaunch, 0, kReplicaOffset, byte_size(op.result()->type())};
        return ok_status();
      case OpCode::kPartitionId:
        slices_[op.result()] = {Space::kLaunch, 0, kPartitionOffset,
                                byte_size(op.result()->type())};
        return ok_status();
      case OpCode::kLaunchNumber:
        slices_[op.result()] = {Space::kLaunch, 0, kLaunchNumberOffset,
                                byte_size(op.result()->type())};
        return ok_status();
      case OpCode::kSend:
      case OpCode::kRecv:
        return plan_host_step(op, steps);
      default:
        return ir::is_collective(op.code()) ? plan_collective(op, steps)
                                            : plan_host_step(op, steps);
    }
  }
  if (op.code() == OpCode::kConstant) return ok_status();
  if (fusion.is_contraction(op)) return plan_contraction(op, fusion, steps);
  std::vector<const ir::Value*> outputs;
  for (const ir::Operation* member : fusion.kernel_at(op)) {
    for (size_t i = 0; i < member->result_count(); ++i) {
      if (fusion.is_stored(*member->result(i))) outputs.push_back(member->result(i));
    }
  }
  if (outputs.empty()) return ok_status();
  if (element_count(op.result()->type().dims()) == 0) {
    for (const ir::Value* output : outputs) make_slice(*output);
    return ok_status();
  }
  if (op.code() == OpCode::kDynamicUpdateSlice && fusion.in_memory(*op.operand(0))) {
    return plan_update(op, fusion, steps);
  }
  return plan_kernel(op, outputs, fusion, steps);
}

Status Planner::fill_host_step(const ir::Operation& op, auto& step) {
  for (const ir::Value* value : op.operands()) {
    if (!has_memory(value->type())) return no_memory(value->type(), op.name());
  }
  HostProgram extracted = extract(module_, op);
  step.name = op.name();
  if (op.code() == OpCode::kCustomCall) step.name += " @" + ir::text_value(op, "call_target_name");
  step.program = std::move(extracted.module);
  for (const ir::Value* value : extracted.inputs) {
    HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*value));
    step.inputs.push_back(slice);
  }
  for (size_t i = 0; i < op.result_count(); ++i) step.outputs.push_back(make_slice(*op.result(i)));
  return ok_status();
}

Status Planner::plan_host_step(const ir::Operation& op, Steps& steps) {
  HostStep step;
  step.reason = lower::why_no_kernel(op);
  HEKLA_RETURN_IF_ERROR(fill_host_step(op, step));
  steps.push_back({std::move(step)});
  return ok_status();
}

Status Planner::plan_collective(const ir::Operation& op, Steps& steps) {
  StartStep start;
  HEKLA_RETURN_IF_ERROR(fill_host_step(op, start));
  DoneStep done{start.number, start.inputs, start.outputs};
  steps.push_back({std::move(start)});
  steps.push_back({std::move(done)});
  return ok_status();
}

int64_t byte_size(const ir::Type& type) {
  return type.is_static_tensor() ? element_count(type.dims()) * dtype_bytes(type.dtype()) : 0;
}

Result<LaunchPlan> make_plan(const ir::Module& module, const PlanOptions& options,
                             const DeviceTraits& traits) {
  if (module.entry() == nullptr || module.entry()->is_declaration()) {
    return invalid_argument("the module has no entry function");
  }
  // Each round cuts the kernels that are too long.
  std::unordered_set<const ir::Operation*> cuts;
  for (;;) {
    const size_t before = cuts.size();
    Result<LaunchPlan> plan = Planner(module, options, traits, cuts).run();
    if (cuts.size() == before) return plan;
  }
}

Result<LaunchPlan> make_host_plan(std::shared_ptr<const ir::Module> module, std::string reason) {
  const ir::Function* entry = module->entry();
  if (entry == nullptr || entry->is_declaration()) {
    return invalid_argument("the module has no entry function");
  }
  using Space = Slice::Space;
  LaunchPlan plan;
  HostStep step;
  step.name = "the whole program";
  step.reason = std::move(reason);
  const auto add = [&](const std::vector<ir::Type>& types, Space space, std::vector<Slice>& slices,
                       std::vector<int64_t>& bytes) {
    for (const ir::Type& type : ir::flat_types(types)) {
      slices.push_back({space, static_cast<int32_t>(bytes.size()), 0, byte_size(type)});
      bytes.push_back(byte_size(type));
    }
  };
  add(entry->type.elements(), Space::kInput, step.inputs, plan.input_bytes);
  add(entry->type.results(), Space::kOutput, step.outputs, plan.output_bytes);
  plan.output_input.assign(plan.output_bytes.size(), -1);
  step.program = std::move(module);
  plan.steps.push_back({std::move(step)});
  return plan;
}

}  // namespace hekla::plan
