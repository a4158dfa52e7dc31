// SPDX-License-Identifier: Apache-2.0
// Control flow, tuples and tokens.
#include <algorithm>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

Types operand_types(const Operation& op) {
  Types types;
  for (const Value* operand : op.operands()) types.push_back(operand->type());
  return types;
}

Result<Types> returned_types(const Operation& op, size_t region) {
  HEKLA_ASSIGN_OR_RETURN(const Block* block, region_block(op, region));
  return operand_types(*block->terminator());
}

Status expect_types(const Operation& op, std::string_view what, const Types& actual,
                    const Types& expected) {
  if (actual.size() == expected.size() &&
      std::equal(actual.begin(), actual.end(), expected.begin(), are_compatible)) {
    return ok_status();
  }
  return op_error(op, "{} are ({}), not ({})", what, types_string(actual), types_string(expected));
}

Result<Types> infer_while(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 2));
  const Types state = operand_types(op);
  for (size_t i = 0; i < 2; ++i) {
    HEKLA_ASSIGN_OR_RETURN(const Block* block, region_block(op, i));
    HEKLA_RETURN_IF_ERROR(expect_types(op, i == 0 ? "arguments of cond" : "arguments of body",
                                       block->argument_types(), state));
  }
  HEKLA_ASSIGN_OR_RETURN(Types condition, returned_types(op, 0));
  HEKLA_RETURN_IF_ERROR(
      expect_types(op, "results of cond", condition, {Type::tensor(DType::kI1, {})}));
  HEKLA_ASSIGN_OR_RETURN(Types next, returned_types(op, 1));
  HEKLA_RETURN_IF_ERROR(expect_types(op, "results of body", next, state));
  return state;
}

Result<Types> infer_branches(const Operation& op) {
  const bool is_if = op.code() == OpCode::kIf;
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type selector, tensor_operand(op, 0));
  const DType wanted = is_if ? DType::kI1 : DType::kI32;
  if (selector.rank() != 0 || selector.dtype() != wanted) {
    return op_error(op, "selects by tensor<{}>, not {}", dtype_name(wanted), selector.to_string());
  }
  if (is_if) HEKLA_RETURN_IF_ERROR(expect_regions(op, 2));
  if (op.region_count() == 0) return op_error(op, "has no branch");
  HEKLA_ASSIGN_OR_RETURN(Types first, returned_types(op, 0));
  for (size_t i = 0; i < op.region_count(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(const Block* block, region_block(op, i));
    if (block->argument_count() != 0) return op_error(op, "branch {} must take no arguments", i);
    HEKLA_ASSIGN_OR_RETURN(Types types, returned_types(op, i));
    HEKLA_RETURN_IF_ERROR(expect_types(op, "results of the branches", types, first));
    // What one branch does not know of a shape, another may not claim.
    for (size_t k = 0; k < types.size(); ++k) {
      if (types[k].is_tensor() && first[k].is_tensor()) {
        Dims dims = first[k].dims();
        for (size_t d = 0; d < dims.size(); ++d) {
          if (types[k].dims()[d] == kDynamic) dims[d] = kDynamic;
        }
        first[k] = Type::tensor(first[k].element(), dims);
      }
    }
  }
  return first;
}

Result<Types> infer_get_tuple_element(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  const Type& tuple = op.operand(0)->type();
  HEKLA_ASSIGN_OR_RETURN(int64_t index, int_value(op, "index"));
  if (!tuple.is_tuple() || index < 0 || index >= static_cast<int64_t>(tuple.elements().size())) {
    return op_error(op, "{} has no element {}", tuple.to_string(), index);
  }
  return Types{tuple.elements()[static_cast<size_t>(index)]};
}

Result<Types> infer_after_all(const Operation& op) {
  for (const Type& type : operand_types(op)) {
    if (!type.is_token()) return op_error(op, "takes tokens, not {}", type.to_string());
  }
  return Types{Type::token()};
}

Result<Types> infer_custom_call(const Operation& op) {
  if (op.attribute("call_target_name").get<StringValue>() == nullptr) {
    return op_error(op, "has no call_target_name");
  }
  return op.result_types();
}

Result<Types> infer_composite(const Operation& op) {
  if (op.attribute("name").get<StringValue>() == nullptr) return op_error(op, "has no name");
  if (op.attribute("decomposition").get<SymbolValue>() == nullptr) {
    return op_error(op, "has no decomposition");
  }
  return op.result_types();
}

}  // namespace

Outcome infer_control(const Operation& op) {
  switch (op.code()) {
    case OpCode::kWhile:
      return {true, infer_while(op)};
    case OpCode::kIf:
    case OpCode::kCase:
      return {true, infer_branches(op)};
    case OpCode::kOptimizationBarrier:
      return {true, operand_types(op)};
    case OpCode::kTuple:
      return {true, Types{Type::tuple(operand_types(op))}};
    case OpCode::kGetTupleElement:
      return {true, infer_get_tuple_element(op)};
    case OpCode::kAfterAll:
      return {true, infer_after_all(op)};
    case OpCode::kCreateToken:
      return {true, Types{Type::token()}};
    case OpCode::kCustomCall:
      return {true, infer_custom_call(op)};
    case OpCode::kComposite:
      return {true, infer_composite(op)};
    case OpCode::kReplicaId:
    case OpCode::kPartitionId:
    case OpCode::kLaunchNumber:
      return {true, Types{Type::tensor(DType::kUI32, {})}};
    case OpCode::kReturn:
    case OpCode::kFuncReturn:
    case OpCode::kSdyReturn:
      return {true, Types{}};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
