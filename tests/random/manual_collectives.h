// SPDX-License-Identifier: Apache-2.0
// Collectives as users write them in manual computations: what one copy of a program has goes to
// the other ones and comes back with the same bits.
//
// Pure; any thread.
#pragma once

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::testing {

// Behind some operations, by their names and types, so that a program that is shrunk keeps them:
// collective_permute there and back, all_gather and all_to_all of which each takes its own part,
// and of integers all_reduce and reduce_scatter with zeros. `op`, the last one of `g`'s block, is
// to be in the body of a manual computation over kManualAxis of the mesh, in no loop or branch:
// copies may go other ways there.
void add_collectives_behind(ir::Operation& op, ir::GraphBuilder& g, const sharding::Mesh& mesh);

}  // namespace hekla::testing
