// SPDX-License-Identifier: Apache-2.0
// Scatters that add to zeros, seen from their updates: what all updates of one place add up to,
// with the bits of the scatter, without the array of zeros. Pure.
#pragma once

#include <functional>

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// Whether `scatter`, whose region adds, writes whole elements or windows of its operand: two
// updates then go to one place, or have none in common. At most `most` comparisons of indices say
// which.
bool has_sums_of_places(const ir::Operation& scatter, int64_t most);

// `array`, of the type of the scatter's operand, with what `change` makes of old elements and of
// the scatter's sums (arrays of one shape, an entry for each update) wherever an update is inside.
// What goes wrong is in g.status().
ir::Value* change_by_sums(ir::GraphBuilder& g, const ir::Operation& scatter, ir::Value* array,
                          const std::function<ir::Value*(ir::Value* old, ir::Value* sums)>& change);

}  // namespace hekla::passes
