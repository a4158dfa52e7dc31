// SPDX-License-Identifier: Apache-2.0
// Marks: what a program says about its arrays in between, as operations that outlive inlining.
// Of this folder alone; one thread a module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

// A custom call of one operand and one result: the array is to be cut so.
inline constexpr std::string_view kConstraint = "hekla.constraint";
// The sharding of a constraint, and that of the whole array at a border of a manual region.
inline constexpr std::string_view kBorder = "hekla.border";

// A custom call of one operand: element i of the result along the dimension is element i + begin of
// the operand, counted round: what jnp.roll writes as two slices and a concatenation.
inline constexpr std::string_view kRoll = "hekla.roll";
inline constexpr std::string_view kRollBegin = "hekla.roll_begin";
inline constexpr std::string_view kRollDimension = "hekla.roll_dimension";

// The rule of a custom call that the client partitions itself.
inline constexpr std::string_view kRule = "hekla.sharding_rule";

bool is_call_of(const ir::Operation& op, std::string_view target);

// GSPMD's borders of manual regions. Where the array outside is a sum of what partitions hold, the
// type is the same on both sides; mark_borders keeps such a border from being taken for nothing.
bool is_entry(const ir::Operation& op);
bool is_exit(const ir::Operation& op);
bool says_addends(const sharding::HloSharding& sharding);
// For errors: "stablehlo.add at model.py:3:1".
std::string where(const ir::Operation& op);

// Before calls are inlined: shardings at GSPMD's borders are kept, constraints become marks, and
// rules of calls that clients partition stay.
void mark_borders(ir::Module& module);
void mark_constraints(ir::Module& module);

// A constraint on `value` in front of `before`; its result. `open` as open_dimensions gives it.
ir::Value* insert_constraint(ir::Value* value, sharding::HloSharding sharding,
                             const ir::Operation& before, const std::vector<bool>& open = {});

// Rolls become marks, but in manual computations, and operations again.
bool is_roll(const ir::Operation& op);
void mark_rolls(ir::Region& region);
ir::Value* rolled(ir::GraphBuilder& g, ir::Value* value, const ir::Operation& roll);

// Of an operation of GSPMD's: the dimensions whose cut it leaves open.
std::vector<int64_t> unspecified_dimensions(const ir::Operation& op);

// Of a constraint, by dimension: whether propagation may append axes, and when.
std::vector<bool> open_dimensions(const ir::Operation& constraint, size_t rank);
std::vector<int64_t> priorities(const ir::Operation& constraint);

}  // namespace hekla::spmd
