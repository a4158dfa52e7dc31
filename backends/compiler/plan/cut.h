// SPDX-License-Identifier: Apache-2.0
// Where a kernel that is too long is cut: which of the values that it computes are stored. Pure.
#pragma once

#include <unordered_set>
#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::plan {

// `inside`: the operations of a kernel, in the order of the program. Adds one at least, so that no
// other one is computed together with more than `most` operations, itself included, where storing
// its operands can bring that about.
void add_cuts(const std::vector<const ir::Operation*>& inside, size_t most,
              std::unordered_set<const ir::Operation*>& cuts);

}  // namespace hekla::plan
