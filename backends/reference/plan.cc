// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/plan.h"

#include <algorithm>

namespace hekla::reference {
namespace {

class Planner {
 public:
  FunctionPlan run(const ir::Function& function) {
    FunctionPlan plan;
    plan.function = &function;
    plan_block(function.body().front(), plan.body);
    plan.slot_count = next_slot_;
    return plan;
  }

 private:
  int slot_of(const ir::Value* value) {
    auto [it, is_new] = slots_.emplace(value, next_slot_);
    if (is_new) ++next_slot_;
    return it->second;
  }

  void plan_block(const ir::Block& block, BlockPlan& plan) {
    plan.block = &block;
    for (size_t i = 0; i < block.argument_count(); ++i) {
      plan.arguments.push_back(slot_of(block.argument(i)));
    }
    plan.steps.reserve(block.operations().size());
    for (const auto& op : block.operations()) {
      Step& step = plan.steps.emplace_back();
      step.op = op.get();
      for (const ir::Value* operand : op->operands()) step.operands.push_back(slot_of(operand));
      for (size_t i = 0; i < op->region_count(); ++i) {
        step.regions.push_back(std::make_unique<BlockPlan>());
        plan_block(op->region(i).front(), *step.regions.back());
      }
      for (size_t i = 0; i < op->result_count(); ++i)
        step.results.push_back(slot_of(op->result(i)));
    }
    find_last_uses(plan);
  }

  // A value dies in the block that defines it, after the last step that reads it, in the step's
  // regions too.
  void find_last_uses(BlockPlan& plan) {
    std::unordered_map<int, size_t> last_use;
    std::vector<int> captured;
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      for (int slot : step.operands) last_use[slot] = i;
      captured.clear();
      for (const auto& region : step.regions) collect_reads(*region, captured);
      for (int slot : captured) last_use[slot] = i;
    }
    const auto kill = [&](int slot) {
      auto it = last_use.find(slot);
      if (it == last_use.end()) return false;
      plan.steps[it->second].dead.push_back(slot);
      return true;
    };
    for (int slot : plan.arguments) {
      if (!kill(slot)) plan.unused_arguments.push_back(slot);
    }
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      for (int slot : plan.steps[i].results) {
        if (!kill(slot)) plan.steps[i].dead.push_back(slot);
      }
    }
    for (Step& step : plan.steps) {
      captured.clear();
      for (const auto& region : step.regions) collect_reads(*region, captured);
      step.moves.resize(step.operands.size());
      for (size_t i = 0; i < step.operands.size(); ++i) {
        const int slot = step.operands[i];
        const bool is_dead = std::find(step.dead.begin(), step.dead.end(), slot) != step.dead.end();
        const bool is_once = std::count(step.operands.begin(), step.operands.end(), slot) == 1 &&
                             std::find(captured.begin(), captured.end(), slot) == captured.end();
        step.moves[i] = is_dead && is_once;
        if (step.moves[i]) std::erase(step.dead, slot);
      }
    }
  }

  std::unordered_map<const ir::Value*, int> slots_;
  int next_slot_ = 0;
};

}  // namespace

void collect_reads(const BlockPlan& plan, std::vector<int>& out) {
  for (const Step& step : plan.steps) {
    out.insert(out.end(), step.operands.begin(), step.operands.end());
    for (const auto& region : step.regions) collect_reads(*region, out);
  }
}

FunctionPlan make_plan(const ir::Function& function) { return Planner().run(function); }

}  // namespace hekla::reference
