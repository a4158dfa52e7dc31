// SPDX-License-Identifier: Apache-2.0
// Attention: softmax(Q K^T * s + mask) V, found in the graph, and one kernel for it that keeps no
// scores in memory.
//
// The kernel is an online softmax (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018; Dao et al., "FlashAttention", 2022): a team owns a block of query rows and goes
// through the keys a block at a time, with the greatest score, the sum of exponentials and the
// weighted sum of values of each row so far in registers. What stands between the products is
// computed as in any kernel, so any mask, bias and scale that is elementwise goes. Sums are taken
// in an order that shapes and the team's size decide, in f32. Pure functions of the IR.
#pragma once

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

  const Dims& weights_shape() const { return product->operand(weights_operand)->type().dims(); }
  int64_t row_count() const;
  int64_t batch_count() const;
  int64_t columns() const { return weights_shape()[column]; }
};

// The attention that ends with a dot_general. nullopt: none, or one that has no such kernel here,
// and `why` says why; empty: the operation's operands are no softmax.
std::optional<Attention> find_attention(const ir::Operation& product, const LowerOptions& options,
                                        kernel::Refusal& why);

// Both products of each attention of the entry function that has a kernel: what passes leave alone.
std::unordered_set<const ir::Operation*> attention_products(const ir::Module& module,
                                                            const LowerOptions& options);

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

// The kernel, where `outputs` is the result of such a product whose members are not in memory;
// nullopt for others.
std::optional<Result<LoweredSequence>> lower_attention(const std::vector<const ir::Value*>& outputs,
                                                       const InMemory& in_memory,
                                                       const LowerOptions& options);

}  // namespace hekla::lower
