// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/gspmd_regions.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/convert.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::HloSharding;
using sharding::ManualAxes;
using sharding::ShardingOnMesh;
using sharding::TensorSharding;

namespace {

constexpr std::string_view kSharding = "mhlo.sharding";

// What a call becomes.
struct Raised {
  std::vector<ir::Operation*> entries;  // by operand
  std::vector<ir::Operation*> exits;    // by result; null where nobody uses it
  sharding::ShardingList in, out;       // of the entries, and of the exits that there are
  ManualAxes axes;
};

class Regions {
 public:
  Regions(ir::Module& module, sharding::Mesh mesh) : module_(module), mesh_(std::move(mesh)) {}

  void raise() {
    for (const auto& function : module_.functions) raise(function->body());
    for (const std::string& name : bodies_) free_constraints(name);
  }

 private:
  void raise(ir::Region& region) {
    for (const auto& block : region.blocks()) {
      std::vector<ir::Operation*> operations;
      for (const auto& op : block->operations()) operations.push_back(op.get());
      std::vector<std::pair<ir::Operation*, Raised>> found;
      for (ir::Operation* op : operations) {
        for (size_t r = 0; r < op->region_count(); ++r) raise(op->region(r));
        if (op->code() != OpCode::kFuncCall) continue;
        if (auto raised = region_of(*op)) found.emplace_back(op, *std::move(raised));
      }
      for (auto& [call, raised] : found) replace(*call, std::move(raised));
    }
  }

  std::optional<ShardingOnMesh> read(const ir::Attribute& given, const ir::Type& type) const {
    if (given.is_absent() || !type.is_static_tensor()) return std::nullopt;
    const Result<HloSharding> sharding = ir::hlo_sharding_of(given);
    if (!sharding.ok()) return std::nullopt;
    Result<ShardingOnMesh> read = sharding::from_hlo(*sharding, mesh_, type.dims().size());
    return read.ok() ? std::optional(*std::move(read)) : std::nullopt;
  }

  // Of the array outside.
  const ir::Attribute& border_of(const ir::Operation& op, bool is_entry) const {
    if (!is_entry) return op.attribute(kSharding);
    const ir::Value& operand = *op.operand(0);
    if (const ir::Operation* maker = operand.defining_op()) return maker->attribute(kSharding);
    for (const auto& function : module_.functions) {
      const auto i = static_cast<size_t>(operand.index());
      if (operand.argument_of()->region() == &function->body() &&
          i < function->argument_attributes.size()) {
        return function->argument_attributes[i].get(kSharding);
      }
    }
    return op.attribute("");  // absent
  }

  // Adds the border; false where it is none, or manual over other axes than those before it.
  bool add(const ir::Operation& op, bool is_entry, const ir::Attribute& inner, Raised& raised,
           std::optional<ManualAxes>& axes) const {
    if (op.operand_count() != 1 || op.result_count() != 1) return false;
    const ir::Value& outer = is_entry ? *op.operand(0) : *op.result();
    std::optional<ShardingOnMesh> outside = read(border_of(op, is_entry), outer.type());
    const std::optional<ShardingOnMesh> inside = read(inner, outer.type());
    if (!outside || !inside) return false;
    ManualAxes own = inside->manual;
    std::erase_if(own.names,
                  [&](const std::string& name) { return contains(outside->manual.names, name); });
    if (axes && !(*axes == own)) return false;
    axes = std::move(own);
    const std::vector<int64_t> open = unspecified_dimensions(op);
    for (size_t d = 0; d < outside->sharding.dimensions.size(); ++d) {
      outside->sharding.dimensions[d].is_open = contains(open, static_cast<int64_t>(d));
    }
    (is_entry ? raised.in : raised.out).values.push_back(std::move(outside->sharding));
    return true;
  }

  std::optional<Raised> region_of(const ir::Operation& call) const {
    Raised raised;
    std::optional<ManualAxes> axes;
    for (const ir::Value* operand : call.operands()) {
      ir::Operation* entry = operand->defining_op();
      if (entry == nullptr || !is_entry(*entry) ||
          !add(*entry, true, entry->attribute(kSharding), raised, axes)) {
        return std::nullopt;
      }
      raised.entries.push_back(entry);
    }
    for (size_t k = 0; k < call.result_count(); ++k) {
      const ir::Value* value = call.result(k);
      raised.exits.push_back(nullptr);
      if (!value->has_uses()) continue;
      const ir::Operation* inner = nullptr;
      ir::Operation* user = nullptr;
      do {
        if (value->users().size() != 1) return std::nullopt;
        user = value->users().front();
        if (!is_call_of(*user, "Sharding") || user->result_count() != 1) break;
        inner = user;
        value = user->result();
      } while (true);
      if (!is_exit(*user) || inner == nullptr ||
          !add(*user, false, inner->attribute(kSharding), raised, axes)) {
        return std::nullopt;
      }
      raised.exits.back() = user;
    }
    if (!axes || axes->names.empty()) return std::nullopt;
    raised.axes = *std::move(axes);
    const bool is_partial =
        std::any_of(mesh_.axes.begin(), mesh_.axes.end(), [&](const sharding::Axis& axis) {
          return axis.size > 1 && !contains(raised.axes.names, axis.name);
        });
    return is_partial ? std::optional(std::move(raised)) : std::nullopt;
  }

