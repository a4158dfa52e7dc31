// SPDX-License-Identifier: Apache-2.0
// Reads of an array that stand behind an update of it, as in `x.at[i].set(x[j]).at[j].set(x[i])`,
// come to stand before it: then nobody needs what was there, and it is updated in place.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"

namespace hekla::passes {
namespace {

using ir::OpCode;
using ir::Operation;
using ir::Value;

// Operations that move with a read: indices are computed by few.
constexpr size_t kMostMoved = 64;

class ReadFirst {
 public:
  ReadFirst(ir::Block& block, const WindowLimits& limits) : block_(block), limits_(limits) {}

  void run() {
    std::vector<Operation*> updates;
    for (const auto& op : block_.operations()) {
      for (size_t i = 0; i < op->region_count(); ++i) {
        for (const auto& inner : op->region(i).blocks()) ReadFirst(*inner, limits_).run();
      }
      if (is_update(*op)) updates.push_back(op.get());
    }
    for (Operation* update : updates) move_reads(*update);
  }

 private:
  static bool is_update(const Operation& op) {
    return (op.code() == OpCode::kDynamicUpdateSlice || op.code() == OpCode::kScatter) &&
           op.result_count() == 1 && has_plain_types(op);
  }

  bool is_little_read(const Operation& op, const Value& array) const {
    return (op.code() == OpCode::kDynamicSlice || op.code() == OpCode::kSlice ||
            op.code() == OpCode::kGather) &&
           op.operand(0) == &array && std::ranges::count(op.operands(), &array) == 1 &&
           has_plain_types(op) &&
           limits_.is_little(element_count(op.result()->type().dims()),
                             element_count(array.type().dims()));
  }

  // All reads of what `update` changes that stand behind it, where there are no other such users.
  void move_reads(Operation& update) {
    const Value& array = *update.operand(0);
    const std::unordered_set<const Operation*> users(array.users().begin(), array.users().end());
    std::unordered_map<const Operation*, size_t> behind;  // what stands there: in which place
    std::vector<Operation*> order;
    bool is_behind = false;
    bool has_reads = false;
    for (const auto& op : block_.operations()) {
      if (is_behind) {
        behind.emplace(op.get(), order.size());
        order.push_back(op.get());
        if (users.contains(op.get())) {
          if (!is_little_read(*op, array)) return;
          has_reads = true;
        }
      }
      is_behind = is_behind || op.get() == &update;
    }
    if (!has_reads) return;
    std::vector<bool> moves(order.size(), false);
    size_t count = 0;
    for (size_t i = order.size(); i-- > 0;) {
      const Operation& op = *order[i];
      if (!moves[i] && !users.contains(&op)) continue;
      moves[i] = true;
      if (++count > kMostMoved || op.region_count() > 0 || !is_pure(op)) return;
      for (const Value* operand : op.operands()) {
        const Operation* made = operand->defining_op();
        if (made == &update) return;
        if (const auto it = behind.find(made); it != behind.end()) moves[it->second] = true;
      }
    }
    for (size_t i = 0; i < order.size(); ++i) {
      if (moves[i]) block_.insert_before(&update, block_.take(order[i]));
    }
  }

  ir::Block& block_;
  const WindowLimits& limits_;
};

}  // namespace

void read_before_updates(ir::Module& module, const WindowLimits& limits) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) ReadFirst(*block, limits).run();
  }
}

}  // namespace hekla::passes
