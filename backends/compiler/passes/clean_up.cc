// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <unordered_map>
#include <vector>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

// Pure operations without regions, found again by their code and operands; attributes and types are
// compared one by one.
class Known {
 public:
  // An equal operation seen before in this scope, or null; then `op` is remembered.
  ir::Operation* find_or_add(ir::Operation& op) {
    size_t hash = static_cast<size_t>(op.code());
    for (const ir::Value* value : op.operands()) {
      hash = hash * 31 + std::hash<const void*>()(value);
    }
    auto [first, last] = ops_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      ir::Operation& other = *it->second;
      if (other.code() == op.code() && other.operands() == op.operands() &&
          other.result_types() == op.result_types() && other.attributes() == op.attributes()) {
        return &other;
      }
    }
    ops_.emplace(hash, &op);
    added_.push_back(hash);
    return nullptr;
  }

  size_t mark() const { return added_.size(); }
  // Forgets what was added since `mark`: the values of a region are not seen after it.
  void forget(size_t mark, const ir::Block& block) {
    for (; added_.size() > mark; added_.pop_back()) {
      auto [first, last] = ops_.equal_range(added_.back());
      for (auto it = first; it != last; ++it) {
        if (it->second->block() == &block) {
          ops_.erase(it);
          break;
        }
      }
    }
  }

 private:
  std::unordered_multimap<size_t, ir::Operation*> ops_;
  std::vector<size_t> added_;
};

void clean_block(ir::Block& block, Known& known) {
  const size_t mark = known.mark();
  std::vector<ir::Operation*> dead;
  for (const auto& owned : block.operations()) {
    ir::Operation& op = *owned;
    if (op.code() == OpCode::kGetTupleElement) {
      ir::Operation* tuple = op.operand(0)->defining_op();
      if (tuple != nullptr && tuple->code() == OpCode::kTuple) {
        const auto index = static_cast<size_t>(ir::int_value(op, "index"));
        op.result()->replace_all_uses_with(tuple->operand(index));
        dead.push_back(&op);
        continue;
      }
    }
    for (size_t i = 0; i < op.region_count(); ++i) {
      for (const auto& inner : op.region(i).blocks()) clean_block(*inner, known);
    }
    if (op.region_count() != 0 || op.result_count() == 0 || !is_pure(op)) continue;
    if (ir::Operation* same = known.find_or_add(op)) {
      for (size_t i = 0; i < op.result_count(); ++i) {
        op.result(i)->replace_all_uses_with(same->result(i));
      }
      dead.push_back(&op);
    }
  }
  known.forget(mark, block);
  for (ir::Operation* op : dead) block.erase(op);

  // From the end, so that what only a dead operation used dies with it.
  std::vector<ir::Operation*> order;
  for (const auto& op : block.operations()) order.push_back(op.get());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    ir::Operation& op = **it;
    if (&op == block.terminator() || !is_pure(op)) continue;
    bool used = false;
    for (size_t i = 0; i < op.result_count(); ++i) used |= op.result(i)->has_uses();
    if (!used) block.erase(&op);
  }
}

}  // namespace

bool is_pure(const ir::Operation& op) {
  switch (op.code()) {
    case OpCode::kUnknown:
    case OpCode::kCustomCall:
    case OpCode::kInfeed:
    case OpCode::kOutfeed:
    case OpCode::kSend:
    case OpCode::kRecv:
    case OpCode::kRng:
    case OpCode::kReturn:
    case OpCode::kFuncReturn:
    case OpCode::kFuncCall:
    case OpCode::kComposite:
    case OpCode::kAsyncStart:
    case OpCode::kAsyncDone:
    case OpCode::kWhile:  // may not end
    case OpCode::kCheckExpectAlmostEq:
    case OpCode::kCheckExpectAlmostEqConst:
    case OpCode::kCheckExpectClose:
    case OpCode::kCheckExpectEq:
    case OpCode::kCheckExpectEqConst:
    case OpCode::kCheckExpectSerializedEq:
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kAllToAll:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kCollectiveReduce:
    case OpCode::kCrossReplicaSum:
    case OpCode::kReduceScatter:
      return false;
    default:
      break;
  }
  for (size_t i = 0; i < op.region_count(); ++i) {
    for (const auto& block : op.region(i).blocks()) {
      for (const auto& inner : block->operations()) {
        if (inner.get() != block->terminator() && !is_pure(*inner)) return false;
      }
    }
  }
  return true;
}

void clean_up(ir::Module& module) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) {
      Known known;
      clean_block(*block, known);
    }
  }
}

}  // namespace hekla::passes
