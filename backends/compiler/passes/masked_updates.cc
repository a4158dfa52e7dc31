// SPDX-License-Identifier: Apache-2.0
// Updates that a select takes or leaves: `where(flag, x.at[i].set(y), x)`, and what a batch makes
// of branches and of loops whose examples end at different times. The rest of the array is the same
// either way, so what is selected is the update: the old elements are written, or none.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/uses.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Operation;
using ir::Value;
using Numbers = std::vector<int64_t>;

// On which dimensions of an array a mask depends: places[i] is dimension i of what it is made of,
// which has `dims` elements. On none: it is one flag.
struct Mask {
  Numbers places;
  Dims dims;
  bool operator==(const Mask&) const = default;
};

class MaskedUpdates {
 public:
  MaskedUpdates(ir::Block& block, const WindowLimits& limits) : block_(block), limits_(limits) {}

  Status run() {
    std::vector<Operation*> order;
    for (const auto& op : block_.operations()) order.push_back(op.get());
    for (Operation* op : order) {
      if (op->code() == OpCode::kSelect) HEKLA_RETURN_IF_ERROR(rewrite(*op));
    }
    return ok_status();
  }

 private:
  Status rewrite(Operation& select) {
    if (!has_plain_types(select) || !ir::is_only_passed_on(*select.result())) return ok_status();
    for (const size_t side : {size_t{1}, size_t{2}}) {
      Value* kept = select.operand(3 - side);
      const std::vector<Operation*> updates = updates_of(*kept, *select.operand(side), select);
      if (updates.empty() || !ir::is_stored(*kept)) continue;
      GraphBuilder g(block_, &select, select.location());
      Value* array = kept;
      for (Operation* update : updates) {
        array = update->code() == OpCode::kScatter ? add_scatter(g, select, *update, array, side)
                                                   : add_window(g, select, *update, array, side);
      }
      HEKLA_RETURN_IF_ERROR(g.status());
      select.result()->replace_all_uses_with(array);
      block_.erase(&select);
      break;
    }
    return ok_status();
  }

  // What makes `updated` of `kept`, the first one first; none where something else does, or where
  // somebody looks at what is in between.
  std::vector<Operation*> updates_of(const Value& kept, const Value& updated,
                                     const Operation& select) const {
    std::vector<Operation*> updates;
    const Value* value = &updated;
    while (value != &kept) {
      Operation* op = value->defining_op();
      if (op == nullptr || op->block() != &block_ || value->users().size() != 1 ||
          !can_be_masked(*op, *select.operand(0))) {
        return {};
      }
      updates.push_back(op);
      value = op->operand(0);
    }
    std::reverse(updates.begin(), updates.end());
    return updates;
  }

  bool can_be_masked(const Operation& op, const Value& pred) const {
    if (op.result_count() != 1 || !has_plain_types(op)) return false;
    const int64_t points = element_count(op.result()->type().dims());
    if (op.code() == OpCode::kDynamicUpdateSlice) {
      return limits_.is_little(element_count(op.operand(1)->type().dims()), points);
    }
    return op.code() == OpCode::kScatter && points >= limits_.least_updated &&
           has_place_outside(op) && mask_of_indices(op, mask_of(pred)).has_value();
  }

  // ---- windows

  Value* add_window(GraphBuilder& g, const Operation& select, const Operation& update, Value* array,
                    size_t side) const {
    const GraphBuilder::Values starts(update.operands().begin() + 2, update.operands().end());
    const Dims& size = update.operand(1)->type().dims();
    Value* pred = select.operand(0);
    Value* mask = pred->type().rank() == 0 ? g.broadcast(pred, size, {})
                                           : g.dynamic_slice(pred, starts, size);
    Value* old = g.dynamic_slice(array, starts, size);
    return g.dynamic_update_slice(array, chosen(g, mask, update.operand(1), old, side), starts);
  }

  static Value* chosen(GraphBuilder& g, Value* mask, Value* updated, Value* kept, size_t side) {
    return side == 1 ? g.select(mask, updated, kept) : g.select(mask, kept, updated);
  }

  // ---- scatters

