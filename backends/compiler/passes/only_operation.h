// SPDX-License-Identifier: Apache-2.0
// What the body of a reduction or a scatter does to two values, where that is one operation on
// both. Pure; any thread.
#pragma once

#include <optional>

#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// The operation on both arguments whose result the block gives first; null when it is another one.
const ir::Operation* folding_operation(const ir::Block& block);

// One of ir::is_commutative_reducer; none for another body.
std::optional<ir::OpCode> only_operation(const ir::Region& region);

}  // namespace hekla::passes
