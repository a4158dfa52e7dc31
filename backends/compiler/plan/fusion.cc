// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/fusion.h"

#include <algorithm>
#include <limits>
#include <span>

#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/plan/fusion_cost.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::plan {
namespace {

using ir::OpCode;
using lower::Role;

// Values of so many elements that need nothing from memory are computed wherever they are used.
constexpr int64_t kLeastComputedMask = 64 * 1024;
// Operations in a row that several kernels may each compute for themselves.
constexpr int kMaxCopies = 4;
// Cost per element that a kernel may repeat for every use of an element, when there are few uses,
// and when there are many, as in a contraction: then only a change of place.
constexpr double kRepeatedCost = 3;
constexpr double kOftenRepeatedCost = 0.6;
constexpr double kOften = 8;
// Elements of a transposition beyond which its lines do not stay in the cache of a core.
constexpr int64_t kLeastTranspose = 1 << 16;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// lower::role_of, asked once for operations that differ in nothing it looks at: elementwise ones
// whose dtypes are all that they have.
Role role_like(const ir::Operation& op, const lower::LowerOptions& options,
               std::unordered_map<std::string, Role>& known) {
  if (op.region_count() != 0 || op.result_count() != 1 || !op.attributes().empty() ||
      op.code() == OpCode::kBitcastConvert) {
    return lower::role_of(op, options);
  }
  const auto code = static_cast<uint16_t>(op.code());
  std::string key{static_cast<char>(code), static_cast<char>(code >> 8)};
  const auto add = [&](const ir::Type& type) {
    if (!type.is_static_tensor() || type.quantization() != nullptr) return false;
    key += static_cast<char>(type.dtype());
    key += type.dims().empty() ? 's' : element_count(type.dims()) == 0 ? '0' : '1';
    return true;
  };
  bool is_known = add(op.result()->type());
  for (const ir::Value* operand : op.operands()) is_known = is_known && add(operand->type());
  if (!is_known) return lower::role_of(op, options);
  const auto it = known.find(key);
  if (it != known.end()) return it->second;
  const Role role = lower::role_of(op, options);
  // Others look at dimensions.
  if (role == Role::kElementwise) known.emplace(std::move(key), role);
  return role;
}

}  // namespace

Fusion::Fusion(const ir::Block& block, const PlanOptions& options, const DeviceTraits& traits,
               const Operations* cuts, std::unordered_set<const ir::Value*> unwanted)
    : block_(block),
      fuse_(options.fuse),
      merge_reductions_(options.fuse && traits.merges_reductions),
      least_transpose_(options.stored_transposes == StoredTransposes::kAll    ? 2
                       : options.stored_transposes == StoredTransposes::kNone ? kNever
                                                                              : kLeastTranspose),
      lower_options_(lower_options(options, traits)),
      window_limits_(window_limits(options, traits)),
      unwanted_(std::move(unwanted)),
      cuts_(cuts) {
  const auto& ops = block.operations();
  std::unordered_map<std::string, Role> known;
  for (const auto& op : ops) {
    roles_[op.get()] = role_like(*op, lower_options_, known);
    if (op->code() == OpCode::kDotGeneral || op->code() == OpCode::kConvolution) {
      ask_contraction(*op, (fuse_ && traits.has_contractions) || !traits.matrix_types.empty());
    }
    if (op->code() == OpCode::kReduce && roles_[op.get()] != Role::kNone) ask_reduce(*op);
    if (op->code() == OpCode::kReduceWindow && roles_[op.get()] != Role::kNone) ask_scan(*op);
    if (op->code() == OpCode::kSort && roles_[op.get()] != Role::kNone) ask_sort(*op);
    if (op->code() == OpCode::kScatter && roles_[op.get()] != Role::kNone) ask_scatter(*op);
    if (op->code() == OpCode::kFft && roles_[op.get()] != Role::kNone) ask_fft(*op);
  }
  find_attentions();
  find_scores();
  if (fuse_ && lower_options_.team_points > 1) find_rows();
  for (auto it = ops.rbegin(); it != ops.rend(); ++it) decide(**it);
  merge_roots();
}

std::vector<const ir::Operation*> Fusion::computed_for(
    const std::vector<const ir::Value*>& outputs) const {
  std::unordered_set<const ir::Operation*> inside;
  std::vector<const ir::Value*> open;
  const auto add = [&](const ir::Operation& op) {
    if (inside.insert(&op).second)
      open.insert(open.end(), op.operands().begin(), op.operands().end());
  };
  for (const ir::Value* output : outputs) add(*output->defining_op());
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    if (!in_memory(value)) add(*value.defining_op());
  }
  std::vector<const ir::Operation*> in_order;
  for (const auto& op : block_.operations()) {
    if (inside.contains(op.get()) && roles_.at(op.get()) != Role::kConstant) {
      in_order.push_back(op.get());
    }
  }
  return in_order;
}

