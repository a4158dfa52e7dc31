// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/planner.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/lower/lower.h"
#include "backends/compiler/lower/pointwise_loop.h"
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/trip_count.h"
#include "backends/compiler/plan/cut.h"
#include "backends/compiler/plan/donation.h"
#include "backends/compiler/plan/fusion.h"
#include "backends/compiler/plan/memory.h"
#include "backends/compiler/plan/overlap.h"
#include "backends/compiler/plan/rotate.h"
#include "backends/compiler/plan/visit.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::plan {
namespace {

using ir::OpCode;
using lower::Role;
using Space = Slice::Space;

// What kernels may rely on (kernel/kernel.h).
constexpr int64_t kOperandAlignment = 16;

// Of a kernel that does iterations of a loop: its scalar instructions; instructions that a point
// executes, a tenth of a second on a slow processor, so that a device answers meanwhile; and those
// of all points.
constexpr int64_t kMostOfLoopKernel = 4000;
constexpr int64_t kMostOfPoint = int64_t{1} << 24;
constexpr int64_t kMostOfPoints = int64_t{1} << 34;
// Where kernels start quickly (device_traits.h): instructions of an iteration that depend on each
// other for long, points that keep a processor busy, and those that its caches do not hold.
constexpr int64_t kLongIteration = 40;
constexpr int64_t kSeveralPoints = 32;
constexpr int64_t kManyPoints = int64_t{1} << 16;

// A module whose entry runs one operation: its operands, and the values around it that its regions
// use, are the arguments in this order.
struct Extracted {
  std::shared_ptr<const ir::Module> module;
  std::vector<const ir::Value*> inputs;
};

void collect_captured(const ir::Operation& op, std::vector<const ir::Value*>& captured) {
  auto is_inside = [&](const ir::Block* block) {
    while (block != nullptr) {
      const ir::Operation* parent = block->region()->parent();
      if (parent == &op) return true;
      block = parent == nullptr ? nullptr : parent->block();
    }
    return false;
  };
  for (size_t i = 0; i < op.region_count(); ++i) {
    ir::walk(op.region(i), [&](const ir::Operation& inner) {
      for (const ir::Value* value : inner.operands()) {
        const ir::Block* home =
            value->defining_op() != nullptr ? value->defining_op()->block() : value->argument_of();
        if (!is_inside(home)) captured.push_back(value);
      }
    });
  }
}

Extracted extract(const ir::Module& whole, const ir::Operation& op) {
  Extracted extracted;
  std::vector<const ir::Value*> used(op.operands().begin(), op.operands().end());
  collect_captured(op, used);
  auto module = std::make_shared<ir::Module>();
  module->meshes = whole.meshes;
  auto function = std::make_unique<ir::Function>("main");
  function->visibility = ir::Function::Visibility::kPublic;
  ir::Block& block = function->body().add_block();
  ir::ValueMap map;
  std::vector<ir::Type> inputs;
  for (const ir::Value* value : used) {
    if (map.contains(value)) continue;
    map[value] = block.add_argument(value->type());
    inputs.push_back(value->type());
    extracted.inputs.push_back(value);
  }
  ir::Operation* copy = block.append(ir::clone_operation(op, map));
  std::vector<ir::Value*> results;
  for (size_t i = 0; i < copy->result_count(); ++i) results.push_back(copy->result(i));
  block.append(OpCode::kFuncReturn, results, {}, {}, op.location());
  function->type = ir::Type::function(std::move(inputs), copy->result_types());
  function->argument_attributes.resize(extracted.inputs.size());
  function->result_attributes.resize(copy->result_count());
  module->functions.push_back(std::move(function));
  if (op.attribute("called_computations")) {
    const std::unique_ptr<ir::Module> all = ir::clone_module(whole);
    for (auto& other : all->functions) {
      if (whole.entry() == nullptr || other->name() != whole.entry()->name()) {
        other->visibility = ir::Function::Visibility::kPrivate;
        if (other->name() != "main") module->functions.push_back(std::move(other));
      }
    }
  }
  extracted.module = std::move(module);
  return extracted;
}

bool has_memory(const ir::Type& type) { return type.is_static_tensor() || type.is_token(); }

class Planner {
 public:
  // `cuts`: see Fusion; grows by what would make the kernels short enough that are too long.
  Planner(const ir::Module& module, const PlanOptions& options, const DeviceTraits& traits,
          std::unordered_set<const ir::Operation*>& cuts)
      : module_(module), options_(options), traits_(traits), known_cuts_(cuts), cuts_(cuts) {}

