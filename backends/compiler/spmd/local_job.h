// SPDX-License-Identifier: Apache-2.0
// LocalOps::Job: one operation on its way into parts. Of local_*.cc alone.
#pragma once

#include <optional>
#include <vector>

#include "backends/compiler/spmd/folds.h"
#include "backends/compiler/spmd/local_op.h"
#include "backends/compiler/spmd/local_window.h"

namespace hekla::spmd {

// A dimension along which a fold runs on from part to part.
struct RunningDimension {
  RunningFold fold;
  size_t dimension = 0;
  Axes axes;
  int64_t size = 0;  // of the whole
};

// A product whose operand travels around the devices that hold its parts, or whose result does
// while they add to it.
struct Ring {
  size_t operand = 0;    // what travels, or what is taken apart for the result
  size_t dimension = 0;  // of it: what the axes cut, or will
  size_t result_dimension = 0;
  Axes axes;
  bool is_gather = false;
};

struct LocalOps::Job {
  ir::Operation& op;
  const sharding::ShardingRule& rule;
  const OpCut& cut;
  const std::vector<Tiling>& wanted;
  ir::Block& block;
  const Addends& addends;
  ir::GraphBuilder g;  // at its end
  Axes sums;           // axes that results are to be summed over
  std::vector<Tiling> operand_tilings;
  std::vector<Tiling> result_tilings;  // before that sum
  ir::AttributeMap attributes;
  std::vector<ir::Value*> operands;
  std::vector<ir::Type> types;
  ir::Value* is_inside = nullptr;  // gather: which of its elements this partition has
  // By what it reads, in the order of `window_reads`: an operation may read an operand twice.
  WindowReads reads;
  std::vector<ir::Value*> windows;
  // The results, where they are not made by the operation itself on its operands.
  std::vector<ir::Value*> made;
  std::vector<RunningDimension> running;
  std::optional<Ring> ring;

  const Dims& result_dims(size_t i) const { return types[i].dims(); }
};

// Of an operation that is cut so, whose first operand has these dimensions.
std::vector<RunningDimension> running_dimensions(const ir::Operation& op,
                                                 const sharding::ShardingRule& rule,
                                                 const OpCut& cut, const Dims& dims);

// One entry of the attribute `padding`, of so many in all.
void set_padding(const ir::Operation& op, ir::AttributeMap& attributes, size_t size, size_t i,
                 int64_t low, int64_t high);

}  // namespace hekla::spmd
