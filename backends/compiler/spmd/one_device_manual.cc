// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/one_device_pass.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

Status ToOneDevice::open_manual(std::unique_ptr<ir::Operation> op, ir::Block& block,
                                bool is_nested) {
  if (is_nested) HEKLA_RETURN_IF_ERROR(check_nested(*op));
  const auto known = manuals_.find(op.get());
  const Manual* manual = known == manuals_.end() ? nullptr : &known->second;
  ir::Block& body = op->region(0).front();
  for (size_t k = 0; k < op->operand_count(); ++k) {
    ir::Value* operand = op->operand(k);
    ir::Value* inside = body.argument(k);
    const ir::Type& type = versions_.type(operand);
    if (!type.is_static_tensor()) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(operand));
      versions_.set_whole(inside, inside->type(), whole);
    } else if (manual != nullptr) {
      HEKLA_RETURN_IF_ERROR(enter(*op, operand, inside, manual->in[k]));
    } else {
      HEKLA_ASSIGN_OR_RETURN(const Border own, own_border(*op, "in_shardings", k, type));
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const made,
                             is_nested ? versions_.part(operand, own.cut) : part(operand, own));
      HEKLA_RETURN_IF_ERROR(expect_type(*op, *made, inside->type()));
      versions_.set_whole(inside, inside->type(), made);
    }
  }
  const size_t axes_around = manual_axes_.size();
  if (manual != nullptr) {
    manual_axes_.insert(manual_axes_.end(), manual->axes.begin(), manual->axes.end());
  }
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Operation> end,
                         convert_block(body, block, /*is_nested=*/manual == nullptr));
  manual_axes_.resize(axes_around);
  for (size_t k = 0; k < op->result_count(); ++k) {
    const ir::Type& type = op->result(k)->type();
    ir::Value* inside = end->operand(k);
    if (!type.is_static_tensor()) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(inside));
      versions_.set_whole(op->result(k), type, whole);
    } else if (manual != nullptr) {
      HEKLA_RETURN_IF_ERROR(leave(*op, inside, op->result(k), manual->out[k]));
    } else {
      HEKLA_ASSIGN_OR_RETURN(Border own, own_border(*op, "out_shardings", k, type));
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, versions_.whole(inside));
      HEKLA_RETURN_IF_ERROR(expect_type(
          *op, *made, ir::Type::tensor(type.element(), own.cut.local_shape(type.dims()))));
      if (is_nested) own.tiling.reset();
      versions_.add(op->result(k), type, {std::move(own.cut), std::move(own.tiling), made});
    }
  }
  // Only operations that are replaced name the arguments still.
  for (size_t k = 0; k < op->operand_count(); ++k) {
    body.argument(k)->replace_all_uses_with(op->operand(k));
  }
  replaced_.push_back(std::move(op));
  replaced_.push_back(std::move(end));
  return ok_status();
}

Result<Border> ToOneDevice::own_border(const ir::Operation& op, const char* name, size_t k,
                                       const ir::Type& type) const {
  const size_t rank = type.dims().size();
  HEKLA_ASSIGN_OR_RETURN(ManualBorder given, manual_border(op, name, k, rank, module_));
  return border(std::move(given.own), rank, where(op));
}

Status ToOneDevice::enter(const ir::Operation& op, ir::Value* operand, ir::Value* inside,
                          const Tiling& border) {
  const ir::Type whole = versions_.type(operand);
  const ir::Type local = inside->type();
  HEKLA_RETURN_IF_ERROR(expect_type(
      op, ir::Type::tensor(whole.element(), local_shape(*mesh_, border, whole.dims())), local));
  std::vector<Tiling> ways = {joined_tiling(border, tiling_of(inside))};
  bool is_free = false;
  for (const Tiling& tiling : versions_.tilings(operand)) {
    if (!contains(ways, tiling) && tiling_inside(border, tiling)) ways.push_back(tiling);
    is_free = is_free || versions_.bytes(tiling, border, whole) == 0;
  }
  if (is_free && !contains(ways, border)) ways.push_back(border);
  bool is_at_hand = false;
  for (const Tiling& way : ways) {
    const Tiling own = *tiling_inside(border, way);
    if (!own.partial.empty() || !is_even(*mesh_, own, local.dims())) continue;
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, versions_.part(operand, way));
    versions_.add(inside, local, {mesh_->cut_of(own), own, made});
    is_at_hand = true;
  }
  if (is_at_hand) return ok_status();
  HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, versions_.part(operand, border));
  versions_.set_whole(inside, local, made);
  return ok_status();
}

