// SPDX-License-Identifier: Apache-2.0
// Scores that are made again where they are used, in place of memory for them: the gradients of
// attention, found in the graph, and their kernels.
//
// A gradient uses the softmax of Q K^T several times, in products along its rows and along its
// columns, beside a second matrix of that size, dO V^T. Each of these uses is one kernel here, with
// tiles of both matrices made as in attention.h and everything between that is elementwise as the
// program says; what is one number for each row (the greatest logit, the sum of exponentials, what
// the gradient of a softmax subtracts) is in memory (Dao et al., "FlashAttention", 2022, has the
// same parts). No two teams write one element, so the bits of results do not depend on how they
// run. Pure functions of the IR.
#pragma once

#include <functional>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/compiler/lower/attention.h"

namespace hekla::lower {

// Values with an element for each score that no kernel stores, and the kernels that need them.
struct RecomputedScores {
  std::vector<const ir::Operation*> members;  // products, and what is made of them elementwise
  std::vector<const ir::Operation*> roots;    // dot_generals and reductions
  kernel::Refusal why_not;                    // empty: there are kernels for all roots
};

// Around each softmax of a block that is not part of `taken`, in order.
std::vector<RecomputedScores> find_recomputed_scores(
    const ir::Block& block, const std::function<bool(const ir::Operation&)>& taken,
    const LowerOptions& options);

// Products of the module that kernels of attention or of scores make or end with: what passes leave
// alone.
std::unordered_set<const ir::Operation*> attention_products(const ir::Module& module,
                                                            const LowerOptions& options);

// One kernel that makes scores: a product with them, or a reduction.
struct ScoreRoot {
  struct Product {
    InnerProduct product;
    size_t outer_side = 0;  // its operand with the dimensions that the root keeps
  };
  const ir::Operation* op = nullptr;
  const ir::Value* weights = nullptr;  // the operand that is made of scores
  size_t weights_side = 0;
  // Dimensions of `weights`: those of a team, those that the root keeps, and those it sums over.
  std::vector<size_t> batch, outer, inner;
  std::vector<Product> products;
};
// `is_made` says of a value whether the kernel makes it. Empty without `why`: nothing of it is a
// product.
std::optional<ScoreRoot> score_root(const ir::Operation& op,
                                    const std::function<bool(const ir::Value&)>& is_made,
                                    kernel::Refusal& why);

// The kernel, where `outputs` is the result of such an operation; nullopt for others.
std::optional<Result<LoweredSequence>> lower_scores(const std::vector<const ir::Value*>& outputs,
                                                    const InMemory& in_memory,
                                                    const LowerOptions& options);

}  // namespace hekla::lower
