// SPDX-License-Identifier: Apache-2.0
// OpCut: which axes cut the factors of an operation (rules.h), chosen by the bytes that move.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/ir/type.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::spmd {

// By factor of the rule.
using OpCut = std::vector<Axes>;

// An operand or result of an operation.
struct CutArray {
  ir::Type type;                // of the whole array
  std::vector<Tiling> tilings;  // an operand: those that it is at hand in; a result: the wanted one
};

struct CutProblem {
  const PrimeMesh& mesh;
  const sharding::ShardingRule& rule;
  std::vector<CutArray> operands, results;
  // Whether the operation can be computed with the factor cut so, apart from what its kind says;
  // `is_even`: in equal parts.
  std::function<bool(int64_t factor, bool is_even)> may_cut;
  // Bytes that a device sends for operand i to be as the cut needs it.
  std::function<double(const OpCut& cut, size_t operand)> operand_bytes;
  // Bytes that a device sends to get one tiling of an array from another.
  std::function<double(const Tiling& from, const Tiling& to, const ir::Type& whole)> bytes;
  // What operands, and so the result, are sums over: may cut nothing.
  Axes addends = {};
};

// The cheapest cut. Empty lists everywhere where computing the whole is.
OpCut choose_cut(const CutProblem& problem);
// What a device sends for operands and results under a cut; infinite where it cannot be.
double bytes_of(const CutProblem& problem, const OpCut& cut);
// The cut that gives the operation's first result in its wanted tiling, without sums; none where
// the operation cannot be computed so.
std::optional<OpCut> cut_of_result(const CutProblem& problem);

// What an array of the operation is cut by: nothing where its dimensions cannot say it.
std::optional<Tiling> tiling_under(const OpCut& cut, const sharding::ShardingRule& rule,
                                   const sharding::ShardingRule::Tensor& dimensions,
                                   const PrimeMesh& mesh);
// All of them, ascending.
Axes all_axes(Axes axes, const Axes& others);
// The axes that sum the operation's results.
Axes reduction_axes(const OpCut& cut, const sharding::ShardingRule& rule);

}  // namespace hekla::spmd
