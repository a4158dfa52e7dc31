// SPDX-License-Identifier: Apache-2.0
// Programs made of a program, to look into it: one that gives all its values, and one operation by
// itself. Pure; the source is only read.
#pragma once

#include <memory>
#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// The program with every tensor of its entry as a result, after its own.
struct Exposed {
  std::unique_ptr<ir::Module> module;
  // By operation of the entry's block and result: which result of the program it is; -1 for what is
  // no tensor of static shape.
  std::vector<std::vector<int64_t>> places;
};
Exposed expose_values(const ir::Module& module);

// A program whose entry runs `op`, which stands in `module`. Its arguments are the operands, one
// each, then the values around the operation that its regions use, in the order of `inputs`.
struct SingleOperation {
  std::shared_ptr<ir::Module> module;
  std::vector<const ir::Value*> inputs;
};
SingleOperation isolate_operation(const ir::Module& module, const ir::Operation& op);

}  // namespace hekla::passes
