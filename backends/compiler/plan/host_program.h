// SPDX-License-Identifier: Apache-2.0
// What a step on the host runs: one operation of a program as a program of its own. Pure.
#pragma once

#include <memory>
#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::plan {

// A module whose entry runs one operation: its operands, and the values around it that its regions
// use, are the arguments in this order.
struct HostProgram {
  std::shared_ptr<const ir::Module> module;
  std::vector<const ir::Value*> inputs;
};

// `op`: of `whole`, whose functions it may call. The module owns copies of all that it needs.
HostProgram extract(const ir::Module& whole, const ir::Operation& op);

}  // namespace hekla::plan
