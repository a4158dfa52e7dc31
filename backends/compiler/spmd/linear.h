// SPDX-License-Identifier: Apache-2.0
// Which operations give addends of their result where they are computed with addends of operands,
// so that what partitions hold of a sum need not be summed in front of them.
//
// Pure; any thread.
#pragma once

#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// Zeros, by a constant of the program.
bool is_zero(const ir::Value& value);

// `has_addends` is by operand: those of which partitions hold addends, all over the same axes. Of
// the others each holds the value, or its part. Whether `op` then makes addends of its result; what
// is cut apart by the operation's rule besides is summed as ever. Floats of other widths are
// addends' as well, each rounded; integers only where sums wrap around alike. Times
// infinity an addend that is zero is NaN, as wherever addends are multiplied.
bool keeps_addends(const ir::Operation& op, const std::vector<bool>& has_addends);

// Whether addends of its result are no more than those of its first operand, and each is rounded as
// their sum would be: sums may wait for it where nobody asks for addends.
bool may_sum_behind(const ir::Operation& op);

}  // namespace hekla::spmd