  void replace(ir::Operation& call, Raised raised) {
    ir::Block& block = *call.block();
    std::vector<ir::Value*> operands;
    for (const ir::Operation* entry : raised.entries) operands.push_back(entry->operand(0));
    std::vector<ir::Type> types;
    for (const ir::Operation* exit : raised.exits) {
      if (exit != nullptr) types.push_back(exit->result()->type());
    }
    ir::AttributeMap attributes;
    attributes.set("in_shardings", ir::ShardingValue{std::move(raised.in)});
    attributes.set("out_shardings", ir::ShardingValue{std::move(raised.out)});
    attributes.set("manual_axes", ir::ShardingValue{std::move(raised.axes)});
    ir::Operation* manual = block.insert_before(
        &call,
        std::make_unique<ir::Operation>(OpCode::kSdyManualComputation, std::move(operands),
                                        std::move(types), std::move(attributes), call.location()));
    ir::Block& body = manual->add_region().add_block();
    std::unique_ptr<ir::Operation> moved = block.take(&call);
    for (size_t k = 0; k < moved->operand_count(); ++k) {
      moved->set_operand(k, body.add_argument(moved->operand(k)->type()));
    }
    const ir::Operation* inner = body.append(std::move(moved));
    std::vector<ir::Value*> results;
    for (size_t k = 0; k < raised.exits.size(); ++k) {
      ir::Operation* exit = raised.exits[k];
      if (exit == nullptr) continue;
      exit->result()->replace_all_uses_with(manual->result(results.size()));
      results.push_back(inner->result(k));
      // With the constraints in front of it.
      while (exit != inner) {
        ir::Operation* before = exit->operand(0)->defining_op();
        exit->block()->erase(exit);
        exit = before;
      }
    }
    body.append(OpCode::kSdyReturn, std::move(results), {}, {}, inner->location());
    const std::set<ir::Operation*> entries(raised.entries.begin(), raised.entries.end());
    for (ir::Operation* entry : entries) {
      if (!entry->result()->has_uses()) entry->block()->erase(entry);
    }
    if (const auto* callee = inner->attribute("callee").get<ir::SymbolValue>()) {
      bodies_.insert(callee->root);
    }
  }

  // What stands in a body says nothing of the manual axes, which are taken for copies there.
  void free_constraints(const std::string& name) {
    const ir::Function* function = module_.find(name);
    if (function == nullptr || !freed_.insert(name).second) return;
    ir::walk(function->body(), [&](ir::Operation& op) {
      if (const auto* callee = op.attribute("callee").get<ir::SymbolValue>()) {
        free_constraints(callee->root);
      }
      if (!is_call_of(op, "Sharding") || op.result_count() != 1) return;
      const auto given = read(op.attribute(kSharding), op.result()->type());
      if (!given || given->manual.names.empty()) return;
      Result<HloSharding> rest =
          sharding::to_hlo(given->sharding, mesh_, op.result()->type().dims().size());
      if (rest.ok()) op.attributes().set(kSharding, ir::hlo_sharding_attribute(*std::move(rest)));
    });
  }

  ir::Module& module_;
  const sharding::Mesh mesh_;
  std::set<std::string> bodies_, freed_;  // functions
};

}  // namespace

Status raise_manual_regions(ir::Module& module, std::span<const HloSharding> shardings,
                            int64_t partitions) {
  std::vector<HloSharding> all(shardings.begin(), shardings.end());
  bool has_regions = false;
  for (const auto& function : module.functions) {
    Status status;
    ir::walk(function->body(), [&](const ir::Operation& op) {
      has_regions |= is_entry(op) || is_exit(op);
      const ir::Attribute& given = op.attribute(kSharding);
      if (given.is_absent() || !status.ok()) return;
      Result<HloSharding> sharding = ir::hlo_sharding_of(given);
      status = sharding.status().with_context(where(op));
      if (sharding.ok()) all.push_back(*std::move(sharding));
    });
    HEKLA_RETURN_IF_ERROR(status);
  }
  if (!has_regions) return ok_status();
  Result<sharding::Mesh> mesh = sharding::common_mesh(all, partitions);
  if (!mesh.ok()) return ok_status();
  Regions(module, *mesh).raise();
  module.meshes.push_back({"hekla_regions", *std::move(mesh), {}});
  return ok_status();
}

}  // namespace hekla::spmd
