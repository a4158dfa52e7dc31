// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/trip_count.h"
#include "backends/compiler/plan/planner_parts.h"
#include "runtime/program/ir/uses.h"

namespace hekla::plan {
namespace {

// Of a kernel that does iterations of a loop: its scalar instructions; instructions that a point
// executes, a tenth of a second on a slow processor, so that a device answers meanwhile; and those
// of all points.
constexpr int64_t kMostOfLoopKernel = 4000;
constexpr int64_t kMostOfPoint = int64_t{1} << 24;
constexpr int64_t kMostOfPoints = int64_t{1} << 34;
// Where kernels start quickly (device_traits.h): instructions of an iteration that depend on each
// other for long, points that keep a processor busy, and those that its caches do not hold.
constexpr int64_t kLongIteration = 40;
constexpr int64_t kSeveralPoints = 32;
constexpr int64_t kManyPoints = int64_t{1} << 16;

// Whether carried value `i` serves only to count: nobody else looks at it.
bool only_counts(const ir::Operation& loop, size_t i) {
  const ir::Block& body = loop.region(1).front();
  const ir::Value* counter = body.argument(i);
  const ir::Value* next = body.terminator()->operand(i);
  if (loop.result(i)->has_uses() || next->defining_op() == nullptr) return false;
  return counter->users().size() == 1 && counter->users()[0] == next->defining_op() &&
         next->defining_op()->block() == &body && next->users().size() == 1 &&
         passes::is_pure(*next->defining_op()) && next->defining_op()->result_count() == 1;
}

// What `value` is a version of by operations of `block` alone that update in place.
const ir::Value& updated_root(const ir::Value& value, const ir::Block& block) {
  const ir::Value* root = &value;
  while (root->defining_op() != nullptr && root->defining_op()->block() == &block) {
    const ir::Operation& op = *root->defining_op();
    size_t operand = 0;
    if (op.code() == ir::OpCode::kWhile || op.code() == ir::OpCode::kScatter) {
      operand = static_cast<size_t>(root->index());
    } else if (op.code() != ir::OpCode::kDynamicUpdateSlice) {
      break;
    }
    root = op.operand(operand);
  }
  return *root;
}

// Why an iteration has to take place as it is written, though nobody may look at what it makes: it
// tells somebody, or other devices wait for it. Empty: it has not.
kernel::Refusal why_in_steps(const ir::Block& body) {
  for (const auto& op : body.operations()) {
    if (op.get() != body.terminator() && !passes::is_pure(*op)) {
      return fmt::format("{} in it is more than its results", op->name());
    }
  }
  return {};
}

}  // namespace

void Planner::copy_all(const std::vector<Slice>& from, const std::vector<Slice>& to, Steps& steps) {
  std::vector<Slice> sources = from;
  for (size_t i = 0; i < from.size(); ++i) {
    for (size_t k = 0; k < to.size(); ++k) {
      if (k != i && from[i] == to[k] && !(from[i] == to[i])) {
        sources[i] = new_buffer(from[i].bytes);
        copy(from[i], sources[i], steps);
        break;
      }
    }
  }
  for (size_t i = 0; i < to.size(); ++i) copy(sources[i], to[i], steps);
}

Result<int64_t> Planner::iterations_at_once(const lower::PointwiseLoop& loop, int64_t count) const {
  Result<lower::LoweredKernel> one = lower::lower_pointwise_loop(loop, 1, true, lower_options());
  if (!one.ok()) return one.status();
  const kernel::Function& body = one->kernel.body;
  const auto size = static_cast<int64_t>(body.size());
  if (size > kMostOfLoopKernel) return 0;
  if (options_.small_limits) return std::min<int64_t>(count, 3);
  if (traits_.starts_kernels_quickly && size > kLongIteration && loop.points > kSeveralPoints &&
      loop.points < kManyPoints) {
    return 0;
  }
  int64_t most = std::min(kMostOfPoint / size, kMostOfPoints / size / loop.points);
  if (traits_.max_loop_iterations > 0) {
    const auto& all = body.instructions();
    const auto loops = std::count_if(all.begin(), all.end(), [](const auto& instruction) {
      return instruction.op == kernel::Op::kFor;
    });
    // Inner ones have at most 64 trips each; and an invocation may have several points.
    constexpr int64_t kMostTrips = 65, kPoints = 4;
    most = std::min(most, traits_.max_loop_iterations / kPoints / (1 + (loops - 1) * kMostTrips));
  }
  return most < 2 && most < count ? 0 : std::min(most, count);
}

void Planner::keep_carried(const ir::Operation& loop, size_t i, const Slice& slice,
                           const Fusion& fusion) {
  const ir::Value& before = *loop.operand(i);
  const ir::Value& after = *loop.result(i);
  // Behind the loop the slice is that of one value alone where only one of both is used there.
  if (after.has_uses() && !may_overwrite(loop, before, fusion)) {
    shared_.insert(&before);
    shared_.insert(&after);
  }
  slices_[&after] = slice;
  for (size_t r = 0; r < loop.region_count(); ++r) {
    const ir::Value* inside = loop.region(r).front().argument(i);
    slices_[inside] = slice;
    shared_.insert(inside);
  }
}

Result<bool> Planner::plan_pointwise_loop(const ir::Operation& op, int64_t count,
                                          const Fusion& fusion, Steps& steps) {
  kernel::Refusal why = why_in_steps(op.region(1).front());
  std::optional<lower::PointwiseLoop> loop;
  if (why.empty()) {
    loop = lower::find_pointwise_loop(
        op, [&](size_t i) { return only_counts(op, i); }, lower_options(), why);
  }
  int64_t at_once = 0;
  if (loop) {
    const Result<int64_t> most = iterations_at_once(*loop, count);
    if (most.ok()) at_once = *most;
    if (at_once == 0)
      why = most.ok() ? "an iteration is much work for many points" : most.status().message();
  }
  kernel::Implementations ways;
  ways.ask("iterations in a kernel", why);
  ways.ask("steps for each iteration", "");
  add_decision({fmt::format("{} of {} trips", op.name(), count), ways.take()});
  if (at_once == 0) return false;

  using Kind = lower::PointwiseLoop::Kind;
  const ir::Block& body = op.region(1).front();
  const int64_t rounds = (count - 1) / at_once;
  std::vector<size_t> changing;
  std::vector<Slice> current, next;
  for (size_t i = 0; i < loop->kinds.size(); ++i) {
    if (loop->kinds[i] == Kind::kUnwanted) continue;
    HEKLA_ASSIGN_OR_RETURN(const Slice from, slice_of(*op.operand(i)));
    slices_[body.argument(i)] = from;
    if (loop->kinds[i] == Kind::kFixed) {
      keep_carried(op, i, from, fusion);
    } else if (loop->kinds[i] == Kind::kRows) {
      copy(from, make_slice(*op.result(i)), steps);
    } else {
      changing.push_back(i);
      if (rounds == 0) continue;
      current.push_back(new_buffer(from.bytes));
      next.push_back(new_buffer(from.bytes));
      copy(from, current.back(), steps);
    }
  }
  if (rounds > 0) {
    for (size_t k = 0; k < changing.size(); ++k) {
      slices_[body.argument(changing[k])] = current[k];
      slices_[op.result(changing[k])] = next[k];
    }
    Result<lower::LoweredKernel> some =
        lower::lower_pointwise_loop(*loop, at_once, true, lower_options());
    if (!some.ok()) return some.status();
    RepeatStep repeat;
    repeat.count = rounds;
    HEKLA_RETURN_IF_ERROR(add_kernel(std::move(*some), repeat.body));
    for (size_t k = 0; k < changing.size(); ++k) copy(next[k], current[k], repeat.body);
    steps.push_back({std::move(repeat)});
  }
  for (const size_t i : changing) {
    if (op.result(i)->has_uses()) make_slice(*op.result(i));
  }
  Result<lower::LoweredKernel> rest =
      lower::lower_pointwise_loop(*loop, count - rounds * at_once, false, lower_options());
  if (!rest.ok()) return rest.status();
  HEKLA_RETURN_IF_ERROR(add_kernel(std::move(*rest), steps));
  return true;
}

Status Planner::plan_while(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
  const ir::Block& condition = op.region(0).front();
  const ir::Block& body = op.region(1).front();
  const int64_t count = passes::trip_count(op);
  const bool is_counted = count >= 0;
  if (options_.fuse && count > 0) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_planned, plan_pointwise_loop(op, count, fusion, steps));
    if (is_planned) return ok_status();
  }
  std::unordered_set<const ir::Value*> unwanted;
  std::vector<Slice> initial, carried;
  std::vector<size_t> changing;
  for (size_t i = 0; i < op.operand_count(); ++i) {
    if (is_counted && only_counts(op, i)) {
      unwanted.insert(body.terminator()->operand(i));
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(const Slice from, slice_of(*op.operand(i)));
    if (body.terminator()->operand(i) == body.argument(i)) {
      keep_carried(op, i, from, fusion);
      continue;
    }
    Slice mine = from;
    if (may_take(op, *op.operand(i), *op.result(i), fusion)) {
      slices_[op.result(i)] = mine;
    } else {
      mine = make_slice(*op.result(i));
    }
    initial.push_back(from);
    carried.push_back(mine);
    changing.push_back(i);
    slices_[condition.argument(i)] = mine;
    slices_[body.argument(i)] = mine;
  }
  copy_all(initial, carried, steps);
  if (count == 0) return ok_status();
  WhileStep loop;
  if (!is_counted) {
    HEKLA_RETURN_IF_ERROR(plan_block(condition, loop.condition));
    HEKLA_ASSIGN_OR_RETURN(loop.predicate, slice_of(*condition.terminator()->operand(0)));
  }
  HEKLA_RETURN_IF_ERROR(plan_block(body, loop.body, std::move(unwanted)));
  std::vector<Slice> next;
  for (const size_t i : changing) {
    HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*body.terminator()->operand(i)));
    next.push_back(slice);
  }
  copy_all(next, carried, loop.body);
  if (is_counted) {
    steps.push_back({RepeatStep{count, std::move(loop.body)}});
  } else {
    steps.push_back({std::move(loop)});
  }
  return ok_status();
}

