// SPDX-License-Identifier: Apache-2.0
// Collectives, as far as one device can judge: groups are checked for shape, sizes where the
// declared result implies the number of participants.
#include <algorithm>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

// Participants per group: the second dimension of replica_groups; kDynamic when it cannot be read
// from the attribute (mesh axes, or empty groups meaning everybody).
Result<int64_t> group_size(const Operation& op) {
  const Attribute& groups = op.attribute("replica_groups");
  if (groups.is_absent()) return kDynamic;
  const DenseValue* dense = groups.get<DenseValue>();
  if (dense == nullptr) return kDynamic;
  if (dense->type.rank() != 2 || dense->type.dtype() != DType::kI64) {
    return op_error(op, "replica_groups must be a matrix of i64, is {}", dense->type.to_string());
  }
  return dense->type.dims()[1] == 0 ? kDynamic : dense->type.dims()[1];
}

Result<Types> infer_scaled(const Operation& op, std::string_view attribute, bool gathers) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, attribute));
  HEKLA_ASSIGN_OR_RETURN(int64_t size, group_size(op));
  Types results;
  for (const Type& input : inputs) {
    HEKLA_RETURN_IF_ERROR(expect_dimension(op, attribute, dim, input.rank()));
    Dims dims = input.dims();
    int64_t& extent = dims[static_cast<size_t>(dim)];
    if (size == kDynamic || extent == kDynamic) {
      extent = kDynamic;
    } else if (gathers) {
      extent = multiply_sizes(extent, size);
    } else {
      if (extent % size != 0) {
        return op_error(op, "dimension {} of {} does not divide by {} participants", dim,
                        input.to_string(), size);
      }
      extent /= size;
    }
    results.push_back(Type::tensor(input.element(), dims));
  }
  return results;
}

Result<Types> infer_all_to_all(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t split, int_value(op, "split_dimension"));
  HEKLA_ASSIGN_OR_RETURN(int64_t concat, int_value(op, "concat_dimension"));
  HEKLA_ASSIGN_OR_RETURN(int64_t count, int_value(op, "split_count"));
  if (count <= 0) return op_error(op, "split_count {} must be positive", count);
  Types results;
  for (const Type& input : inputs) {
    HEKLA_RETURN_IF_ERROR(expect_dimension(op, "split_dimension", split, input.rank()));
    HEKLA_RETURN_IF_ERROR(expect_dimension(op, "concat_dimension", concat, input.rank()));
    Dims dims = input.dims();
    int64_t& from = dims[static_cast<size_t>(split)];
    if (from != kDynamic && from % count != 0) {
      return op_error(op, "dimension {} of {} does not divide by split_count {}", split,
                      input.to_string(), count);
    }
    if (from != kDynamic) from /= count;
    int64_t& to = dims[static_cast<size_t>(concat)];
    if (to != kDynamic) to = multiply_sizes(to, count);
    results.push_back(Type::tensor(input.element(), dims));
  }
  return results;
}

Result<Types> infer_same(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t size, group_size(op));
  static_cast<void>(size);
  return inputs;
}

}  // namespace

Outcome infer_collective(const Operation& op) {
  switch (op.code()) {
    case OpCode::kAllGather:
      return {true, infer_scaled(op, "all_gather_dim", true)};
    case OpCode::kReduceScatter:
      return {true, infer_scaled(op, "scatter_dimension", false)};
    case OpCode::kAllToAll:
      return {true, infer_all_to_all(op)};
    case OpCode::kAllReduce:
    case OpCode::kCollectivePermute:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCrossReplicaSum:
      return {true, infer_same(op)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
