// SPDX-License-Identifier: Apache-2.0
// Fusion: which of several ways operations are done that have more than one, alone or as parts of
// attentions, scores and rows.
#include <algorithm>

#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/plan/fusion.h"
#include "backends/compiler/plan/fusion_cost.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::plan {

using ir::OpCode;
using lower::Role;

void Fusion::ask_contraction(const ir::Operation& op, bool has_contractions) {
  kernel::Implementations ways;
  const kernel::Refusal why = has_contractions ? lower::why_no_contraction(op, lower_options_)
                              : fuse_          ? "the device has none"
                                      : "each operation is a kernel of its own (hekla_fuse=false)";
  if (ways.ask("contraction step", why)) add_contraction(op);
  const bool has_kernel = roles_.at(&op) != Role::kNone;
  ways.ask("kernel of loops", has_kernel ? "" : lower::why_no_kernel(op));
  ways.ask("evaluator on the host", "");
  asked_[&op] = ways.take();
}

void Fusion::ask_reduce(const ir::Operation& op) {
  kernel::Implementations ways;
  const bool is_tree = ways.ask("trees of points", lower::why_no_tree_reduce(op, lower_options_));
  const bool is_in_parts =
      ways.ask("kernels of parts of lines", lower::why_no_staged_reduce(op, lower_options_));
  if (is_tree || is_in_parts) staged_.insert(&op);
  ways.ask("a point for each line", "");
  asked_[&op] = ways.take();
}

// The order in which lower_sequence asks.
void Fusion::ask_scatter(const ir::Operation& op) {
  kernel::Implementations ways;
  ways.ask("updates in order", lower::why_no_scatter_in_order(op, lower_options_));
  ways.ask("updates sorted by place", lower::why_no_large_scatter(op, lower_options_));
  ways.ask("each element looks through the updates", "");
  asked_[&op] = ways.take();
}

void Fusion::ask_scan(const ir::Operation& op) {
  kernel::Implementations ways;
  ways.ask("blocks of lines, by teams of points", lower::why_no_team_scan(op, lower_options_));
  ways.ask("blocks of lines", lower::why_no_scan(op, lower_options_));
  ways.ask("each element reads its window", "");
  asked_[&op] = ways.take();
}

void Fusion::ask_sort(const ir::Operation& op) {
  kernel::Implementations ways;
  const lower::SortRefusals why = lower::why_no_sort(op, lower_options_);
  ways.ask("first elements of parts, then merges", why.partial);
  ways.ask("digits of keys, by teams of points", why.by_digits);
  ways.ask("sorted blocks, then merges", "");
  asked_[&op] = ways.take();
}

// However the program is planned otherwise, so that its bits do not depend on it.
void Fusion::find_attentions() {
  for (const auto& op : block_.operations()) {
    if (op->code() != OpCode::kDotGeneral || roles_.at(op.get()) != Role::kReduction) continue;
    kernel::Refusal why, why_no_matrix;
    const auto found = lower::find_attention(*op, lower_options_, why, &why_no_matrix);
    if (!found && why.empty()) continue;
    if (found && (is_cut(*op) || is_unwanted(*op) ||
                  std::any_of(found->members.begin(), found->members.end(),
                              [&](const ir::Operation* member) { return is_cut(*member); }))) {
      why = "its kernel would be too long";
    }
    if (found && std::any_of(found->members.begin(), found->members.end(),
                             [&](const ir::Operation* member) { return rows_.contains(member); })) {
      why = "part of it belongs to another attention";
    }
    if (why.empty()) add_attention(*found);
    prepend(*op, "attention by teams of points", why);
    prepend(*op, "attention on matrix units", why_no_matrix.empty() ? why : why_no_matrix);
  }
}

void Fusion::prepend(const ir::Operation& op, std::string_view way, const kernel::Refusal& why) {
  const auto it = asked_.find(&op);
  if (it == asked_.end()) return;
  kernel::Implementations ways;
  ways.ask(std::string(way), why);
  for (const kernel::Implementation& other : it->second) ways.ask(other.name, other.refusal);
  it->second = ways.take();
}

void Fusion::add_attention(const lower::Attention& attention) {
  attentions_.insert(attention.product);
  rows_[attention.product] = attention.product;
  drop_contraction(*attention.product);
  for (const ir::Operation* member : attention.members) {
    rows_[member] = attention.product;
    staged_.erase(member);
    drop_contraction(*member);
    prepend(*member, "part of an attention", "");
  }
}

void Fusion::find_scores() {
  if (lower_options_.attention_points < 2) return;
  const auto is_taken = [&](const ir::Operation& op) { return rows_.contains(&op); };
  for (const auto& found : lower::find_recomputed_scores(block_, is_taken, lower_options_)) {
    kernel::Refusal why = found.why_not;
    for (const auto* ops : {&found.members, &found.roots}) {
      if (std::any_of(ops->begin(), ops->end(),
                      [&](const ir::Operation* op) { return is_cut(*op) || is_unwanted(*op); })) {
        why = "its kernel would be too long";
      }
    }
    for (const ir::Operation* op : found.roots) prepend(*op, "scores made again", why);
    for (const ir::Operation* op : found.members) prepend(*op, "made again where it is used", why);
    if (!why.empty()) continue;
    for (const ir::Operation* op : found.roots) {
      rows_[op] = op;
      attentions_.insert(op);
    }
    for (const ir::Operation* op : found.members) rows_[op] = nullptr;
    for (const auto* ops : {&found.members, &found.roots}) {
      for (const ir::Operation* op : *ops) {
        staged_.erase(op);
        drop_contraction(*op);
      }
    }
  }
}