const ir::Value* Planner::taken_by(const ir::Operation& op, size_t result, const Fusion& fusion) {
  std::vector<const ir::Value*> roots;
  for (size_t r = 0; r < op.region_count(); ++r) {
    const ir::Block& block = op.region(r).front();
    roots.push_back(&updated_root(*block.terminator()->operand(result), block));
  }
  for (size_t r = 0; r < roots.size(); ++r) {
    if (ir::block_of(*roots[r]) == &op.region(r).front()) continue;
    const auto keepers = static_cast<size_t>(std::ranges::count(roots, roots[r]));
    if (2 * keepers >= roots.size() && may_take(op, *roots[r], *op.result(result), fusion)) {
      return roots[r];
    }
  }
  return nullptr;
}

Status Planner::plan_branch(const ir::Operation& op, const Fusion& fusion, Steps& steps) {
  BranchStep branch;
  HEKLA_ASSIGN_OR_RETURN(branch.selector, slice_of(*op.operand(0)));
  std::vector<Slice> results;
  std::unordered_set<const ir::Value*> taken;
  for (size_t i = 0; i < op.result_count(); ++i) {
    const ir::Value* value = taken_by(op, i, fusion);
    if (value != nullptr && taken.insert(value).second) {
      results.push_back(slices_[op.result(i)] = slices_[value]);
    } else {
      results.push_back(make_slice(*op.result(i)));
    }
  }
  const auto lent_before = lent_;
  for (size_t r = 0; r < op.region_count(); ++r) {
    Steps inner;
    const ir::Block& block = op.region(r).front();
    for (const ir::Value* value : taken) lent_[value] = &block;
    HEKLA_RETURN_IF_ERROR(plan_block(block, inner));
    std::vector<Slice> values;
    for (const ir::Value* value : block.terminator()->operands()) {
      HEKLA_ASSIGN_OR_RETURN(const Slice slice, slice_of(*value));
      values.push_back(slice);
    }
    copy_all(values, results, inner);
    branch.branches.push_back(std::move(inner));
  }
  lent_ = lent_before;
  steps.push_back({std::move(branch)});
  return ok_status();
}

}  // namespace hekla::plan
