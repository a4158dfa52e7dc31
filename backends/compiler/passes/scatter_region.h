// SPDX-License-Identifier: Apache-2.0
// What a scatter of one operand makes of an element and an update, as an operation on arrays: where
// no element gets two updates, all of them may be computed at once.
#pragma once

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::passes {

struct ScatterRegion {
  enum class Kind {
    kSet,     // takes the update
    kReduce,  // one operation on both
    kMap,     // other elementwise operations on scalars
    kOther,
  };
  Kind kind = Kind::kOther;
  const ir::Operation* reducer = nullptr;  // kReduce
};
ScatterRegion scatter_region_of(const ir::Operation& scatter);

// What the region makes of `before` and `update`, arrays of one shape. Not for kOther.
ir::Value* apply_scatter_region(ir::GraphBuilder& g, const ir::Operation& scatter,
                                ir::Value* before, ir::Value* update);

}  // namespace hekla::passes
