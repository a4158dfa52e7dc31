// SPDX-License-Identifier: Apache-2.0
// What is done with values, and where they are. Pure.
#pragma once

#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::ir {

// Where the value is made, or whose argument it is.
Block* block_of(const Value& value);

// The values from around `op` that operations in its regions use, once for each use.
std::vector<Value*> captured_values(const Operation& op);

// Whether nobody computes with all elements of `value`: it is returned, carried by loops, read in
// part or changed in part. An operation that makes it shares no kernel with its users then.
bool is_only_passed_on(const Value& value);
// The same of one user.
bool is_passed_on_by(const Operation& user, const Value& value);

// Whether it is in memory wherever its users are computed. What a kernel computes is not: it may as
// well be computed with them.
bool is_stored(const Value& value);

}  // namespace hekla::ir
