// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/plan/cut.h"
#include "backends/compiler/plan/planner.h"
#include "backends/compiler/plan/planner_parts.h"
#include "backends/compiler/plan/visit.h"
#include "runtime/program/ir/uses.h"

namespace hekla::plan {
namespace {

using ir::OpCode;
using lower::Role;

// What kernels may rely on (kernel/kernel.h).
constexpr int64_t kOperandAlignment = 16;

}  // namespace

void Planner::add_decision(const ir::Operation& op, const Fusion& fusion) {
  const std::vector<kernel::Implementation>* asked = fusion.asked(op);
  if (asked == nullptr) return;
  Decision decision{std::string(op.name()), *asked};
  for (size_t i = 0; i < op.operand_count(); ++i) {
    decision.operation += (i == 0 ? " " : ", ") + op.operand(i)->type().to_string();
  }
  decision.operation += " -> " + op.result()->type().to_string();
  if (op.code() == OpCode::kDotGeneral || op.code() == OpCode::kConvolution) {
    const auto algorithm = lower::algorithm_of(op);
    if (algorithm.ok()) decision.operation += ", " + kernel::to_string(*algorithm);
  }
  add_decision(std::move(decision));
}

void Planner::add_decision(Decision decision) {
  auto& all = plan_.decisions;
  if (std::find(all.begin(), all.end(), decision) == all.end()) all.push_back(std::move(decision));
}

Status Planner::plan_contraction(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
  const ir::Value& output = fusion.output_of(op);
  if (!fusion.is_stored(output)) return ok_status();
  Result<lower::LoweredContraction> lowered = lower::lower_contraction(
      op, [&](const ir::Value& value) { return fusion.in_memory(value); }, output, lower_options());
  if (!lowered.ok()) {
    return internal_error("{} is no contraction: {}", op.name(), lowered.status().message());
  }
  ContractionStep step;
  HEKLA_ASSIGN_OR_RETURN(step.lhs, slice_of(*lowered->lhs));
  HEKLA_ASSIGN_OR_RETURN(step.rhs, slice_of(*lowered->rhs));
  step.out = make_slice(output);
  auto& all = plan_.contractions;
  const auto it = std::find(all.begin(), all.end(), lowered->contraction);
  step.contraction = static_cast<int32_t>(it - all.begin());
  if (it == all.end()) all.push_back(std::move(lowered->contraction));
  steps.push_back({step});
  return ok_status();
}

Status Planner::plan_kernel(const ir::Operation& op, const std::vector<const ir::Value*>& outputs,
                            const Fusion& fusion, Steps& steps) {
  auto in_memory = [&](const ir::Value& value) { return fusion.in_memory(value); };
  // Of one operation alone there is nothing to cut.
  const std::vector<const ir::Operation*> inside = fusion.computed_for(outputs);
  lower::LowerOptions lower_options = this->lower_options();
  if (inside.size() > 1 && !fusion.is_attention(op)) {
    lower_options.max_instructions = options_.max_instructions;
  }
  Result<lower::LoweredSequence> lowered = lower::lower_sequence(outputs, in_memory, lower_options);
  if (lowered.status().code() == StatusCode::kResourceExhausted && inside.size() > 1) {
    lower_options.max_instructions = std::numeric_limits<size_t>::max();
    lowered = lower::lower_sequence(outputs, in_memory, lower_options);
    size_t size = 0;
    if (lowered.ok()) {
      for (const auto& each : lowered->kernels) size = std::max(size, each.kernel.body.size());
    }
    cut(inside, outputs, size);
    for (const ir::Value* output : outputs) make_slice(*output);
    return ok_status();
  }
  if (!lowered.ok()) {
    return lowered.status().with_context(ir::location_string(op.location()));
  }
  for (const lower::LoweredSequence::Copy& each : lowered->copies) {
    HEKLA_RETURN_IF_ERROR(copy_or_take(op, *each.from, *each.to, fusion, steps));
  }
  for (const ir::Value* output : outputs) {
    if (!slices_.contains(output)) make_slice(*output);
  }
  std::vector<Slice> temporaries, constants;
  for (int64_t bytes : lowered->temporaries) temporaries.push_back(new_buffer(bytes));
  for (HostArray& array : lowered->constants) constants.push_back(add_constant(std::move(array)));
  for (lower::LoweredKernel& each : lowered->kernels) {
    HEKLA_RETURN_IF_ERROR(add_kernel(std::move(each), steps, temporaries, constants));
  }
  return ok_status();
}

void Planner::cut(const std::vector<const ir::Operation*>& inside,
                  const std::vector<const ir::Value*>& outputs, size_t size) {
  std::unordered_set<const ir::Operation*> roots;
  for (const ir::Value* output : outputs) roots.insert(output->defining_op());
  if (roots.size() > 1) {
    cuts_.insert(roots.begin(), roots.end());
    return;
  }
  const double part = static_cast<double>(options_.max_instructions) /
                      static_cast<double>(std::max<size_t>(size, 1));
  const double most = size == 0 ? 1 : part * static_cast<double>(inside.size());
  add_cuts(inside, static_cast<size_t>(std::max(most, 1.0)), cuts_);
}

Status Planner::copy_or_take(const ir::Operation& op, const ir::Value& from,
                             const ir::Value& result, const Fusion& fusion, Steps& steps) {
  HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(from));
  if (may_take(op, from, result, fusion)) {
    slices_[&result] = slice;
  } else {
    copy(slice, make_slice(result), steps);
  }
  return ok_status();
}

