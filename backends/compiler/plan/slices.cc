// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/slices.h"

namespace hekla::plan {
namespace {

const LoopStep* loop_of(const Step& step) {
  const auto* loop = std::get_if<std::shared_ptr<const LoopStep>>(&step.what);
  return loop == nullptr ? nullptr : loop->get();
}

const BranchStep* branch_of(const Step& step) {
  const auto* branch = std::get_if<std::shared_ptr<const BranchStep>>(&step.what);
  return branch == nullptr ? nullptr : branch->get();
}

}  // namespace

LoopStep& mutable_loop(const std::shared_ptr<const LoopStep>& loop) {
  return const_cast<LoopStep&>(*loop);
}
BranchStep& mutable_branch(const std::shared_ptr<const BranchStep>& branch) {
  return const_cast<BranchStep&>(*branch);
}

RowsStep& mutable_rows(const std::shared_ptr<const RowsStep>& rows) {
  return const_cast<RowsStep&>(*rows);
}

void visit_own(Step& step, const std::vector<kernel::Kernel>& kernels, const SliceVisitor& visit) {
  if (auto* run = std::get_if<KernelStep>(&step.what)) {
    const kernel::Kernel& kernel = kernels[static_cast<size_t>(run->kernel)];
    for (size_t i = 0; i < run->operands.size(); ++i) {
      visit(run->operands[i], kernel.operands[i].is_written);
    }
  } else if (auto* contract = std::get_if<ContractionStep>(&step.what)) {
    visit(contract->lhs, false);
    visit(contract->rhs, false);
    visit(contract->out, true);
  } else if (auto* copy = std::get_if<CopyStep>(&step.what)) {
    visit(copy->from, false);
    visit(copy->to, true);
  } else if (auto* host = std::get_if<HostStep>(&step.what)) {
    for (Slice& slice : host->inputs) visit(slice, false);
    for (Slice& slice : host->outputs) visit(slice, true);
  } else if (auto* branch = std::get_if<std::shared_ptr<const BranchStep>>(&step.what)) {
    visit(mutable_branch(*branch).selector, false);
  } else if (auto* rows = std::get_if<std::shared_ptr<const RowsStep>>(&step.what)) {
    RowsStep& inner = mutable_rows(*rows);
    for (Step& each : inner.steps) visit_own(each, kernels, visit);
    for (Slice& slice : inner.scratch) visit(slice, true);
  }
}

void visit_deep(Step& step, const std::vector<kernel::Kernel>& kernels, const SliceVisitor& visit) {
  visit_own(step, kernels, visit);
  if (auto* loop = std::get_if<std::shared_ptr<const LoopStep>>(&step.what)) {
    LoopStep& inner = mutable_loop(*loop);
    visit_deep(inner.condition, kernels, visit);
    visit(inner.predicate, false);
    visit_deep(inner.body, kernels, visit);
  } else if (auto* branch = std::get_if<std::shared_ptr<const BranchStep>>(&step.what)) {
    for (Steps& steps : mutable_branch(*branch).branches) visit_deep(steps, kernels, visit);
  }
}

void visit_deep(Steps& steps, const std::vector<kernel::Kernel>& kernels,
                const SliceVisitor& visit) {
  for (Step& step : steps) visit_deep(step, kernels, visit);
}

Steps copy_steps(const Steps& steps) {
  Steps copies;
  for (const Step& step : steps) {
    if (const LoopStep* loop = loop_of(step)) {
      auto copy = std::make_shared<LoopStep>();
      copy->condition = copy_steps(loop->condition);
      copy->predicate = loop->predicate;
      copy->body = copy_steps(loop->body);
      copy->trip_count = loop->trip_count;
      copies.push_back({std::shared_ptr<const LoopStep>(std::move(copy))});
    } else if (const BranchStep* branch = branch_of(step)) {
      auto copy = std::make_shared<BranchStep>();
      copy->selector = branch->selector;
      for (const Steps& inner : branch->branches) copy->branches.push_back(copy_steps(inner));
      copies.push_back({std::shared_ptr<const BranchStep>(std::move(copy))});
    } else if (auto* rows = std::get_if<std::shared_ptr<const RowsStep>>(&step.what)) {
      copies.push_back({std::make_shared<const RowsStep>(**rows)});
    } else {
      copies.push_back(step);
    }
  }
  return copies;
}

int64_t count_steps(const Steps& steps) {
  int64_t count = 0;
  for (const Step& step : steps) {
    ++count;
    if (const LoopStep* loop = loop_of(step)) {
      count += count_steps(loop->condition) + count_steps(loop->body);
    } else if (const BranchStep* branch = branch_of(step)) {
      for (const Steps& inner : branch->branches) count += count_steps(inner);
    } else if (auto* rows = std::get_if<std::shared_ptr<const RowsStep>>(&step.what)) {
      count += count_steps((*rows)->steps);
    }
  }
  return count;
}

}  // namespace hekla::plan
