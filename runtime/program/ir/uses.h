// SPDX-License-Identifier: Apache-2.0
// What is done with values. Pure.
#pragma once

#include "runtime/program/ir/ir.h"

namespace hekla::ir {

// Whether nobody computes with all elements of `value`: it is returned, carried by loops, read in
// part or changed in part. An operation that makes it shares no kernel with its users then.
bool is_only_passed_on(const Value& value);

}  // namespace hekla::ir
