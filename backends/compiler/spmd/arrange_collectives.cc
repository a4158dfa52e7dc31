// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/arrange_collectives.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {
namespace {

using ir::OpCode;

bool gives_the_same_of_the_same(OpCode code) {
  switch (code) {
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kAllToAll:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kReduceScatter:
      return true;
    default:
      return false;
  }
}

// Whether programs may stand in the operation's regions, in which collectives are arranged.
bool has_blocks_of_programs(const ir::Operation& op) {
  return op.code() == OpCode::kWhile || op.code() == OpCode::kCase || op.code() == OpCode::kIf ||
         op.code() == OpCode::kSdyManualComputation;
}

template <typename Visit>
void each_inner_block(const ir::Operation& op, Visit&& visit) {
  if (!has_blocks_of_programs(op)) return;
  for (size_t r = 0; r < op.region_count(); ++r) {
    for (const auto& block : op.region(r).blocks()) visit(*block);
  }
}

template <typename Visit>
void each_block(const ir::Module& module, Visit&& visit) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) visit(*block);
  }
}

std::vector<ir::Operation*> operations_of(const ir::Block& block) {
  std::vector<ir::Operation*> order;
  for (const auto& op : block.operations()) order.push_back(op.get());
  return order;
}

bool same_regions(const ir::Operation& a, const ir::Operation& b);

// Whether the operations compute the same, where `map` says what values of b are those of a.
bool same_operation(const ir::Operation& a, const ir::Operation& b,
                    std::unordered_map<const ir::Value*, const ir::Value*>& map) {
  if (a.code() != b.code() || a.name() != b.name() || a.operand_count() != b.operand_count() ||
      a.attributes() != b.attributes() || a.result_types() != b.result_types() ||
      a.region_count() != 0 || b.region_count() != 0) {
    return false;
  }
  for (size_t i = 0; i < a.operand_count(); ++i) {
    const auto known = map.find(b.operand(i));
    if (a.operand(i) != (known == map.end() ? b.operand(i) : known->second)) return false;
  }
  for (size_t i = 0; i < a.result_count(); ++i) map[b.result(i)] = a.result(i);
  return true;
}

bool same_regions(const ir::Operation& a, const ir::Operation& b) {
  if (a.region_count() != b.region_count()) return false;
  for (size_t r = 0; r < a.region_count(); ++r) {
    const ir::Block& left = a.region(r).front();
    const ir::Block& right = b.region(r).front();
    if (left.argument_types() != right.argument_types() ||
        left.operations().size() != right.operations().size()) {
      return false;
    }
    std::unordered_map<const ir::Value*, const ir::Value*> map;
    for (size_t i = 0; i < left.argument_count(); ++i) map[right.argument(i)] = left.argument(i);
    for (size_t i = 0; i < left.operations().size(); ++i) {
      if (!same_operation(*left.operations()[i], *right.operations()[i], map)) return false;
    }
  }
  return true;
}

ir::AttributeMap without_channel(const ir::Operation& op) {
  ir::AttributeMap attributes = op.attributes();
  attributes.erase("channel_handle");
  return attributes;
}

// Whether they do the same to any operands.
bool same_kind(const ir::Operation& a, const ir::Operation& b) {
  return a.code() == b.code() && without_channel(a) == without_channel(b) && same_regions(a, b);
}

// --- equal ones ---

int64_t merge_block(ir::Block& block, std::vector<ir::Operation*>& known) {
  int64_t merged = 0;
  const size_t mark = known.size();
  for (ir::Operation* op : operations_of(block)) {
    each_inner_block(*op, [&](ir::Block& inner) { merged += merge_block(inner, known); });
    if (!gives_the_same_of_the_same(op->code())) continue;
    const auto same = std::find_if(known.begin(), known.end(), [&](const ir::Operation* other) {
      return other->operands() == op->operands() && other->result_types() == op->result_types() &&
             same_kind(*other, *op);
    });
    if (same == known.end()) {
      known.push_back(op);
      continue;
    }
    for (size_t i = 0; i < op->result_count(); ++i) {
      op->result(i)->replace_all_uses_with((*same)->result(i));
    }
    block.erase(op);
    ++merged;
  }
  known.resize(mark);
  return merged;
}

// --- out of loops ---

int64_t bytes_of(const ir::Value& value) {
  if (!value.type().is_static_tensor()) return 0;
  const Result<int64_t> bytes = checked_bytes(value.type().dtype(), value.type().dims());
  return bytes.ok() ? *bytes : std::numeric_limits<int64_t>::max() / 2;
}

int64_t result_bytes(const ir::Operation& op) {
  int64_t bytes = 0;
  for (size_t i = 0; i < op.result_count(); ++i) bytes += bytes_of(*op.result(i));
  return bytes;
}

// What of one block of a loop is the same each time.
class Invariants {
 public:
  Invariants(ir::Operation& loop, ir::Block& block) : loop_(loop), block_(block) {
    const ir::Block& body = loop.region(1).front();
    for (size_t i = 0; i < body.argument_count(); ++i) {
      is_carried_.push_back(body.terminator()->operand(i) == body.argument(i));
    }
  }

