// SPDX-License-Identifier: Apache-2.0
// FunctionPlan: what the interpreter needs to know of a function before it runs it.
//
// Every value of the function, those of nested regions included, has a slot; every step knows which
// slots it reads, which it fills and which are dead after it. Made once per evaluate(), so that a
// loop's iteration costs no look-ups. Borrows the function; immutable once made.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::reference {

struct BlockPlan;

struct Step {
  const ir::Operation* op = nullptr;
  std::vector<int> operands;
  std::vector<int> results;
  // moves[i]: operand i is not read after this step, nor by another operand of it.
  std::vector<bool> moves;
  // Slots to empty after the step, operands that are moved left out.
  std::vector<int> dead;
  std::vector<std::unique_ptr<BlockPlan>> regions;
};

struct BlockPlan {
  const ir::Block* block = nullptr;
  std::vector<int> arguments;
  // Arguments that nobody reads.
  std::vector<int> unused_arguments;
  std::vector<Step> steps;  // the terminator is the last
};

struct FunctionPlan {
  const ir::Function* function = nullptr;
  int slot_count = 0;
  BlockPlan body;
};

// The function has a body and was verified.
FunctionPlan make_plan(const ir::Function& function);

// Appends the slots that the steps of a block and its regions read.
void collect_reads(const BlockPlan& plan, std::vector<int>& out);

}  // namespace hekla::reference