std::vector<const ir::Operation*> Fusion::kernel_at(const ir::Operation& op) const {
  auto it = last_of_.find(&op);
  return it == last_of_.end() ? std::vector<const ir::Operation*>() : groups_[it->second].members;
}

bool Fusion::in_memory(const ir::Value& value) const {
  const ir::Operation* op = value.defining_op();
  if (op == nullptr) return true;
  if (op->code() == OpCode::kConstant) return !ir::is_one_number(value);
  if (op->code() == OpCode::kIota) return false;
  return op->block() != &block_ || stored_.contains(&value) || roles_.at(op) == Role::kNone;
}

void Fusion::demand(const ir::Value& value) {
  if (value.defining_op() != nullptr && value.defining_op()->block() == &block_) {
    stored_.insert(&value);
  }
}

void Fusion::demand_captured(const ir::Operation& op) {
  for (size_t i = 0; i < op.region_count(); ++i) {
    ir::walk(op.region(i), [&](const ir::Operation& inner) {
      for (const ir::Value* value : inner.operands()) demand(*value);
    });
  }
}

void Fusion::demand_operands(const ir::Operation& contraction) {
  const auto stored = [this](const ir::Value& value) {
    return !fuse_ || stored_.contains(&value) || written_through_.contains(value.defining_op());
  };
  for (const ir::Value* operand : contraction.operands()) {
    const lower::View view = lower::view_of(*operand, block_, stored);
    views_[&contraction].insert(view.through.begin(), view.through.end());
    demand(*view.base);
  }
}

bool Fusion::looks_through(const ir::Operation& user, const ir::Value& value) const {
  if (viewed_.contains(&user)) return true;
  const auto it = views_.find(&user);
  return it != views_.end() && it->second.contains(&value);
}

void Fusion::decide(const ir::Operation& op) {
  if (is_unwanted(op)) return;
  const Role role = roles_.at(&op);
  if (role == Role::kNone) {
    for (const ir::Value* value : op.operands()) {
      if (!unwanted_.contains(value)) demand(*value);
    }
    demand_captured(op);
    return;
  }
  demand_captured(op);
  if (role == Role::kConstant) return;
  if (role == Role::kSequence) {
    // Of a scatter in order, indices and updates may be computed where they are used.
    const bool may_compute = lower::is_scatter_in_order(op, lower_options_);
    const size_t count = may_compute ? op.result_count() : op.operand_count();
    for (size_t i = 0; i < count; ++i) demand(*op.operand(i));
  }
  if (const auto row = rows_.find(&op); row != rows_.end() && row->second != &op) {
    computed_[&op] = {row->second, next_path_++, 1, 0, 0};
    ++sizes_[row->second];
    return;
  }
  bool is_stored = op.result_count() != 1 || rows_.contains(&op) || role == Role::kSequence ||
                   op.code() == OpCode::kDynamicUpdateSlice || is_cut(op) || is_staged(op);
  bool is_used = false;
  for (size_t i = 0; i < op.result_count(); ++i) {
    is_stored |= stored_.contains(op.result(i));
    is_used |= op.result(i)->has_uses();
  }
  if (!is_used) return;
  if (is_contraction(op)) {
    stored_.insert(contractions_.at(&op));
    return demand_operands(op);
  }
  if (written_through_.contains(&op)) return;
  const auto& users = op.result()->users();
  if (!is_stored && std::all_of(users.begin(), users.end(), [&](const ir::Operation* user) {
        return looks_through(*user, *op.result());
      })) {
    viewed_.insert(&op);
    return;
  }
  if (is_stored || !fuse_ || !try_inline(op)) {
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (op.result(i)->has_uses()) stored_.insert(op.result(i));
    }
    computed_[&op] = {&op, 0, 1, 0, 0};
    sizes_[&op] = 1;
  }
}