  bool is_invariant(const ir::Operation& op) {
    return std::all_of(op.operands().begin(), op.operands().end(),
                       [&](const ir::Value* value) { return is_invariant(*value); });
  }

  // It stays, and whatever needs it.
  void keep(const ir::Operation& op) { known_[&op] = false; }

  // What stays in memory as long as the loop runs once it is moved: its results, and those of what
  // it needs that the loop goes on asking for.
  int64_t bytes_kept(const ir::Operation& op) const {
    std::unordered_set<const ir::Operation*> moving;
    collect(op, moving);
    int64_t bytes = result_bytes(op);
    for (const ir::Operation* needed : moving) {
      if (needed == &op) continue;
      for (size_t i = 0; i < needed->result_count(); ++i) {
        const std::vector<ir::Operation*>& users = needed->result(i)->users();
        const bool is_asked_for =
            std::any_of(users.begin(), users.end(),
                        [&](const ir::Operation* user) { return !moving.contains(user); });
        if (is_asked_for) bytes += bytes_of(*needed->result(i));
      }
    }
    return bytes;
  }

  // Puts it, and what it needs, in front of the loop.
  void move(ir::Operation& op) {
    for (size_t i = 0; i < op.operand_count(); ++i) {
      const ir::Value& value = *op.operand(i);
      if (value.defining_op() == nullptr) {
        if (value.argument_of() == &block_) op.set_operand(i, loop_.operand(number_of(value)));
      } else if (value.defining_op()->block() == &block_) {
        move(*value.defining_op());
      }
    }
    loop_.block()->insert_before(&loop_, block_.take(&op));
  }

 private:
  // It, and what goes with it.
  void collect(const ir::Operation& op, std::unordered_set<const ir::Operation*>& moving) const {
    if (!moving.insert(&op).second) return;
    for (const ir::Value* value : op.operands()) {
      const ir::Operation* needed = value->defining_op();
      if (needed != nullptr && needed->block() == &block_) collect(*needed, moving);
    }
  }

  size_t number_of(const ir::Value& argument) const {
    size_t i = 0;
    while (block_.argument(i) != &argument) ++i;
    return i;
  }

  bool is_invariant(const ir::Value& value) {
    ir::Operation* op = value.defining_op();
    if (op == nullptr) {
      return value.argument_of() != &block_ || is_carried_[number_of(value)];
    }
    if (op->block() != &block_) return true;
    const auto [found, is_new] = known_.try_emplace(op, false);
    if (is_new) {
      const bool may_move = gives_the_same_of_the_same(op->code()) ||
                            (op->region_count() == 0 && passes::is_pure(*op));
      // Not by the iterator: what is asked meanwhile may move it.
      const bool is_same = may_move && is_invariant(*op);
      known_[op] = is_same;
      return is_same;
    }
    return found->second;
  }

  ir::Operation& loop_;
  ir::Block& block_;
  std::vector<bool> is_carried_;
  std::unordered_map<const ir::Operation*, bool> known_;
};

int64_t hoist_block(ir::Block& block, int64_t most_bytes) {
  int64_t moved = 0;
  for (ir::Operation* op : operations_of(block)) {
    each_inner_block(*op, [&](ir::Block& inner) { moved += hoist_block(inner, most_bytes); });
    if (op->code() != OpCode::kWhile) continue;
    int64_t left = most_bytes;
    each_inner_block(*op, [&](ir::Block& inner) {
      Invariants invariants(*op, inner);
      for (ir::Operation* candidate : operations_of(inner)) {
        // One that another needed went with it.
        if (candidate->block() != &inner || !gives_the_same_of_the_same(candidate->code()) ||
            !invariants.is_invariant(*candidate)) {
          continue;
        }
        const int64_t bytes = invariants.bytes_kept(*candidate);
        if (bytes > left) {
          invariants.keep(*candidate);
          continue;
        }
        left -= bytes;
        invariants.move(*candidate);
        ++moved;
      }
    });
  }
  return moved;
}

// --- several at once ---

bool may_combine(const ir::Operation& op) {
  if (op.code() != OpCode::kAllReduce && op.code() != OpCode::kAllGather) return false;
  return op.operand_count() > 0 && op.operand_count() == op.result_count() &&
         std::all_of(op.operands().begin(), op.operands().end(), [](const ir::Value* value) {
           return value->type().is_static_tensor() && value->type().quantization() == nullptr;
         });
}

int64_t operand_bytes(const ir::Operation& op) {
  int64_t bytes = 0;
  for (const ir::Value* value : op.operands()) bytes += bytes_of(*value);
  return bytes;
}

// Where all of them come from.
ir::LocationRef locations_of(const std::vector<ir::Operation*>& operations) {
  auto fused = std::make_shared<ir::Location>();
  fused->kind = ir::Location::Kind::kFused;
  for (const ir::Operation* op : operations) {
    if (op->location() != nullptr) fused->children.push_back(op->location());
  }
  return fused->children.empty() ? nullptr : fused;
}

class Combiner {
 public:
  Combiner(ir::Block& block, int64_t most_bytes) : block_(block), most_bytes_(most_bytes) {}

