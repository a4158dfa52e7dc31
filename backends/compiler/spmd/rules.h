// SPDX-License-Identifier: Apache-2.0
// How the dimensions of an operation's arrays correspond.
//
// Pure; any thread.
#pragma once

#include <optional>

#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::spmd {

// Shardy's rule of a verified operation: every dimension of every operand and result is a product
// of factors, major to minor; factors in `reduction` are summed (or folded by the operation's
// body), those in `permutation` stay cut only if neighbours exchange borders, those in
// `need_replication` must be whole; all others pass through. A factor in `blocked_propagation` is
// not propagated across the operation.
//
// None: control flow and manual computations, whose arrays are tied by edges; operations without
// arrays; and those about which nothing is known, whose arrays must be whole.
std::optional<sharding::ShardingRule> rule_of(const ir::Operation& op);

}  // namespace hekla::spmd
