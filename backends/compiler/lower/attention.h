// SPDX-License-Identifier: Apache-2.0
// Attention: softmax(Q K^T * s + mask) V, found in the graph, and one kernel for it that keeps no
// scores in memory.
//
// The kernel is an online softmax (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018; Dao et al., "FlashAttention", 2022): a team owns a block of query rows and goes
// through the keys a block at a time, with the greatest score, the sum of exponentials and the
// weighted sum of values of each row so far in registers. Of few rows, teams own parts of the keys
// instead, and a second kernel puts together what they have. What stands between the products is
// computed as in any kernel, so any mask, bias and scale that is elementwise goes. Sums are taken
// in an order that shapes and the team's size decide, in f32. Pure functions of the IR.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/lower/kernel_maker.h"
#include "backends/compiler/lower/lower.h"
#include "runtime/program/ir/ir.h"

namespace hekla::lower {

// Which dimension of the weights each dimension of another value is; kSingle: it has size 1.
using WeightDims = std::vector<int>;
inline constexpr int kSingle = -1;

// A product of which elements are made where they are used, in a space of scores.
struct InnerProduct {
  const ir::Operation* op = nullptr;
  WeightDims dims;  // of its result
};

// What a team has where matrix units compute its products: subgroups, each with `unit.rows` rows,
// and keys at once; `depth` of both and `width` of the result, with what fills matrices up.
struct AttentionMatrixTile {
  kernel::MatrixUnit unit;
  int64_t subgroups = 0, keys = 0, depth = 0, width = 0;

  int64_t points() const { return subgroups * unit.lanes; }
  int64_t rows() const { return subgroups * unit.rows; }
  // Points that share a row, and rows of a point: one of them is 1.
  int64_t across() const { return std::max<int64_t>(points() / rows(), 1); }
  int64_t point_rows() const { return std::max<int64_t>(rows() / points(), 1); }
  // Words of shared memory from line to line: of queries and keys, of values, of scores in f32 and
  // of weights. Four more than there are, so that lines begin in different banks.
  int64_t depth_pitch() const { return depth / 2 + 4; }
  int64_t width_pitch() const { return width / 2 + 4; }
  int64_t score_pitch() const { return keys + 4; }
  int64_t weight_pitch() const { return keys / 2 + 4; }
  // Words of arrays: lines, and four for each point that has none to store.
  int64_t array_words(int64_t lines, int64_t elements, int64_t pitch) const;
  int64_t query_words() const { return array_words(rows(), depth, depth_pitch()); }
  int64_t block_words() const {
    return std::max(array_words(keys, depth, depth_pitch()),
                    array_words(keys, width, width_pitch()));
  }
  int64_t score_words() const { return rows() * score_pitch(); }
  int64_t weight_words() const { return rows() * weight_pitch(); }
  int64_t words() const {
    return query_words() + block_words() + score_words() + weight_words() + rows() * across();
  }
  // Matrix products of a subgroup for each block of keys.
  int64_t products() const {
    return keys / unit.columns * (depth / unit.depth) + keys / unit.depth * (width / unit.columns);
  }
};

struct Attention {
  const ir::Operation* product = nullptr;  // of the weights and the values
  const ir::Operation* scores = nullptr;   // of queries and keys
  const ir::Value* logits = nullptr;       // what the softmax is of
  // What the kernel computes beside `product` for elements of the weights and their rows: `scores`,
  // and all operations between the two that nobody else uses.
  std::vector<const ir::Operation*> members;
  size_t weights_operand = 0;  // of `product`
  size_t keys_operand = 0;     // of `scores`
  WeightDims logits_dims, scores_dims;
  // Dimensions of the weights but those of size 1: over which keys and values differ, the others
  // in the order of the scores, and the one that is summed over.
  std::vector<size_t> batch, rows;
  size_t column = 0;
  // Where matrix units compute its products.
  std::optional<AttentionMatrixTile> matrix_tile;