  int64_t run() {
    for (ir::Operation* op : operations_of(block_)) {
      each_inner_block(*op,
                       [&](ir::Block& inner) { combined_ += Combiner(inner, most_bytes_).run(); });
      close_asked_for(*op, *op);
      if (may_combine(*op)) {
        take(*op);
      } else if (op == block_.terminator() || op->code() == OpCode::kWhile ||
                 (!has_blocks_of_programs(*op) && !gives_the_same_of_the_same(op->code()) &&
                  !passes::is_pure(*op))) {
        while (!open_.empty()) close(open_.begin(), *op);
      }
    }
    return combined_;
  }

 private:
  struct Bucket {
    std::vector<ir::Operation*> members;
    int64_t bytes = 0;
  };
  using Place = std::vector<Bucket>::iterator;

  // Those of which `op`, or something in its regions, asks for a result; what is made of them
  // stands in front of `before`.
  void close_asked_for(const ir::Operation& op, ir::Operation& before) {
    for (const ir::Value* value : op.operands()) {
      const auto asked = std::find_if(open_.begin(), open_.end(), [&](const Bucket& bucket) {
        return std::find(bucket.members.begin(), bucket.members.end(), value->defining_op()) !=
               bucket.members.end();
      });
      if (asked != open_.end()) close(asked, before);
    }
    if (open_.empty()) return;
    for (size_t r = 0; r < op.region_count(); ++r) {
      for (const auto& inner : op.region(r).blocks()) {
        for (const auto& one : inner->operations()) close_asked_for(*one, before);
      }
    }
  }

  void take(ir::Operation& op) {
    const int64_t bytes = operand_bytes(op);
    if (bytes > most_bytes_) return;
    auto fit = std::find_if(open_.begin(), open_.end(), [&](const Bucket& bucket) {
      const ir::Operation& first = *bucket.members.front();
      return first.operand(0)->type().dtype() == op.operand(0)->type().dtype() &&
             same_kind(first, op);
    });
    if (fit != open_.end() && fit->bytes + bytes > most_bytes_) {
      close(fit, op);
      fit = open_.end();
    }
    if (fit == open_.end()) fit = open_.insert(fit, Bucket());
    fit->members.push_back(&op);
    fit->bytes += bytes;
  }

  void close(Place place, ir::Operation& before) {
    const std::vector<ir::Operation*> members = std::move(place->members);
    open_.erase(place);
    if (members.size() == 1) return;
    const ir::Operation& first = *members.front();
    std::vector<ir::Value*> operands;
    std::vector<ir::Type> types;
    for (const ir::Operation* op : members) {
      operands.insert(operands.end(), op->operands().begin(), op->operands().end());
      for (ir::Type& type : op->result_types()) types.push_back(std::move(type));
    }
    auto made = std::make_unique<ir::Operation>(first.code(), std::move(operands), std::move(types),
                                                first.attributes(), locations_of(members));
    for (std::unique_ptr<ir::Region>& region : members.front()->take_regions()) {
      made->adopt_region(std::move(region));
    }
    const ir::Operation* all = block_.insert_before(&before, std::move(made));
    size_t next = 0;
    for (ir::Operation* op : members) {
      for (size_t i = 0; i < op->result_count(); ++i) {
        op->result(i)->replace_all_uses_with(all->result(next++));
      }
      block_.erase(op);
    }
    combined_ += static_cast<int64_t>(members.size()) - 1;
  }

  ir::Block& block_;
  const int64_t most_bytes_;
  std::vector<Bucket> open_;  // in the order of their first members
  int64_t combined_ = 0;
};

}  // namespace

int64_t merge_collectives(ir::Module& module) {
  int64_t merged = 0;
  each_block(module, [&](ir::Block& block) {
    std::vector<ir::Operation*> known;
    merged += merge_block(block, known);
  });
  return merged;
}

int64_t hoist_collectives(ir::Module& module, int64_t most_bytes) {
  int64_t moved = 0;
  each_block(module, [&](ir::Block& block) { moved += hoist_block(block, most_bytes); });
  return moved;
}

int64_t combine_collectives(ir::Module& module, int64_t most_bytes) {
  int64_t combined = 0;
  each_block(module, [&](ir::Block& block) { combined += Combiner(block, most_bytes).run(); });
  return combined;
}

void arrange_collectives(ir::Module& module, const PartitionSchedule& schedule,
                         PartitionCounts& counts) {
  const auto merge = [&] {
    while (schedule.merge_collectives) {
      const int64_t merged = merge_collectives(module);
      if (merged == 0) return;
      counts.merged += merged;
      passes::clean_up(module);
    }
  };
  merge();
  if (schedule.hoist_collectives) {
    const int64_t moved = hoist_collectives(module, schedule.hoist_bytes);
    counts.hoisted += moved;
    if (moved > 0) {
      passes::clean_up(module);
      merge();
    }
  }
  if (schedule.combine_bytes > 0) {
    counts.combined += combine_collectives(module, schedule.combine_bytes);
  }
}

}  // namespace hekla::spmd
