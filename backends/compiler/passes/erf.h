// SPDX-License-Identifier: Apache-2.0
// erf of f32 and narrower floats, in place of the decomposition that JAX sends with the composite
// chlo.erf. That one is off by up to 7 units in the last place below 4 and by 36 of them near the
// smallest normal numbers, where its numerator is subnormal; this one by less than 2.
#pragma once

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// Whether this is erf in a form that a sender leaves to the receiver (the composite chlo.erf, the
// custom calls chlo.erf and mhlo.erf) and of a type that make_erf takes.
bool is_erf(const ir::Operation& op);

// Of any shape and of a float type of at most 32 bits, computed in f32. NaN stays NaN, erf(-0) =
// -0.
ir::Value* make_erf(ir::GraphBuilder& g, ir::Value* x);

}  // namespace hekla::passes
