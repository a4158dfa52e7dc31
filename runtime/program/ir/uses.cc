// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/uses.h"

#include <algorithm>

namespace hekla::ir {

bool is_only_passed_on(const Value& value) {
  return std::ranges::all_of(value.users(), [&](const Operation* user) {
    switch (user->code()) {
      case OpCode::kFuncReturn:
      case OpCode::kReturn:
      case OpCode::kWhile:
      case OpCode::kDynamicSlice:
      case OpCode::kSlice:
        return true;
      case OpCode::kDynamicUpdateSlice:
      case OpCode::kGather:
      case OpCode::kScatter:
        return user->operand(0) == &value;
      default:
        return false;
    }
  });
}

}  // namespace hekla::ir