void Fusion::drop_contraction(const ir::Operation& op) {
  const auto it = contractions_.find(&op);
  if (it == contractions_.end()) return;
  for (const ir::Value* value = it->second; value != op.result();) {
    written_through_.erase(value->defining_op());
    value = value->defining_op()->operand(0);
  }
  contractions_.erase(it);
}

void Fusion::ask_fft(const ir::Operation& op) {
  kernel::Implementations ways;
  ways.ask("whole lines", lower::why_no_transform(op, lower_options_));
  ways.ask("a kernel for each pass", "");
  asked_[&op] = ways.take();
}

void Fusion::add_contraction(const ir::Operation& op) {
  const ir::Value& output = fuse_ ? lower::output_of(op, lower_options_) : *op.result();
  contractions_[&op] = &output;
  for (const ir::Value* value = &output; value != op.result();) {
    written_through_.insert(value->defining_op());
    value = value->defining_op()->operand(0);
  }
}

// Backwards, so that the last operation of a group is its root.
void Fusion::find_rows() {
  std::vector<const ir::Operation*> ops;
  const auto dims_of = [](const ir::Operation& op) -> const Dims& {
    return op.operand(0)->type().dims();
  };
  std::vector<const ir::Operation*> reductions;
  for (const auto& op : block_.operations()) {
    if (is_staged(*op) && lower::is_row_reduce(*op, lower_options_)) reductions.push_back(op.get());
    ops.push_back(op.get());
  }
  if (reductions.empty()) return;
  for (size_t i = ops.size(); i-- > 0;) {
    const ir::Operation& op = *ops[i];
    if (roles_.at(&op) != Role::kElementwise || op.result_count() != 1 || rows_.contains(&op) ||
        is_cut(op) || is_unwanted(op) || !op.result()->has_uses()) {
      continue;
    }
    const bool has_reductions =
        std::any_of(reductions.begin(), reductions.end(), [&](const ir::Operation* reduction) {
          return !rows_.contains(reduction) && dims_of(*reduction) == op.result()->type().dims();
        });
    if (has_reductions) add_rows(op, std::span(ops).first(i));
  }
}

bool Fusion::is_row_member(const ir::Operation& op, const Dims& dims,
                           const Operations& members) const {
  if (op.result_count() != 1 || rows_.contains(&op) || is_cut(op) || !op.result()->has_uses()) {
    return false;
  }
  const auto& users = op.result()->users();
  if (!std::all_of(users.begin(), users.end(),
                   [&](const ir::Operation* user) { return members.contains(user); })) {
    return false;
  }
  // One element for each line.
  const auto is_of_lines = [&](const Dims& other) {
    const auto kept = dims.size() - 1;
    return (other.size() == kept || (other.size() == kept + 1 && other.back() == 1)) &&
           std::equal(dims.begin(), dims.end() - 1, other.begin());
  };
  const Dims& mine = op.result()->type().dims();
  switch (roles_.at(&op)) {
    case Role::kElementwise:
      return mine == dims || is_of_lines(mine);
    case Role::kReduction:
      return is_staged(op) && op.operand(0)->type().dims() == dims &&
             lower::is_row_reduce(op, lower_options_);
    case Role::kMovement: {
      if (!is_of_lines(op.operand(0)->type().dims())) return false;
      if (op.code() == OpCode::kReshape) return is_of_lines(mine);
      if (op.code() != OpCode::kBroadcastInDim || !(mine == dims || is_of_lines(mine)))
        return false;
      const std::vector<int64_t> places = ir::int_list(op, "broadcast_dimensions");
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] != static_cast<int64_t>(i)) return false;
      }
      return true;
    }
    default:
      return false;
  }
}

bool Fusion::add_rows(const ir::Operation& root, std::span<const ir::Operation* const> before) {
  // How far back, so that the time stays linear in the program; and additions of a point.
  constexpr size_t kLookBack = 256;
  constexpr double kMostCost = 3000;
  const Dims& dims = root.result()->type().dims();
  Operations members{&root};
  double cost = cost_of(root, Role::kElementwise);
  int64_t elements = 0;
  for (size_t i = before.size(); i-- > 0 && before.size() - i <= kLookBack;) {
    const ir::Operation& op = *before[i];
    if (!is_row_member(op, dims, members)) continue;
    members.insert(&op);
    const Role role = roles_.at(&op);
    if (role == Role::kReduction) {
      elements = lower::elements_of_row_point(op, lower_options_);
      cost += 2;
    } else if (op.result()->type().dims() == dims) {
      cost += cost_of(op, role);
    }
  }
  if (elements == 0 || static_cast<double>(elements) * cost > kMostCost ||
      members.size() > kMaxOperations) {
    return false;
  }
  for (const ir::Operation* op : members) {
    rows_[op] = &root;
    staged_.erase(op);
  }
  return true;
}

}  // namespace hekla::plan