  const Dims& weights_shape() const { return product->operand(weights_operand)->type().dims(); }
  int64_t row_count() const;
  int64_t batch_count() const;
  int64_t columns() const { return weights_shape()[column]; }
  InnerProduct inner() const { return {scores, scores_dims}; }
};

// Elements of the result for each row.
int64_t value_width(const Attention& attention);
// What the dimensions of the operand are, of an operation that only moves elements to other indices
// and repeats none, `may_repeat` or along dimensions of size 1; nullopt for others.
std::optional<WeightDims> through_movement(const ir::Operation& op, const WeightDims& dims,
                                           bool may_repeat);
// Why a dot_general is not done by sums of f32 of its operands as they are; empty: it is.
kernel::Refusal why_no_sums(const ir::Operation& product);

// The attention that ends with a dot_general. nullopt: none, or one that has no such kernel here,
// and `why` says why; empty: the operation's operands are no softmax.
// `why_no_matrix`: why matrix units do not compute its products in the same kernel; empty: they do.
std::optional<Attention> find_attention(const ir::Operation& product, const LowerOptions& options,
                                        kernel::Refusal& why,
                                        kernel::Refusal* why_no_matrix = nullptr);

// How a team shares out its block of the scores: `across` times `down` points, each with `rows`
// rows and `columns` columns that are `down` and `across` apart, and as many elements of the result
// for each row as `values` says.
struct AttentionTile {
  int64_t across = 0, down = 0;
  int64_t rows = 0, columns = 0, values = 0;

  int64_t points() const { return across * down; }
  int64_t block_rows() const { return rows * down; }
  int64_t block_columns() const { return columns * across; }
  int64_t block_values() const { return values * across; }
  // Words of shared memory: of the operands' blocks, and of the weights'.
  int64_t operand_words() const;
  int64_t weight_words() const { return block_rows() * (block_columns() + 1); }
};
// nullopt: teams have too little memory.
std::optional<AttentionTile> attention_tile(int64_t value_width, const LowerOptions& options);

// Why there is no tile for matrix units that fits this one and the device; empty: `tile` is it.
kernel::Refusal why_no_matrix_tile(const Attention& attention, const LowerOptions& options,
                                   AttentionMatrixTile& tile);
Result<LoweredSequence> lower_attention_by_matrices(const Attention& attention,
                                                    const InMemory& in_memory,
                                                    const LowerOptions& options);

// How keys are cut, where rows of queries are few: `parts` parts of `blocks` blocks of a column for
// each point of a team. Points lie in lanes along the depth of keys and the width of values, with
// `elements` each.
struct KeyParts {
  int64_t points = 0, elements = 0;
  int64_t depth_lanes = 0, width_lanes = 0;
  int64_t keys_at_once = 0, values_at_once = 0;
  int64_t rows = 0, row_blocks = 0;  // of a team, and how many of them there are
  int64_t value_blocks = 0, parts = 0, blocks = 0;

  int64_t block_values() const { return width_lanes * elements; }
  // Words of shared memory: a weight for each row and point and a word for each point that has
  // none to store; and what points have of the result.
  int64_t weight_words() const { return (rows + 1) * points; }
  int64_t value_words() const { return points * elements; }
};
// However many rows there are; nullopt: teams have too little memory.
std::optional<KeyParts> key_parts_of(const Attention& attention, const LowerOptions& options);
// The same where it is the way to compute this one.
std::optional<KeyParts> key_parts(const Attention& attention, const LowerOptions& options);
Result<LoweredSequence> lower_attention_by_keys(const Attention& attention, const KeyParts& parts,
                                                const InMemory& in_memory,
                                                const LowerOptions& options);

// The kernel, where `outputs` is the result of such a product whose members are not in memory;
// nullopt for others.
std::optional<Result<LoweredSequence>> lower_attention(const std::vector<const ir::Value*>& outputs,
                                                       const InMemory& in_memory,
                                                       const LowerOptions& options);

}  // namespace hekla::lower
