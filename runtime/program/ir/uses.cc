// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/uses.h"

#include <algorithm>

namespace hekla::ir {

Block* block_of(const Value& value) {
  return value.defining_op() != nullptr ? value.defining_op()->block() : value.argument_of();
}

std::vector<Value*> captured_values(const Operation& op) {
  const auto is_inside = [&](const Block* block) {
    while (block != nullptr) {
      const Operation* parent = block->region()->parent();
      if (parent == &op) return true;
      block = parent == nullptr ? nullptr : parent->block();
    }
    return false;
  };
  std::vector<Value*> captured;
  for (size_t i = 0; i < op.region_count(); ++i) {
    walk(op.region(i), [&](const Operation& inner) {
      for (Value* value : inner.operands()) {
        if (!is_inside(block_of(*value))) captured.push_back(value);
      }
    });
  }
  return captured;
}

bool is_passed_on_by(const Operation& user, const Value& value) {
  switch (user.code()) {
    case OpCode::kFuncReturn:
    case OpCode::kReturn:
    case OpCode::kWhile:
    case OpCode::kDynamicSlice:
    case OpCode::kSlice:
      return true;
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kGather:
    case OpCode::kScatter:
      return user.operand(0) == &value;
    default:
      return false;
  }
}

bool is_only_passed_on(const Value& value) {
  return std::ranges::all_of(value.users(),
                             [&](const Operation* user) { return is_passed_on_by(*user, value); });
}

bool is_stored(const Value& value) {
  if (value.defining_op() == nullptr) return true;
  switch (value.defining_op()->code()) {
    case OpCode::kCase:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kIf:
    case OpCode::kScatter:
    case OpCode::kWhile:
      return true;
    default:
      return false;
  }
}

}  // namespace hekla::ir
