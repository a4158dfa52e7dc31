// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/one_device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/spmd/gspmd_regions.h"
#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/one_device_pass.h"
#include "backends/compiler/spmd/program_mesh.h"
#include "runtime/base/log.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

Status ToOneDevice::run() {
  ir::Function& entry = *module_.entry();
  ir::Block& block = entry.body().front();
  HEKLA_RETURN_IF_ERROR(mark_ends(block));
  if (mesh_ != nullptr) HEKLA_RETURN_IF_ERROR(propagate_given(block));
  HEKLA_RETURN_IF_ERROR(cut_parameters(block));
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end,
                         convert_block(block, block, /*is_nested=*/false));
  HEKLA_RETURN_IF_ERROR(cut_results(*end));
  block.append(std::move(end));
  // What operations name stays as it is; nobody follows constraints in there.
  for (const auto& function : module_.functions) {
    for (const auto& inner : function->body().blocks()) {
      if (function.get() != &entry) HEKLA_RETURN_IF_ERROR(convert_whole(*inner));
    }
  }
  drop_replaced();
  if (recomputer_) layout_.counts.recomputed = recomputer_->count();
  if (local_ops_) layout_.counts.rings = local_ops_->ring_count();
  std::vector<ir::Type> results;
  for (const ir::Value* value : block.terminator()->operands()) results.push_back(value->type());
  entry.type = ir::Type::function(block.argument_types(), std::move(results));
  finish_attributes(entry);
  do {
    passes::clean_up(module_);
  } while (resharder_.erase_unused());
  trace_.finish({layout_.replicas, layout_.partitions});
  log_wholes();
  if (!log_enabled(LogLevel::kVerbose)) return ok_status();
  if (const int64_t bytes = resharder_.gathered_bytes(); bytes > 0) {
    log_message(LogLevel::kVerbose,
                "program {}: each of {} partitions sends {} bytes (loops counted once); "
                "hekla compile --emit shardings shows why",
                module_.name, layout_.partitions, bytes);
  }
  return ok_status();
}

void ToOneDevice::log_wholes() const {
  if (wholes_.empty() || !log_enabled(LogLevel::kInfo)) return;
  constexpr size_t kShown = 3;
  const size_t shown = std::min(wholes_.size(), kShown);
  log_message(
      LogLevel::kInfo,
      "program {}: each of {} partitions gathers whole arrays for {}{}; hekla compile "
      "--emit shardings shows them all",
      module_.name, layout_.partitions,
      fmt::join(wholes_.begin(), wholes_.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
      wholes_.size() > shown ? fmt::format("; and {} more", wholes_.size() - shown) : "");
}

void ToOneDevice::drop_replaced() {
  for (; !replaced_.empty(); replaced_.pop_back()) replaced_.back()->set_operands({});
}

Result<Border> ToOneDevice::border(HloSharding sharding, size_t rank,
                                   const std::string& what) const {
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

Result<ir::Value*> ToOneDevice::part(ir::Value* value, const Border& border) {
  return border.tiling ? versions_.part(value, *border.tiling)
                       : versions_.part(value, border.cut, /*copies_agree=*/true);
}

Tiling ToOneDevice::tiling_of(const ir::Value* value) const {
  const auto found = tilings_.find(value);
  return found == tilings_.end() ? Tiling::replicated(value->type().dims().size()) : found->second;
}

HloSharding ToOneDevice::choice(const Tiling& given, const Dims& dims) const {
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

Status ToOneDevice::refuse_type(const std::string& what, const ir::Type& type,
                                const HloSharding& sharding) const {
  return unimplemented(
      "{} has the type {} and the sharding {}: only arrays of known shape are cut. Replicate it",
      what, type.to_string(), to_text(sharding));
}

Status ToOneDevice::cut_parameters(ir::Block& block) {
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
  for (size_t i = 0; i < block.argument_count(); ++i) {
    trace_.end(trace_.begin(fmt::format("parameter {}", i)), {block.argument(i)});
  }
  return ok_status();
}

Status ToOneDevice::cut_results(ir::Operation& end) {
  for (size_t i = 0; i < end.operand_count(); ++i) {
    ir::Value* value = end.operand(i);
    const ir::Type type = versions_.type(value);
    const std::string what = fmt::format("result {}", i);
    const size_t line = trace_.begin(what);
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
    trace_.end(line, {end.operand(i)});
    end.set_operand(i, value);
  }
  return ok_status();
}

Tiling ToOneDevice::wanted_tiling(const ir::Value* value) const {
  const auto found = tilings_.find(value);
  return found == tilings_.end() ? Tiling::replicated(versions_.type(value).dims().size())
                                 : found->second;
}

void ToOneDevice::finish_attributes(ir::Function& entry) const {
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

Status to_one_device(ir::Module& module, Layout& layout) {
  std::vector<HloSharding> given;
  for (const auto* list : {&layout.parameters, &layout.results}) {
    for (const std::optional<HloSharding>& one : *list) {
      if (one) given.push_back(*one);
    }
  }
  HEKLA_RETURN_IF_ERROR(raise_manual_regions(module, given, layout.partitions));
  mark_borders(module);
  mark_constraints(module);
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(module));
  // Their parts can be cut.
  HEKLA_RETURN_IF_ERROR(passes::expand_batch_norms(module));
  passes::fold_empty_sums(module);
  // Equal operations once, so that what they need of other devices comes once.
  passes::clean_up(module);
  mark_rolls(module.entry()->body());
  HEKLA_ASSIGN_OR_RETURN(const std::optional<PrimeMesh> mesh, mesh_of_program(module, layout));
  return ToOneDevice(module, layout, mesh ? &*mesh : nullptr).run();
}

}  // namespace hekla::spmd