Status Planner::add_kernel(lower::LoweredKernel lowered, Steps& steps,
                           const std::vector<Slice>& temporaries,
                           const std::vector<Slice>& constants) {
  KernelStep step;
  for (const lower::BoundOperand& bound : lowered.operands) {
    if (bound.value == nullptr) {
      step.operands.push_back(bound.temporary < 0
                                  ? constants[static_cast<size_t>(bound.constant)]
                                  : temporaries[static_cast<size_t>(bound.temporary)]);
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*bound.value));
    step.operands.push_back(slice);
  }
  if (lowered.transform) {
    const std::vector<Slice>& slices = step.operands;
    steps.push_back(
        {TransformStep{*std::move(lowered.transform), slices[0], slices[1], slices[2]}});
    return ok_status();
  }
  const std::string text = kernel::to_string(lowered.kernel);
  auto [it, is_new] = kernels_.emplace(text, static_cast<int32_t>(plan_.kernels.size()));
  if (is_new) plan_.kernels.push_back(std::move(lowered.kernel));
  step.kernel = it->second;
  steps.push_back({std::move(step)});
  return ok_status();
}

bool Planner::may_overwrite(const ir::Operation& op, const ir::Value& value, const Fusion& fusion) {
  if (!options_.reuse_memory) return false;
  const auto it = slices_.find(&value);
  if (shared_.contains(&value)) return false;
  if (it == slices_.end() || it->second.space == Space::kInput ||
      it->second.space == Space::kConstant || it->second.space == Space::kLaunch) {
    return false;
  }
  const auto lent = lent_.find(&value);
  const ir::Block* home = lent != lent_.end() ? lent->second : ir::block_of(value);
  if (home != op.block()) return false;
  const bool is_branch = op.code() == OpCode::kIf || op.code() == OpCode::kCase;
  const auto uses = std::ranges::count(op.operands(), &value);
  if (uses != (is_branch ? 0 : 1)) return false;
  // Users stand before this operation, or are it; those in regions of a later one do not.
  for (const ir::Operation* user : value.users()) {
    if (user == &op) continue;
    const ir::Operation* at = user;
    while (at != nullptr && at->block() != home) at = at->parent_op();
    if (at == nullptr && lent != lent_.end()) continue;  // before the branch, or in another region
    if (at == nullptr || order_of(*at) > order_of(op)) return false;
    if (at == &op && !is_branch) return false;  // its regions use it all the while
    if (!has_run_before(*at, op, fusion)) return false;
  }
  return true;
}

bool Planner::has_run_before(const ir::Operation& reader, const ir::Operation& op,
                             const Fusion& fusion) {
  // Kernels compute what they read on the way: so does each of those that use it.
  std::vector<const ir::Operation*> open{&reader};
  std::unordered_set<const ir::Operation*> seen{&reader};
  while (!open.empty()) {
    const ir::Operation& one = *open.back();
    open.pop_back();
    if (order_of(one) > order_of(op)) return false;
    if (fusion.role(one) == Role::kNone) continue;
    // It may have a place for some of its results already.
    if (&one == &op) {
      if (lower::feeds_its_window(reader, op)) continue;
      return false;
    }
    if (slices_.contains(one.result())) continue;
    if (fusion.is_stored(*one.result())) return false;
    for (const ir::Operation* user : one.result()->users()) {
      while (user != nullptr && user->block() != op.block()) user = user->parent_op();
      if (user == nullptr) return false;
      if (seen.insert(user).second) open.push_back(user);
    }
  }
  return true;
}

