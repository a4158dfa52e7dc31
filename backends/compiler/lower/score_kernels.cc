// SPDX-License-Identifier: Apache-2.0
// The kernels of scores.h, by the tiles of attention_tiles.h.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "backends/compiler/lower/attention_tiles.h"
#include "backends/compiler/lower/reduce_kernels.h"
#include "backends/compiler/lower/scores.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;

namespace {

// The operations between an operand and its products, which have no numbers of elements.
std::unordered_set<const ir::Operation*> inside_of(const ScoreRoot& root,
                                                   const InMemory& in_memory) {
  std::unordered_set<const ir::Operation*> inside;
  std::vector<const ir::Value*> open{root.weights};
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || in_memory(value) ||
        element_count(value.type().dims()) != element_count(root.weights->type().dims()) ||
        !inside.insert(op).second || op->code() == OpCode::kDotGeneral) {
      continue;
    }
    open.insert(open.end(), op->operands().begin(), op->operands().end());
  }
  return inside;
}

// Whether a product is below that is not in memory.
bool makes_products(const ir::Operation& op, const InMemory& in_memory) {
  std::unordered_set<const ir::Value*> seen;
  std::vector<const ir::Value*> open(op.operands().begin(), op.operands().end());
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    const ir::Operation* made_by = value.defining_op();
    if (made_by == nullptr || in_memory(value) || !seen.insert(&value).second) continue;
    if (made_by->code() == OpCode::kDotGeneral) return true;
    open.insert(open.end(), made_by->operands().begin(), made_by->operands().end());
  }
  return false;
}

class ScoreLowering : private ScoreTiles {
 public:
  ScoreLowering(const ScoreRoot& root, const AttentionTile& tile, int64_t width,
                const InMemory& in_memory)
      : ScoreTiles(width == 0 ? "scores_reduce" : "scores_product",
                   {root.weights->type().dims(), root.batch, root.outer, root.inner}, tile, width,
                   largest_of_scores({root.op->operands().begin(), root.op->operands().end()},
                                     element_count(root.op->result()->type().dims()),
                                     inside_of(root, in_memory), in_memory),
                   in_memory),
        root_(root),
        weights_dims_(all_dims(root.weights->type().dims())) {
    if (width != 0) set_product(*root.op, root.weights_side);
  }