Status ToOneDevice::leave(const ir::Operation& op, ir::Value* inside, const ir::Value* result,
                          const Tiling& border) {
  const ir::Type whole = result->type();
  const ir::Type local =
      ir::Type::tensor(whole.element(), local_shape(*mesh_, border, whole.dims()));
  HEKLA_RETURN_IF_ERROR(expect_type(op, versions_.type(inside), local));
  std::vector<Tiling> ways;
  for (Tiling& tiling : versions_.tilings(inside)) {
    if (is_even(*mesh_, tiling, local.dims())) ways.push_back(std::move(tiling));
  }
  if (ways.empty()) ways.push_back(Tiling::replicated(local.dims().size()));
  for (const Tiling& way : ways) {
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, versions_.part(inside, way));
    const Tiling outside = joined_tiling(border, way);
    versions_.add(result, whole, {mesh_->cut_of(outside), outside, made});
  }
  return ok_status();
}

Status ToOneDevice::check_nested(const ir::Operation& op) const {
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

Status ToOneDevice::expect_type(const ir::Operation& op, const ir::Value& value,
                                const ir::Type& type) {
  return expect_type(op, value.type(), type);
}

Status ToOneDevice::expect_type(const ir::Operation& op, const ir::Type& made,
                                const ir::Type& type) {
  if (made == type) return ok_status();
  return invalid_argument("{}: its shardings make {} of an array, not {}", where(op),
                          made.to_string(), type.to_string());
}

Result<Border> ToOneDevice::border_between(const ir::Operation& op, const ir::Type& outer,
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

Status ToOneDevice::cross_border(std::unique_ptr<ir::Operation> op, bool is_entry) {
  if (op->operand_count() != 1 || op->result_count() != 1) {
    return invalid_argument("{} has {} operands and {} results, not one each", where(*op),
                            op->operand_count(), op->result_count());
  }
  ir::Value* operand = op->operand(0);
  const ir::Type outer = is_entry ? versions_.type(operand) : op->result()->type();
  const ir::Type local = is_entry ? op->result()->type() : versions_.type(operand);
  // Of an array that is a sum over the region's axes each partition has its addend for itself.
  bool is_sum = false;
  if (outer == local && outer.is_static_tensor() && !op->attribute(kBorder).is_absent()) {
    HEKLA_ASSIGN_OR_RETURN(const HloSharding own, ir::hlo_sharding_of(op->attribute(kBorder)));
    is_sum = says_addends(own);
  }
  if (outer == local && !is_sum) {
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const whole, versions_.whole(operand));
    versions_.set_whole(op->result(), outer, whole);
    replaced_.push_back(std::move(op));
    return ok_status();
  }
  if (!outer.is_static_tensor() || !local.is_static_tensor()) {
    return invalid_argument("{} makes {} of {}: only arrays of known shape are cut", where(*op),
                            op->result()->type().to_string(), versions_.type(operand).to_string());
  }
  if (op->attribute(kBorder).is_absent()) {
    return unimplemented("{}: the array outside has no sharding that says how it is cut",
                         where(*op));
  }
  HEKLA_ASSIGN_OR_RETURN(Border own, border_between(*op, outer, local));
  if (is_entry) {
    // It may stand in another one, where copies differ.
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const made, own.tiling ? versions_.part(operand, *own.tiling)
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

}  // namespace hekla::spmd
