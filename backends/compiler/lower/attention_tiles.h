// SPDX-License-Identifier: Apache-2.0
// Kernels whose teams own a block of one side of a space of scores and go through the other side a
// block at a time: tiles of scores in registers, and what they weigh.
//
// A block of scores is a tile of registers for each point, made from blocks of both operands in
// shared memory, a few elements of their depth at a time; weights made of them then go through
// shared memory to the points that have the result's elements, which go through the block of values
// in the same way. What comes next is on its way from memory meanwhile. Places behind the last are
// that one again, with weight 0; depth behind the last is zeros.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/attention_mask.h"
#include "backends/compiler/lower/attention_parts.h"

namespace hekla::lower {

// Dimensions of a space of scores that are not of size 1: those that a team has one index of, those
// whose places it owns, and those that it goes through.
struct ScoreSpace {
  Dims shape;
  std::vector<size_t> batch, outer, inner;
};

class ScoreTiles : public ScoreKernel {
 protected:
  // `width`: elements of the result for each outer place; 0: there is no product.
  ScoreTiles(std::string name, ScoreSpace space, const AttentionTile& tile, int64_t width,
             int64_t largest, const InMemory& in_memory);
  ~ScoreTiles() = default;

  // A product with the space: what values_at and weighted_values go through.
  void set_product(const ir::Operation& product, size_t weights_side) {
    product_ = &product;
    weights_side_ = weights_side;
  }
  // Places of this point's team, and of its outer ones; what it is in the tile. First of all.
  void find_places();
  size_t team_dim() const { return space_.batch.size() + 2; }
  int64_t inner_blocks() const { return blocks_of(inner_count_, t_.block_columns()); }

  // The inner place at a number, and whether there is one.
  std::pair<Value, Value> inner_at(Value number);
  // Row `i` of this point's tile at its column `j` of the block.
  Places place_in_tile(size_t i, Value inner);
  // Inner number of column `j` of this point's tile.
  Value column(Value first, int64_t j) { return b().add(sum(first, j * t_.across), x_); }

  // What `body` makes of the state for a block that begins at an inner number; where the mask
  // leaves nothing of it, the state as it is, unless some point of the team says `is_needed`.
  // `skipped` is then what becomes of the state; null: nothing.
  Elements over_block(Value block, const Elements& state, const std::optional<LogitMask>& mask,
                      const std::function<Value()>& is_needed,
                      const std::function<Elements(const Elements&)>& skipped,
                      const std::function<Elements(Value first, const Elements&)>& body);
  // Whether weights of what a mask puts are not zero: those of logits that are shifted so.
  Value stays(const LogitMask& mask, Value shift);

  // The tile of this point of an inner product: rows first. `outer_side`: the product's operand
  // that has the outer dimensions.
  Elements scores(const InnerProduct& product, size_t outer_side, Value first);
  // The same as elements of the product's type.
  Element score(const InnerProduct& product, const Element& of_sums);

  // What the softmax is of, from this point's scores; -infinity behind the last column. `column`:
  // the inner number of a column of the tile.
  Elements logits(const Attention& attention, const Elements& scores,
                  const std::function<Value(int64_t j)>& column);
  // The softmax of row `i` with this point's logits too, by the greatest logit of the team: that
  // one is state[i], what this point has of the sum of weights state[rows + i]. `take` gets each
  // weight. The result is what earlier weights are multiplied by.
  Value add_logits(size_t i, const Elements& logits, Elements& state,
                   const std::function<void(size_t j, Value weight)>& take);
  // The sum of weights of row `i` in all points.
  Value total_of(size_t i, const Elements& state);

  // One of the weights of this point's tile for weighted_values.
  void put_weight(size_t i, size_t j, const Element& weight);
  // The first values of a block, to be on their way before the weights are known.
  Elements first_values(Value first) { return value_operands(first, k_.index(0)); }
  // `initial` with the weights of a block times its values.
  Elements weighted_values(Value first, const Elements& initial, const Elements& fetched);
  // The elements of the result that this point has, rows first.
  void store_values(const Elements& values);

  const ScoreSpace space_;
  const AttentionTile t_;
  const int64_t width_, outer_count_, inner_count_;
  Value x_ = kernel::kNoValue, y_ = kernel::kNoValue;  // this point in its team
  std::vector<Places> rows_;                           // with the outer places of this point
  std::vector<Value> has_row_;

 private:
  std::vector<int64_t> grid() const;
  // The indices of blocks of these dimensions' numbers.
  void add_range(const std::vector<size_t>& dims, Value first, int64_t block, BlockRange& range);
  Elements score_operands(const InnerProduct& product, size_t outer_side, Value first, Value block);
  Elements value_operands(Value first, Value block);
  Elements fetching_loop(int64_t blocks, const Elements& initial, const Elements& fetched,
                         const std::function<Elements(Value block)>& fetch,
                         const std::function<void(const Elements& fetched)>& share,
                         const std::function<Elements(Value block, const Elements& sums)>& body);
  void multiply_add(const std::vector<Value>& left, const std::vector<Value>& right,
                    Elements& sums);

  const ir::Operation* product_ = nullptr;
  size_t weights_side_ = 0;
  const kernel::TeamMemory operands_, weights_, flags_;
  Places places_;                    // without outer and inner ones
  std::vector<Value> value_places_;  // of this point's elements of the result
};

}  // namespace hekla::lower