  // Nothing is written at an index of -1, or of the largest unsigned number.
  static bool has_place_outside(const Operation& scatter) {
    const DType dtype = scatter.operand(1)->type().dtype();
    const auto* n =
        scatter.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
    return n != nullptr && !n->scatter_dims_to_operand_dims.empty() &&
           (is_signed_integer(dtype) || (is_unsigned_integer(dtype) && dtype_bytes(dtype) >= 4));
  }

  // What a batch of branches is chosen by is often computed of broadcasts, not broadcast.
  static Mask mask_of(const Value& value, int depth = 0) {
    const Operation* op = value.defining_op();
    if (op != nullptr && op->code() == OpCode::kBroadcastInDim) {
      return {ir::int_list(*op, "broadcast_dimensions"), op->operand(0)->type().dims()};
    }
    if (ir::is_one_number(value)) return {};
    constexpr int kDeepest = 4;
    if (op != nullptr && ir::is_elementwise(op->code()) && depth < kDeepest) {
      std::optional<Mask> all;
      bool is_same = true;
      for (const Value* operand : op->operands()) {
        if (ir::is_one_number(*operand)) continue;
        const Mask mask = mask_of(*operand, depth + 1);
        is_same = is_same && (!all || *all == mask);
        all = mask;
      }
      if (is_same && all) return *all;
    }
    return whole(value);
  }

  static Mask whole(const Value& value) {
    Mask mask{{}, value.type().dims()};
    for (int64_t d = 0; d < value.type().rank(); ++d) mask.places.push_back(d);
    return mask;
  }

  // `value`, which is made as `mask` says, before it is broadcast.
  static Value* narrowed(GraphBuilder& g, Value& value, const Mask& mask) {
    if (mask == whole(value)) return &value;
    const Operation& op = *value.defining_op();
    if (op.code() == OpCode::kBroadcastInDim) return op.operand(0);
    if (const ir::DenseValue* dense = ir::constant_value(value)) {
      return g.broadcast(g.constant(dense->values.with_shape(dense->values.dtype(), {})), mask.dims,
                         {});
    }
    GraphBuilder::Values operands;
    for (Value* operand : op.operands()) operands.push_back(narrowed(g, *operand, mask));
    return g.make(op.code(), operands, op.attributes(),
                  ir::Type::tensor(value.type().dtype(), mask.dims));
  }

  // Where the dimensions of the mask that have several elements lie in the indices: all are of a
  // batch. Nullopt otherwise.
  static std::optional<Numbers> mask_of_indices(const Operation& scatter, const Mask& mask) {
    const auto& n =
        *scatter.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
    Numbers places;
    for (size_t i = 0; i < mask.places.size(); ++i) {
      if (mask.dims[i] == 1) continue;
      const auto it = std::ranges::find(n.input_batching_dims, mask.places[i]);
      if (it == n.input_batching_dims.end()) return std::nullopt;
      const auto batch = static_cast<size_t>(it - n.input_batching_dims.begin());
      places.push_back(n.scatter_indices_batching_dims[batch]);
    }
    if (!std::ranges::is_sorted(places)) return std::nullopt;
    return places;
  }

  Value* add_scatter(GraphBuilder& g, const Operation& select, const Operation& scatter,
                     Value* array, size_t side) const {
    Value& pred = *select.operand(0);
    const Mask mask = mask_of(pred);
    Dims several;
    for (const int64_t size : mask.dims) {
      if (size != 1) several.push_back(size);
    }
    Value* indices = scatter.operand(1);
    const Dims& dims = indices->type().dims();
    Value* takes = g.broadcast(g.reshape(narrowed(g, pred, mask), several), dims,
                               *mask_of_indices(scatter, mask));
    Value* outside = g.integer_constant(indices->type().dtype(), dims, -1);
    ir::ValueMap known;
    std::unique_ptr<Operation> made = ir::clone_operation(scatter, known);
    made->set_operand(0, array);
    made->set_operand(1, chosen(g, takes, indices, outside, side));
    for (const char* promise : {"indices_are_sorted", "unique_indices"}) {
      made->attributes().erase(promise);
    }
    return block_.insert_before(&select, std::move(made))->result();
  }

  ir::Block& block_;
  const WindowLimits& limits_;
};

}  // namespace

Status mask_updates(ir::Module& module, const WindowLimits& limits) {
  return for_each_block(module,
                        [&](ir::Block& block) { return MaskedUpdates(block, limits).run(); });
}

}  // namespace hekla::passes