  Result<LaunchPlan> run() {
    const ir::Function& entry = *module_.entry();
    const ir::Block& block = entry.body().front();
    for (size_t i = 0; i < block.argument_count(); ++i) {
      const ir::Type& type = block.argument(i)->type();
      if (!has_memory(type)) return no_memory(type, "argument of the entry function");
      if (is_too_large(byte_size(type))) {
        return too_large(fmt::format("argument {} of type {}", i, type.to_string()),
                         byte_size(type));
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

 private:
  static Status no_memory(const ir::Type& type, std::string_view what) {
    return unimplemented("{} of type {} has no memory in a launch plan", what, type.to_string());
  }

  lower::LowerOptions lower_options() const { return plan::lower_options(options_, traits_); }

  Slice new_buffer(int64_t bytes) {
    largest_ = std::max(largest_, bytes);
    return {Space::kArena, next_buffer_++, 0, bytes};
  }

  bool is_too_large(int64_t bytes) const {
    return traits_.max_buffer_bytes > 0 && bytes > traits_.max_buffer_bytes;
  }
  Status too_large(std::string_view what, int64_t bytes) const {
    return resource_exhausted(
        "{} takes {} bytes, more than the largest buffer of the device, {} bytes: split the array "
        "along a dimension, over several devices or in a loop over its parts",
        what, bytes, traits_.max_buffer_bytes);
  }
  // Of what was made for the operation.
  Status check_sizes(const ir::Operation& op) const {
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

  Slice add_constant(HostArray array) {
    const Slice slice{Space::kConstant, static_cast<int32_t>(plan_.constants.size()), 0,
                      array.size_bytes()};
    largest_ = std::max(largest_, slice.bytes);
    plan_.constants.push_back(std::move(array));
    return slice;
  }

  void copy(const Slice& from, const Slice& to, Steps& steps) {
    if (from == to || to.bytes == 0) return;
    steps.push_back({CopyStep{from, to}});
  }

  // Where a value is in memory; constants get there when they are asked for.
  Result<Slice> slice_of(const ir::Value& value) {
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

  // The buffer that a new value is written to.
  Slice make_slice(const ir::Value& value) {
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

  Status plan_block(const ir::Block& block, Steps& steps,
                    std::unordered_set<const ir::Value*> unwanted = {}) {
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

  // To the steps from `first` on, which are the operation's.
  static void tell_origin(const ir::Operation& op, Steps& steps, size_t first) {
    if (steps.size() == first) return;
    ir::LocationParts parts = ir::location_parts(op.location());
    if (parts.name.empty() && parts.place.empty()) return;
    const auto origin = std::make_shared<const ir::LocationParts>(std::move(parts));
    for (size_t i = first; i < steps.size(); ++i) {
      if (steps[i].origin == nullptr) steps[i].origin = origin;
    }
  }

  Status plan_operation(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
    if (fusion.is_unwanted(op)) return ok_status();
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (!has_memory(op.result(i)->type())) return no_memory(op.result(i)->type(), op.name());
    }
    if (op.result_count() > 0 && op.result()->has_uses()) add_decision(op, fusion);
    const Role role = fusion.role(op);
    if (role == Role::kNone) {
      switch (op.code()) {
        case OpCode::kWhile:
          return plan_while(op, steps);
        case OpCode::kIf:
        case OpCode::kCase:
          return plan_branch(op, steps);
        case OpCode::kAfterAll:
        case OpCode::kCreateToken:
          make_slice(*op.result());  // of no bytes: the order of steps is the program's
          return ok_status();
        case OpCode::kReplicaId:
          slices_[op.result()] = {Space::kLaunch, 0, kReplicaOffset,
                                  byte_size(op.result()->type())};
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

  void add_decision(const ir::Operation& op, const Fusion& fusion) {
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
  void add_decision(Decision decision) {
    auto& all = plan_.decisions;
    if (std::find(all.begin(), all.end(), decision) == all.end())
      all.push_back(std::move(decision));
  }

  Status plan_contraction(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
    const ir::Value& output = fusion.output_of(op);
    if (!fusion.is_stored(output)) return ok_status();
    Result<lower::LoweredContraction> lowered = lower::lower_contraction(
        op, [&](const ir::Value& value) { return fusion.in_memory(value); }, output,
        lower_options());
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

  Status plan_kernel(const ir::Operation& op, const std::vector<const ir::Value*>& outputs,
                     const Fusion& fusion, Steps& steps) {
    auto in_memory = [&](const ir::Value& value) { return fusion.in_memory(value); };
    // Of one operation alone there is nothing to cut.
    const std::vector<const ir::Operation*> inside = fusion.computed_for(outputs);
    lower::LowerOptions lower_options = this->lower_options();
    if (inside.size() > 1 && !fusion.is_attention(op)) {
      lower_options.max_instructions = options_.max_instructions;
    }
    Result<lower::LoweredSequence> lowered =
        lower::lower_sequence(outputs, in_memory, lower_options);
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

  // A kernel of several outputs becomes one for each. Of another, which is `size` instructions
  // long, values are stored so that what is computed between them is as much as fits a kernel.
  void cut(const std::vector<const ir::Operation*>& inside,
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

  // `result`, which `op` updates in part, begins as a copy of `from` or takes its memory over.
  Status copy_or_take(const ir::Operation& op, const ir::Value& from, const ir::Value& result,
                      const Fusion& fusion, Steps& steps) {
    HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(from));
    if (wanted_.find(&result) == wanted_.end() && may_overwrite(op, from, fusion)) {
      slices_[&result] = slice;
    } else {
      copy(slice, make_slice(result), steps);
    }
    return ok_status();
  }

  Status add_kernel(lower::LoweredKernel lowered, Steps& steps,
                    const std::vector<Slice>& temporaries = {},
                    const std::vector<Slice>& constants = {}) {
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

  // Whether `op` is the last to use the memory of its operand `value`, which it may then overwrite.
  bool may_overwrite(const ir::Operation& op, const ir::Value& value, const Fusion& fusion) {
    if (!options_.reuse_memory) return false;
    const auto it = slices_.find(&value);
    if (shared_.contains(&value)) return false;
    if (it == slices_.end() || it->second.space == Space::kInput ||
        it->second.space == Space::kConstant || it->second.space == Space::kLaunch) {
      return false;
    }
    const ir::Block* home =
        value.defining_op() != nullptr ? value.defining_op()->block() : value.argument_of();
    if (home != op.block()) return false;
    int uses = 0;
    for (const ir::Value* operand : op.operands()) uses += operand == &value;
    if (uses != 1) return false;
    // Users stand before this operation, or are it; those in regions of a later one do not.
    for (const ir::Operation* user : value.users()) {
      if (user == &op) continue;
      const ir::Operation* at = user;
      while (at != nullptr && at->block() != home) at = at->parent_op();
      if (at == nullptr || order_of(*at) > order_of(op)) return false;
      // A reader that is computed inside a later kernel reads later.
      if (fusion.role(*at) != Role::kNone && !slices_.contains(at->result())) return false;
    }
    return true;
  }

  int64_t order_of(const ir::Operation& op) {
    auto& order = orders_[op.block()];
    if (order.empty()) {
      int64_t next = 0;
      for (const auto& each : op.block()->operations()) order[each.get()] = next++;
    }
    return order[&op];
  }

  Status plan_update(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
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
    const bool reads_target =
        std::any_of(lowered->operands.begin(), lowered->operands.end(), [&](const auto& bound) {
          return !bound.is_output && slices_.contains(bound.value) &&
                 slices_[bound.value] == slices_[op.result()];
        });
    if (is_part) {
      const Slice to = reads_target ? new_buffer(part->bytes) : *part;
      slices_[update] = to;
      HEKLA_RETURN_IF_ERROR(add_kernel(std::move(*lowered), steps));
      slices_.erase(update);
      copy(to, *part, steps);
      return ok_status();
    }
    if (reads_target) {
      // The update is computed from what it overwrites: through a buffer of its own.
      const Slice shared = slices_[op.result()];
      const Slice own = new_buffer(shared.bytes);
      copy(shared, own, steps);
      slices_[op.result()] = own;
    }
    return add_kernel(std::move(*lowered), steps);
  }

  // `step`: a HostStep or a StartStep.
  Status fill_host_step(const ir::Operation& op, auto& step) {
    for (const ir::Value* value : op.operands()) {
      if (!has_memory(value->type())) return no_memory(value->type(), op.name());
    }
    Extracted extracted = extract(module_, op);
    step.name = op.name();
    if (op.code() == OpCode::kCustomCall)
      step.name += " @" + ir::text_value(op, "call_target_name");
    step.program = std::move(extracted.module);
    for (const ir::Value* value : extracted.inputs) {
      HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*value));
      step.inputs.push_back(slice);
    }
    for (size_t i = 0; i < op.result_count(); ++i)
      step.outputs.push_back(make_slice(*op.result(i)));
    return ok_status();
  }

  Status plan_host_step(const ir::Operation& op, Steps& steps) {
    HostStep step;
    step.reason = lower::why_no_kernel(op);
    HEKLA_RETURN_IF_ERROR(fill_host_step(op, step));
    steps.push_back({std::move(step)});
    return ok_status();
  }

  Status plan_collective(const ir::Operation& op, Steps& steps) {
    StartStep start;
    HEKLA_RETURN_IF_ERROR(fill_host_step(op, start));
    DoneStep done{start.number, start.inputs, start.outputs};
    steps.push_back({std::move(start)});
    steps.push_back({std::move(done)});
    return ok_status();
  }

  // Copies each of `from` to the slice of the same number in `to`, as if all at once.
  void copy_all(const std::vector<Slice>& from, const std::vector<Slice>& to, Steps& steps) {
    std::vector<Slice> sources = from;
    for (size_t i = 0; i < from.size(); ++i) {
      for (size_t k = 0; k < to.size(); ++k) {
        if (k != i && from[i] == to[k] && !(from[i] == to[i])) {
          sources[i] = new_buffer(from[i].bytes);
          copy(from[i], sources[i], steps);
          break;
        }
      }
    }
    for (size_t i = 0; i < to.size(); ++i) copy(sources[i], to[i], steps);
  }

  // Whether carried value `i` serves only to count: nobody else looks at it.
  static bool only_counts(const ir::Operation& loop, size_t i) {
    const ir::Block& body = loop.region(1).front();
    const ir::Value* counter = body.argument(i);
    const ir::Value* next = body.terminator()->operand(i);
    if (loop.result(i)->has_uses() || next->defining_op() == nullptr) return false;
    return counter->users().size() == 1 && counter->users()[0] == next->defining_op() &&
           next->defining_op()->block() == &body && next->users().size() == 1 &&
           passes::is_pure(*next->defining_op()) && next->defining_op()->result_count() == 1;
  }

  // How many iterations of a loop one kernel may do, of `count`; 0: none.
  Result<int64_t> iterations_at_once(const lower::PointwiseLoop& loop, int64_t count) const {
    Result<lower::LoweredKernel> one = lower::lower_pointwise_loop(loop, 1, true, lower_options());
    if (!one.ok()) return one.status();
    const kernel::Function& body = one->kernel.body;
    const auto size = static_cast<int64_t>(body.size());
    if (size > kMostOfLoopKernel) return 0;
    if (options_.small_limits) return std::min<int64_t>(count, 3);
    if (traits_.starts_kernels_quickly && size > kLongIteration && loop.points > kSeveralPoints &&
        loop.points < kManyPoints) {
      return 0;
    }
    int64_t most = std::min(kMostOfPoint / size, kMostOfPoints / size / loop.points);
    if (traits_.max_loop_iterations > 0) {
      const auto& all = body.instructions();
      const auto loops = std::count_if(all.begin(), all.end(), [](const auto& instruction) {
        return instruction.op == kernel::Op::kFor;
      });
      // Inner ones have at most 64 trips each; and an invocation may have several points.
      constexpr int64_t kMostTrips = 65, kPoints = 4;
      most = std::min(most, traits_.max_loop_iterations / kPoints / (1 + (loops - 1) * kMostTrips));
    }
    return most < 2 && most < count ? 0 : std::min(most, count);
  }

  // All iterations, or as many as may be at once, as one kernel; false: it takes steps.
  Result<bool> plan_pointwise_loop(const ir::Operation& op, int64_t count, Steps& steps) {
    kernel::Refusal why;
    const auto loop = lower::find_pointwise_loop(
        op, [&](size_t i) { return only_counts(op, i); }, lower_options(), why);
    int64_t at_once = 0;
    if (loop) {
      const Result<int64_t> most = iterations_at_once(*loop, count);
      if (most.ok()) at_once = *most;
      if (at_once == 0)
        why = most.ok() ? "an iteration is much work for many points" : most.status().message();
    }
    kernel::Implementations ways;
    ways.ask("iterations in a kernel", why);
    ways.ask("steps for each iteration", "");
    add_decision({fmt::format("{} of {} trips", op.name(), count), ways.take()});
    if (at_once == 0) return false;

    using Kind = lower::PointwiseLoop::Kind;
    const ir::Block& body = op.region(1).front();
    const int64_t rounds = (count - 1) / at_once;
    std::vector<size_t> changing;
    std::vector<Slice> current, next;
    for (size_t i = 0; i < loop->kinds.size(); ++i) {
      if (loop->kinds[i] == Kind::kUnwanted) continue;
      HEKLA_ASSIGN_OR_RETURN(const Slice from, slice_of(*op.operand(i)));
      slices_[body.argument(i)] = from;
      if (loop->kinds[i] == Kind::kFixed) {
        slices_[op.result(i)] = from;
        for (const ir::Value* value : {op.operand(i), body.argument(i), op.result(i)}) {
          shared_.insert(value);
        }
      } else if (loop->kinds[i] == Kind::kRows) {
        copy(from, make_slice(*op.result(i)), steps);
      } else {
        changing.push_back(i);
        if (rounds == 0) continue;
        current.push_back(new_buffer(from.bytes));
        next.push_back(new_buffer(from.bytes));
        copy(from, current.back(), steps);
      }
    }
    if (rounds > 0) {
      for (size_t k = 0; k < changing.size(); ++k) {
        slices_[body.argument(changing[k])] = current[k];
        slices_[op.result(changing[k])] = next[k];
      }
      Result<lower::LoweredKernel> some =
          lower::lower_pointwise_loop(*loop, at_once, true, lower_options());
      if (!some.ok()) return some.status();
      RepeatStep repeat;
      repeat.count = rounds;
      HEKLA_RETURN_IF_ERROR(add_kernel(std::move(*some), repeat.body));
      for (size_t k = 0; k < changing.size(); ++k) copy(next[k], current[k], repeat.body);
      steps.push_back({std::move(repeat)});
    }
    for (const size_t i : changing) {
      if (op.result(i)->has_uses()) make_slice(*op.result(i));
    }
    Result<lower::LoweredKernel> rest =
        lower::lower_pointwise_loop(*loop, count - rounds * at_once, false, lower_options());
    if (!rest.ok()) return rest.status();
    HEKLA_RETURN_IF_ERROR(add_kernel(std::move(*rest), steps));
    return true;
  }

  Status plan_while(const ir::Operation& op, Steps& steps) {
    const ir::Block& condition = op.region(0).front();
    const ir::Block& body = op.region(1).front();
    const int64_t count = passes::trip_count(op);
    const bool is_counted = count >= 0;
    if (options_.fuse && count > 0) {
      HEKLA_ASSIGN_OR_RETURN(const bool is_planned, plan_pointwise_loop(op, count, steps));
      if (is_planned) return ok_status();
    }
    std::unordered_set<const ir::Value*> unwanted;
    std::vector<Slice> initial, carried;
    std::vector<size_t> changing;
    for (size_t i = 0; i < op.operand_count(); ++i) {
      if (is_counted && only_counts(op, i)) {
        unwanted.insert(body.terminator()->operand(i));
        continue;
      }
      HEKLA_ASSIGN_OR_RETURN(const Slice from, slice_of(*op.operand(i)));
      Slice mine;
      if (body.terminator()->operand(i) == body.argument(i)) {
        // It stays what it is: one slice for it before, in and after the loop.
        mine = from;
        slices_[op.result(i)] = mine;
        for (const ir::Value* value :
             {op.operand(i), body.argument(i), condition.argument(i), op.result(i)}) {
          shared_.insert(value);
        }
      } else {
        mine = make_slice(*op.result(i));
        initial.push_back(from);
        carried.push_back(mine);
        changing.push_back(i);
      }
      slices_[condition.argument(i)] = mine;
      slices_[body.argument(i)] = mine;
    }
    copy_all(initial, carried, steps);
    WhileStep loop;
    if (!is_counted) {
      HEKLA_RETURN_IF_ERROR(plan_block(condition, loop.condition));
      HEKLA_ASSIGN_OR_RETURN(loop.predicate, slice_of(*condition.terminator()->operand(0)));
    }
    HEKLA_RETURN_IF_ERROR(plan_block(body, loop.body, std::move(unwanted)));
    std::vector<Slice> next;
    for (const size_t i : changing) {
      HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*body.terminator()->operand(i)));
      next.push_back(slice);
    }
    copy_all(next, carried, loop.body);
    if (is_counted) {
      steps.push_back({RepeatStep{count, std::move(loop.body)}});
    } else {
      steps.push_back({std::move(loop)});
    }
    return ok_status();
  }

  Status plan_branch(const ir::Operation& op, Steps& steps) {
    BranchStep branch;
    HEKLA_ASSIGN_OR_RETURN(branch.selector, slice_of(*op.operand(0)));
    std::vector<Slice> results;
    for (size_t i = 0; i < op.result_count(); ++i) results.push_back(make_slice(*op.result(i)));
    for (size_t r = 0; r < op.region_count(); ++r) {
      Steps inner;
      const ir::Block& block = op.region(r).front();
      HEKLA_RETURN_IF_ERROR(plan_block(block, inner));
      std::vector<Slice> values;
      for (const ir::Value* value : block.terminator()->operands()) {
        HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*value));
        values.push_back(slice);
      }
      copy_all(values, results, inner);
      branch.branches.push_back(std::move(inner));
    }
    steps.push_back({std::move(branch)});
    return ok_status();
  }

  const ir::Module& module_;
  const PlanOptions options_;
  const DeviceTraits traits_;
  const std::unordered_set<const ir::Operation*> known_cuts_;
  std::unordered_set<const ir::Operation*>& cuts_;
  LaunchPlan plan_;
  std::unordered_map<const ir::Value*, Slice> slices_;
  std::unordered_map<const ir::Value*, Slice> wanted_;  // outputs, by the value returned first
  std::unordered_set<const ir::Value*> shared_;         // in slices that other values have as well
  std::unordered_map<std::string, int32_t> kernels_;
  std::unordered_map<const ir::Block*, std::unordered_map<const ir::Operation*, int64_t>> orders_;
  int32_t next_buffer_ = 0;
  int64_t largest_ = 0;  // bytes of a buffer
};

}  // namespace

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