bool Fusion::is_of_indices(const ir::Operation& op) const {
  constexpr int kMostOperations = 8;
  std::vector<const ir::Operation*> open{&op};
  for (int count = 0; !open.empty(); ++count) {
    const ir::Operation& one = *open.back();
    open.pop_back();
    if (count == kMostOperations || one.block() != &block_) return false;
    if (one.code() == OpCode::kIota) continue;
    if (one.code() == OpCode::kConstant) {
      if (in_memory(*one.result())) return false;
      continue;
    }
    const Role role = roles_.at(&one);
    if (role == Role::kNone || role == Role::kSequence || role == Role::kReduction ||
        cost_of(one, role) > 1 || is_cut(one)) {
      return false;
    }
    for (const ir::Value* operand : one.operands()) {
      if (operand->defining_op() == nullptr) return false;
      open.push_back(operand->defining_op());
    }
  }
  return true;
}

bool Fusion::is_of_updated(const ir::Operation& op) const {
  if (op.code() != OpCode::kDynamicSlice && op.code() != OpCode::kSlice &&
      op.code() != OpCode::kGather) {
    return false;
  }
  const ir::Value& from = *op.operand(0);
  if (!window_limits_.is_little(element_count(op.result()->type().dims()),
                                element_count(from.type().dims()))) {
    return false;
  }
  return std::ranges::any_of(from.users(), [&](const ir::Operation* user) {
    if (user->operand_count() == 0 || user->block() != &block_) return false;
    if (user->code() == OpCode::kScatter) {
      const auto arrays = std::span(user->operands()).first(user->result_count());
      return std::ranges::count(arrays, &from) > 0 &&
             lower::is_scatter_in_order(*user, lower_options_);
    }
    return user->code() == OpCode::kDynamicUpdateSlice && user->operand(0) == &from &&
           !lower::feeds_its_window(op, *user);
  });
}

bool Fusion::try_inline(const ir::Operation& op) {
  if (is_of_updated(op)) return false;
  const ir::Value& value = *op.result();
  const Role role = roles_.at(&op);
  const double cost = cost_of(op, role);
  const bool is_small = element_count(value.type().dims()) == 1;
  // What stands above the diagonal, for one: large, and a few operations on indices.
  const bool is_mask =
      element_count(value.type().dims()) >= kLeastComputedMask && is_of_indices(op);

  std::vector<const ir::Operation*> users(value.users().begin(), value.users().end());
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  Computed ours;
  bool is_first = true;
  bool is_shared = false;  // several kernels or several places in one
  for (const ir::Operation* user : users) {
    if (looks_through(*user, value)) continue;
    const auto it = computed_.find(user);
    if (it == computed_.end()) return false;  // not computed by a kernel of this block
    const Computed& theirs = it->second;
    Computed mine = theirs;
    if (!keeps_elements(*user, roles_.at(user), value)) mine.path = next_path_++;
    const double again = repeats_of(*user, roles_.at(user), value);
    mine.repeats = theirs.repeats * again;
    if (theirs.repeats <= 1) mine.spare = kRepeatedCost;
    if (mine.repeats >= kOften) mine.spare = std::min(mine.spare, kOftenRepeatedCost);
    if (is_first) {
      ours = mine;
      is_first = false;
      continue;
    }
    if (mine.root != ours.root || mine.path != ours.path) is_shared = true;
    ours.repeats = std::max(ours.repeats, mine.repeats);
    ours.copies = std::max(ours.copies, mine.copies);
    ours.spare = std::min(ours.spare, mine.spare);
  }
  if (is_first) return false;
  if (is_shared && element_count(value.type().dims()) >= least_transpose_ &&
      is_strided_transpose(op)) {
    return false;
  }
  if (role == Role::kReduction) {
    // As part of an elementwise kernel of the same points only, and not by a team's few points.
    return !is_shared && !rows_.contains(ours.root) && ours.root != nullptr && ours.path == 0 &&
           ours.repeats <= 1 && ++sizes_[ours.root] <= kMaxOperations &&
           (computed_[&op] = ours, true);
  }
  if (is_shared || ours.root == nullptr) {
    ours.root = nullptr;
    ours.path = next_path_++;
    ours.copies += 1;
    // One element, found by index arithmetic: what a kernel would do to load it anyway.
    const bool is_free = is_small && cost < 1;
    const int limit = is_small ? 4 * kMaxCopies : kMaxCopies;
    if (!is_free && !is_mask && (ours.copies > limit || (!is_small && cost > 1))) return false;
  }
  if (ours.repeats > 1 && !is_small && !is_mask) {
    ours.spare -= cost;
    if (ours.spare < 0) return false;
  }
  if (ours.root != nullptr && ++sizes_[ours.root] > kMaxOperations) return false;
  computed_[&op] = ours;
  return true;
}

}  // namespace hekla::plan
