// SPDX-License-Identifier: Apache-2.0
// Copies of IR. The source is only read; copies share attributes, types and locations with it.
#pragma once

#include <memory>
#include <unordered_map>

#include "runtime/program/ir/ir.h"

namespace hekla::ir {

// What stands for a value of the source in the copy.
using ValueMap = std::unordered_map<const Value*, Value*>;

// A copy of `op` with its regions. Operands that `map` does not know stay as they are; results and
// values of the regions are added to it.
std::unique_ptr<Operation> clone_operation(const Operation& op, ValueMap& map);
// Fills the empty region `to` with copies of the blocks of `from`.
void clone_region(const Region& from, Region& to, ValueMap& map);
std::unique_ptr<Module> clone_module(const Module& module);

}  // namespace hekla::ir