int64_t Planner::order_of(const ir::Operation& op) {
  auto& order = orders_[op.block()];
  if (order.empty()) {
    int64_t next = 0;
    for (const auto& each : op.block()->operations()) order[each.get()] = next++;
  }
  return order[&op];
}

Status Planner::plan_update(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
  auto in_memory = [&](const ir::Value& value) { return fusion.in_memory(value); };
  const bool is_empty = element_count(op.operand(1)->type().dims()) == 0;
  HEKLA_RETURN_IF_ERROR(copy_or_take(op, *op.operand(0), *op.result(), fusion, steps));
  if (is_empty) return ok_status();
  const std::vector<const ir::Operation*> inside = fusion.computed_for({op.result()});
  lower::LowerOptions lower_options = this->lower_options();
  if (inside.size() > 1) lower_options.max_instructions = options_.max_instructions;
  const ir::Value* update = op.operand(1);
  while (!fusion.in_memory(*update) && lower::keeps_row_major_order(*update->defining_op())) {
    update = update->defining_op()->operand(0);
  }
  // A part of the result's memory, where nothing about the whole matters to what is written.
  std::optional<Slice> part;
  if (const auto place = lower::fixed_place(op)) {
    part = slices_[op.result()];
    part->offset += *place * dtype_bytes(op.result()->type().dtype());
    part->bytes = byte_size(op.operand(1)->type());
  }
  if (part && fusion.in_memory(*update)) {
    HEKLA_ASSIGN_OR_RETURN(Slice from, slice_of(*update));
    if (buffer_of(from) == buffer_of(*part) && !(from == *part)) {
      const Slice own = new_buffer(from.bytes);
      copy(from, own, steps);
      from = own;
    }
    copy(from, *part, steps);
    return ok_status();
  }
  const bool is_part = part && part->offset % kOperandAlignment == 0;
  Result<lower::LoweredKernel> lowered =
      is_part ? lower::lower_kernel({update}, in_memory, lower_options)
              : lower::lower_update_in_place(op, in_memory, lower_options);
  if (lowered.status().code() == StatusCode::kResourceExhausted && inside.size() > 1) {
    lower_options.max_instructions = std::numeric_limits<size_t>::max();
    lowered = lower::lower_update_in_place(op, in_memory, lower_options);
    cut(inside, {op.result()}, lowered.ok() ? lowered->kernel.body.size() : 0);
    return ok_status();
  }
  if (!lowered.ok()) {
    return lowered.status().with_context(ir::location_string(op.location()));
  }
  // But for points that read what they alone write.
  bool reads_target = false;
  for (size_t i = 0; i < lowered->operands.size(); ++i) {
    const lower::BoundOperand& bound = lowered->operands[i];
    reads_target = reads_target || (!bound.is_output && slices_.contains(bound.value) &&
                                    slices_[bound.value] == slices_[op.result()] &&
                                    (is_part || !lowered->kernel.operands[i].is_pointwise));
  }
  if (is_part) {
    const Slice to = reads_target ? new_buffer(part->bytes) : *part;
    slices_[update] = to;
    HEKLA_RETURN_IF_ERROR(add_kernel(std::move(*lowered), steps));
    slices_.erase(update);
    copy(to, *part, steps);
    return ok_status();
  }
  if (reads_target) {
    // Some point reads what another one writes: the windows that it reads are stored after all.
    const size_t known = cuts_.size();
    for (const ir::Operation* one : inside) {
      if (lower::feeds_its_window(*one, op)) cuts_.insert(one);
    }
    if (cuts_.size() > known) return ok_status();
    // The update is computed from what it overwrites: through a buffer of its own.
    const Slice shared = slices_[op.result()];
    const Slice own = new_buffer(shared.bytes);
    copy(shared, own, steps);
    slices_[op.result()] = own;
  }
  return add_kernel(std::move(*lowered), steps);
}

}  // namespace hekla::plan
