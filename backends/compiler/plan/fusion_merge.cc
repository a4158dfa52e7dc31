// SPDX-License-Identifier: Apache-2.0
// Fusion: kernels that read the same values, or one the other's result, become one.
#include <algorithm>

#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/plan/fusion.h"
#include "backends/compiler/plan/fusion_cost.h"

namespace hekla::plan {
namespace {

using ir::OpCode;
using lower::Role;

// Staged reductions that go through their lines together: more would want more registers than there
// are.
constexpr size_t kMaxSiblings = 4;

}  // namespace

void Fusion::collect_loads(const ir::Value& value, bool same, Group& group,
                           std::unordered_set<const ir::Value*>& seen,
                           std::unordered_set<const ir::Value*>& again) const {
  const ir::Operation* op = value.defining_op();
  const bool is_loaded = in_memory(value);
  if (is_loaded) {
    auto it = std::find_if(group.loads.begin(), group.loads.end(),
                           [&](const Load& load) { return load.value == &value; });
    if (it == group.loads.end()) {
      group.loads.push_back({&value, same});
    } else {
      it->same = it->same && same;
    }
    return;
  }
  if (op->operand_count() == 0) return;
  if (!seen.insert(&value).second) {
    if (same || !again.insert(&value).second) return;
  } else if (!same) {
    again.insert(&value);
  }
  for (const ir::Value* operand : op->operands()) {
    collect_loads(*operand, same && keeps_elements(*op, roles_.at(op), *operand), group, seen,
                  again);
  }
  if (roles_.at(op) == Role::kReduction) group.has_loops = true;
}

bool Fusion::may_join(const Group& group, const Group& next, int64_t position,
                      const std::vector<Reader>& readers) const {
  const ir::Operation& theirs = *group.members.front();
  const ir::Operation& ours = *next.members.front();
  if (theirs.result()->type().dims() != ours.result()->type().dims() ||
      group.size + next.size > kMaxOperations) {
    return false;
  }
  const bool is_staged = this->is_staged(ours);
  if (is_staged != this->is_staged(theirs)) return false;
  if (is_staged) {
    if (group.members.size() >= kMaxSiblings || !lower::are_siblings(theirs, ours, lower_options_))
      return false;
  } else if (group.has_loops && next.has_loops) {
    return false;
  }
  auto makes = [&](const ir::Value* value) {
    return std::find(group.members.begin(), group.members.end(), value->defining_op()) !=
           group.members.end();
  };
  const ir::Value& whole = is_staged ? *ours.operand(0) : *ours.result();
  const int64_t points = element_count(whole.type().dims());
  bool gains = false;
  for (const Load& load : next.loads) {
    if (makes(load.value)) {
      if (!load.same) return false;
      gains = true;
    }
    // Reading a large value once instead of twice, in its own order or transposed.
    if (element_count(load.value->type().dims()) != points) continue;
    gains |= std::any_of(group.loads.begin(), group.loads.end(), [&](const Load& other) {
      return other.value == load.value && other.same == load.same;
    });
  }
  if (!gains) return false;
  // Nobody else in between waits for what the group makes.
  return std::none_of(readers.begin(), readers.end(), [&](const Reader& reader) {
    if (reader.position <= group.first || reader.position >= position) return false;
    const auto& members = group.members;
    return std::find(members.begin(), members.end(), reader.op) == members.end() &&
           std::any_of(reader.values.begin(), reader.values.end(), makes);
  });
}

void Fusion::merge_roots() {
  // How far back a partner is looked for, so that the time stays linear in the program.
  constexpr size_t kLookBack = 1000;
  std::vector<Reader> readers;
  std::vector<size_t> candidates;  // groups, in order
  int64_t position = 0;
  for (const auto& owned : block_.operations()) {
    const ir::Operation& op = *owned;
    ++position;
    if (roles_.at(&op) == Role::kNone) {
      std::vector<const ir::Value*> values(op.operands().begin(), op.operands().end());
      for (size_t i = 0; i < op.region_count(); ++i) {
        ir::walk(op.region(i), [&](const ir::Operation& inner) {
          values.insert(values.end(), inner.operands().begin(), inner.operands().end());
        });
      }
      readers.push_back({position, &op, std::move(values)});
      continue;
    }
    if (written_through_.contains(&op)) continue;
    bool is_root = is_contraction(op) && stored_.contains(contractions_.at(&op));
    for (size_t i = 0; i < op.result_count(); ++i) is_root |= stored_.contains(op.result(i));
    if (!is_root || op.code() == OpCode::kConstant) continue;
    Group group;
    group.members = {&op};
    group.first = position;
    auto it = sizes_.find(&op);
    group.size = it == sizes_.end() ? 1 : it->second;
    std::unordered_set<const ir::Value*> seen, again;
    for (const ir::Value* operand : op.operands()) {
      if (is_contraction(op)) {
        const auto stored = [this](const ir::Value& value) { return in_memory(value); };
        group.loads.push_back({lower::view_of(*operand, block_, stored).base, false});
      } else {
        collect_loads(*operand, keeps_elements(op, roles_.at(&op), *operand), group, seen, again);
      }
    }
    group.has_loops |= roles_.at(&op) == Role::kReduction;
    std::vector<const ir::Value*> loads;
    for (const Load& load : group.loads) loads.push_back(load.value);
    const bool may_merge =
        fuse_ && op.result_count() == 1 && op.code() != OpCode::kDynamicUpdateSlice &&
        roles_.at(&op) != Role::kSequence && !is_contraction(op) && !is_cut(op) &&
        !rows_.contains(&op) && (merge_reductions_ || !is_staged(op));
    bool merged = false;
    for (size_t back = 0; may_merge && back < std::min(kLookBack, candidates.size()); ++back) {
      Group& earlier = groups_[candidates[candidates.size() - 1 - back]];
      if (!may_join(earlier, group, position, readers)) continue;
      last_of_.erase(earlier.members.back());
      last_of_[&op] = candidates[candidates.size() - 1 - back];
      earlier.members.push_back(&op);
      earlier.size += group.size;
      earlier.has_loops |= group.has_loops;
      for (const Load& load : group.loads) {
        auto same = std::find_if(earlier.loads.begin(), earlier.loads.end(),
                                 [&](const Load& other) { return other.value == load.value; });
        if (same == earlier.loads.end()) {
          earlier.loads.push_back(load);
        } else {
          same->same = same->same && load.same;
        }
      }
      merged = true;
      break;
    }
    if (!merged) {
      last_of_[&op] = groups_.size();
      if (may_merge) candidates.push_back(groups_.size());
      groups_.push_back(std::move(group));
    }
    readers.push_back({position, &op, std::move(loads)});
  }
  drop_inner_results(readers);
}

void Fusion::drop_inner_results(const std::vector<Reader>& readers) {
  std::unordered_map<const ir::Operation*, size_t> group_of;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const ir::Operation* member : groups_[g].members) group_of[member] = g;
  }
  std::unordered_set<const ir::Value*> needed;
  for (const Reader& reader : readers) {
    const auto mine = group_of.find(reader.op);
    for (const ir::Value* value : reader.values) {
      const auto maker = group_of.find(value->defining_op());
      if (mine == group_of.end() || maker == group_of.end() || mine->second != maker->second) {
        needed.insert(value);
      }
    }
  }
  for (Group& group : groups_) {
    if (group.members.size() < 2) continue;
    const ir::Operation* last = group.members.back();
    std::erase_if(group.members, [&](const ir::Operation* member) {
      if (member == last || needed.contains(member->result())) return false;
      stored_.erase(member->result());
      return true;
    });
  }
}

}  // namespace hekla::plan