  Result<LoweredSequence> run(const LowerOptions& options) {
    find_places();
    if (width_ == 0) {
      reduce();
    } else {
      multiply();
    }
    LoweredSequence sequence;
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k_.finish(options));
    sequence.kernels.push_back(std::move(made));
    return sequence;
  }

 private:
  static WeightDims all_dims(const Dims& shape) {
    WeightDims dims;
    for (size_t d = 0; d < shape.size(); ++d) {
      dims.push_back(shape[d] == 1 ? kSingle : static_cast<int>(d));
    }
    return dims;
  }

  // `of_masked`: what becomes of the state where all weights are what a mask puts there.
  Elements over_blocks(const Elements& state,
                       const std::function<Elements(const Elements&, double)>& of_masked,
                       const std::function<Elements(Value, const Elements&)>& add) {
    const std::vector<DType> dtypes(state.size(), DType::kF32);
    std::optional<LogitMask> mask;
    std::optional<MaskedWeights> weights;
    if (of_masked) {
      mask = find_logit_mask(*root_.weights, weights_dims_);
    } else if (weights = find_masked_weights(*root_.weights, weights_dims_); weights) {
      mask = weights->mask;
    }
    return k_.loop(
        k_.index(inner_blocks()), dtypes, state, [&](Value block, const Elements& carried) {
          std::function<Value()> is_needed;
          std::function<Elements(const Elements&)> skipped;
          if (of_masked) {
            skipped = [&](const Elements& before) { return of_masked(before, mask->low); };
          } else if (weights) {
            is_needed = [&] { return some_stay(*weights, scaled(block, t_.block_columns())); };
          }
          return over_block(block, carried, mask, is_needed, skipped, add);
        });
  }

  // Whether some weights of this point's tile would not be zero if they were masked.
  Value some_stay(const MaskedWeights& weights, Value first) {
    Value any = b().boolean(false);
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (int64_t j = 0; j < t_.columns; ++j) {
        const Places place = place_in_tile(i, inner_at(column(first, j)).first);
        const Element shift =
            k_.emitter().emit(*weights.shift, point_of(weights.shift_dims, place));
        any = b().bit_or(any, stays(weights.mask, shift.re));
      }
    }
    return any;
  }

  // The elements of this point's tile, rows first, in f32; `absent` behind the last.
  Elements weights(Value first, const Elements& products, Element absent) {
    const auto size = static_cast<size_t>(t_.rows * t_.columns);
    Elements made;
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (int64_t j = 0; j < t_.columns; ++j) {
        const auto [inner, is_there] = inner_at(column(first, j));
        for (size_t p = 0; p < root_.products.size(); ++p) {
          const InnerProduct& product = root_.products[p].product;
          k_.emitter().know(*product.op->result(),
                            score(product, products[p * size + made.size()]));
        }
        const Point point = point_of(weights_dims_, place_in_tile(i, inner));
        const Element weight =
            kernel::convert_element(b(), k_.emitter().emit(*root_.weights, point),
                                    root_.weights->type().dtype(), DType::kF32);
        made.push_back(kernel::select(b(), is_there, weight, absent));
      }
    }
    return made;
  }

  Elements all_scores(Value first) {
    Elements made;
    for (const ScoreRoot::Product& each : root_.products) {
      for (const Element& e : scores(each.product, each.outer_side, first)) made.push_back(e);
    }
    return made;
  }

  void multiply() {
    const auto columns = static_cast<size_t>(t_.columns);
    const auto add = [&](Value first, const Elements& carried) {
      const Elements products = all_scores(first);
      const Elements fetched = first_values(first);
      const Elements tile = weights(first, products, number(0));
      for (size_t n = 0; n < tile.size(); ++n) put_weight(n / columns, n % columns, tile[n]);
      return weighted_values(first, carried, fetched);
    };
    const Elements zeros(static_cast<size_t>(t_.rows * t_.values), number(0));
    const Elements sums = over_blocks(zeros, nullptr, add);
    store_values(sums);
  }

  void reduce() {
    const bool is_sum = order_of(*root_.op) == Order::kSum;
    const auto combine = [&](const Element& x, const Element& y) {
      return *kernel::binary(b(), is_sum ? OpCode::kAdd : OpCode::kMaximum, DType::kF32, x, y);
    };
    const Element start = number(is_sum ? 0 : -HUGE_VAL);
    const auto columns = static_cast<size_t>(t_.columns);
    const auto add = [&](Value first, const Elements& carried) {
      const Elements tile = weights(first, all_scores(first), start);
      Elements next = carried;
      for (size_t n = 0; n < tile.size(); ++n) {
        next[n / columns] = combine(next[n / columns], tile[n]);
      }
      return next;
    };
    std::function<Elements(const Elements&, double)> of_masked;
    if (!is_sum) {
      of_masked = [&](const Elements& before, double low) {
        Elements made;
        for (const Element& each : before) made.push_back(combine(each, number(low)));
        return made;
      };
    }
    const Elements parts = over_blocks(Elements(rows_.size(), start), of_masked, add);
    const ir::Value& result = *root_.op->result();
    const Element initial = k_.emitter().emit(*root_.op->operand(1), Point());
    std::vector<size_t> kept;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const bool is_summed =
          std::find(summed_.begin(), summed_.end(), static_cast<int64_t>(d)) != summed_.end();
      if (!is_summed) kept.push_back(d);
    }
    for (size_t i = 0; i < rows_.size(); ++i) {
      Element total = parts[i];
      for (int64_t distance = 1; distance < t_.across; distance *= 2) {
        total = combine(total, k_.from_team(total, team_dim(), distance));
      }
      Point point;
      for (const size_t d : kept) point.dims.push_back(rows_[i][d]);
      const Value is_mine = b().binary(kernel::Op::kEq, x_, k_.index(0));
      store_where(b().bit_and(is_mine, has_row_[i]), result, point, combine(initial, total));
    }
  }

  const ScoreRoot& root_;
  const WeightDims weights_dims_;
  const std::vector<int64_t> summed_ = root_.op->code() == OpCode::kReduce
                                           ? ir::int_list(*root_.op, "dimensions")
                                           : std::vector<int64_t>();
};

}  // namespace

std::optional<Result<LoweredSequence>> lower_scores(const std::vector<const ir::Value*>& outputs,
                                                    const InMemory& in_memory,
                                                    const LowerOptions& options) {
  if (options.attention_points < 4 || outputs.size() != 1) return std::nullopt;
  const ir::Operation* op = outputs[0]->defining_op();
  if (op == nullptr || (op->code() != OpCode::kDotGeneral && op->code() != OpCode::kReduce) ||
      !makes_products(*op, in_memory)) {
    return std::nullopt;
  }
  kernel::Refusal why;
  const auto root = score_root(
      *op, [&](const ir::Value& value) { return !in_memory(value); }, why);
  if (!root) return std::nullopt;
  const bool is_product = op->code() == OpCode::kDotGeneral;
  const int64_t width =
      is_product ? element_count(operand_dims(*op, 1 - root->weights_side).own) : 0;
  const auto tile = attention_tile(std::max<int64_t>(width, 1), options);
  if (!tile) return std::nullopt;
  return ScoreLowering(*root, *tile, width, in_memory).run(options);
}

}  // namespace hekla::lower
