// SPDX-License-Identifier: Apache-2.0
// The kernel of attention.h by tiles, and which kernel is whose.
#include <algorithm>
#include <cmath>

#include "backends/compiler/lower/attention_tiles.h"

namespace hekla::lower {

using ir::OpCode;

namespace {

int64_t largest_element(const Attention& attention, const InMemory& in_memory) {
  return largest_of_scores(
      {attention.product->operands().begin(), attention.product->operands().end()},
      element_count(attention.product->result()->type().dims()),
      {attention.members.begin(), attention.members.end()}, in_memory);
}

class AttentionLowering : private ScoreTiles {
 public:
  AttentionLowering(const Attention& attention, const AttentionTile& tile,
                    const InMemory& in_memory, const LowerOptions& options)
      : ScoreTiles("attention",
                   {attention.weights_shape(), attention.batch, attention.rows, {attention.column}},
                   tile, value_width(attention), largest_element(attention, in_memory), in_memory),
        a_(attention),
        options_(options) {
    set_product(*a_.product, a_.weights_operand);
  }

  Result<LoweredSequence> run() {
    find_places();
    const auto rows = static_cast<size_t>(t_.rows), values = static_cast<size_t>(t_.values);
    Elements state;
    for (size_t i = 0; i < rows; ++i) state.push_back(number(-HUGE_VAL));
    while (state.size() < rows * (2 + values)) state.push_back(number(0));
    const std::vector<DType> dtypes(state.size(), DType::kF32);
    const auto mask = find_logit_mask(*a_.logits, a_.logits_dims);
    state =
        k_.loop(k_.index(inner_blocks()), dtypes, state, [&](Value block, const Elements& carried) {
          // Weights of -infinity are zero whatever comes; others are when they are far enough below
          // a logit that there is already.
          std::function<Value()> is_needed;
          if (mask && std::isfinite(mask->low)) {
            is_needed = [&] {
              Value any = b().boolean(false);
              for (size_t i = 0; i < rows; ++i) any = b().bit_or(any, stays(*mask, carried[i].re));
              return any;
            };
          }
          return over_block(
              block, carried, mask, is_needed, nullptr,
              [&](Value first, const Elements& before) { return add_block(first, before); });
        });
    store(state);
    LoweredSequence sequence;
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k_.finish(options_));
    sequence.kernels.push_back(std::move(made));
    return sequence;
  }

 private:
  // Rows with the columns of one block more. `state`: the greatest logit of each row, what this
  // point has of the sums of weights, and of the weighted values.
  Elements add_block(Value first, const Elements& state) {
    const Elements products = scores(a_.inner(), 1 - a_.keys_operand, first);
    const Elements fetched = first_values(first);
    const Elements tile = logits(a_, products, [&](int64_t j) { return column(first, j); });
    const auto rows = static_cast<size_t>(t_.rows), values = static_cast<size_t>(t_.values);
    Elements next = state;
    for (size_t i = 0; i < rows; ++i) {
      const Value fading = add_logits(i, tile, next, [&](size_t j, Value weight) {
        put_weight(i, j, {weight, kernel::kNoValue});
      });
      for (size_t v = 0; v < values; ++v) {
        Element& sum = next[2 * rows + i * values + v];
        sum.re = b().mul(sum.re, fading);
      }
    }
    const Elements sums(next.begin() + static_cast<ptrdiff_t>(2 * rows), next.end());
    next.resize(2 * rows);
    for (const Element& each : weighted_values(first, sums, fetched)) next.push_back(each);
    return next;
  }

  void store(const Elements& state) {
    const auto rows = static_cast<size_t>(t_.rows), values = static_cast<size_t>(t_.values);
    Elements quotients;
    for (size_t i = 0; i < rows; ++i) {
      const Value total = total_of(i, state);
      for (size_t v = 0; v < values; ++v) {
        quotients.push_back(
            {b().div(state[2 * rows + i * values + v].re, total), kernel::kNoValue});
      }
    }
    store_values(quotients);
  }

  const Attention& a_;
  const LowerOptions& options_;
};

}  // namespace

std::optional<Result<LoweredSequence>> lower_attention(const std::vector<const ir::Value*>& outputs,
                                                       const InMemory& in_memory,
                                                       const LowerOptions& options) {
  if (options.attention_points < 2 || outputs.size() != 1) return std::nullopt;
  const ir::Operation* op = outputs[0]->defining_op();
  if (op == nullptr || op->code() != OpCode::kDotGeneral ||
      std::all_of(op->operands().begin(), op->operands().end(),
                  [&](const ir::Value* value) { return in_memory(*value); })) {
    return std::nullopt;
  }
  kernel::Refusal why;
  const auto found = find_attention(*op, options, why);
  if (!found ||
      std::any_of(found->members.begin(), found->members.end(),
                  [&](const ir::Operation* member) { return in_memory(*member->result()); })) {
    return std::nullopt;
  }
  if (found->matrix_tile) return lower_attention_by_matrices(*found, in_memory, options);
  if (const auto parts = key_parts(*found, options)) {
    return lower_attention_by_keys(*found, *parts, in_memory, options);
  }
  const auto tile = attention_tile(value_width(*found), options);
  if (!tile) return std::nullopt;
  return AttentionLowering(*found, *tile, in_memory, options).run();
}

}  // namespace hekla::lower
