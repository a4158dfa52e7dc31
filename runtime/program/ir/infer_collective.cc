// SPDX-License-Identifier: Apache-2.0
// Collectives, as far as the operation alone tells: groups are checked for shape and ids for their
// sign; sizes follow where the groups tell the number of participants. Whether the ids fit a launch
// is device_groups.h's to say.
#include <algorithm>
#include <unordered_set>

#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

// The number of participants of a group: a multiple of `factor`, and `factor` itself where
// is_exact. factor is kDynamic when the operation does not tell (mesh axes, or no groups, which
// means everybody).
struct GroupSize {
  int64_t factor = kDynamic;
  bool is_exact = true;
};

// A splat of any size takes a few bytes of a program; nobody has as many devices.
Status expect_few_ids(const Operation& op, std::string_view name, const DenseValue& ids) {
  constexpr int64_t kMaxIds = 2 * sharding::kMaxDevices;
  int64_t count = 1;
  for (int64_t dim : ids.type.dims()) count = multiply_sizes(count, dim);
  if (count <= kMaxIds) return ok_status();
  return op_error(op, "{} has {} ids; the limit is {}", name, count, kMaxIds);
}

// replica_groups: -1 only where groups may differ in size, no id below that, none twice.
Result<GroupSize> group_size(const Operation& op, bool may_differ) {
  HEKLA_ASSIGN_OR_RETURN(GroupMode mode, group_mode(op));
  const Attribute& attribute = op.attribute("replica_groups");
  if (attribute.is_absent() || attribute.get<MeshAxesValue>() != nullptr) return GroupSize{};
  const DenseValue* dense = attribute.get<DenseValue>();
  if (dense == nullptr || dense->type.rank() != 2 || dense->type.dtype() != DType::kI64) {
    return op_error(op, "replica_groups must be a matrix of i64");
  }
  HEKLA_RETURN_IF_ERROR(expect_few_ids(op, "replica_groups", *dense));
  HEKLA_ASSIGN_OR_RETURN(HostArray ids, dense->expand());
  std::unordered_set<int64_t> seen;
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids.as<int64_t>()[i];
    if (id == -1 && may_differ) continue;
    if (id < 0)
      return op_error(op, "replica_groups holds {}{}", id,
                      id == -1 ? ", but groups must be of one size" : "");
    if (!seen.insert(id).second) return op_error(op, "replica_groups names {} twice", id);
  }
  if (ids.size() == 0) return GroupSize{};
  return GroupSize{dense->type.dims()[1], mode != GroupMode::kCrossReplicaAndPartition};
}

Status expect_some_operands(const Operation& op) {
  if (op.operand_count() > 0) return ok_status();
  return op_error(op, "takes at least one operand");
}

// Whether a declared result fits the size that is known to be a multiple of `extent`.
Status expect_multiple(const Operation& op, size_t i, int64_t dim, int64_t extent) {
  if (i >= op.result_count() || extent == kDynamic) return ok_status();
  const Type& declared = op.result(i)->type();
  if (!declared.is_tensor() || dim >= declared.rank()) return ok_status();
  const int64_t size = declared.dims()[static_cast<size_t>(dim)];
  if (size == kDynamic || (extent == 0 ? size == 0 : size % extent == 0)) return ok_status();
  return op_error(op, "dimension {} of the result {} is not a multiple of {}", dim,
                  declared.to_string(), extent);
}

Result<Types> infer_all_gather(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_some_operands(op));
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, "all_gather_dim"));
  HEKLA_ASSIGN_OR_RETURN(GroupSize size, group_size(op, false));
  Types results;
  for (const Type& input : inputs) {
    HEKLA_RETURN_IF_ERROR(expect_dimension(op, "all_gather_dim", dim, input.rank()));
    Dims dims = input.dims();
    int64_t& extent = dims[static_cast<size_t>(dim)];
    if (extent != kDynamic) {
      const int64_t least = size.factor == kDynamic ? extent : multiply_sizes(extent, size.factor);
      HEKLA_RETURN_IF_ERROR(expect_multiple(op, results.size(), dim, least));
      extent = size.factor == kDynamic || !size.is_exact ? kDynamic : least;
    }
    results.push_back(Type::tensor(input.element(), dims));
  }
  return results;
}

// Whether a reduction may compute in the element type of `to`: the same, or a wider one of a kind.
bool can_promote(const Type& from, const Type& to) {
  if (same_element(from, to)) return true;
  if (is_quantized(from) || is_quantized(to)) return is_quantized(from) && is_quantized(to);
  const DType a = from.dtype();
  const DType b = to.dtype();
  const bool one_kind =
      (is_float(a) && is_float(b)) || (is_complex(a) && is_complex(b)) ||
      (is_integer(a) && is_integer(b) && is_signed_integer(a) == is_signed_integer(b));
  return one_kind && dtype_bits(a) <= dtype_bits(b);
}

// The types of the operands with what the region returns as elements: reductions may promote.
Result<Types> reduced_types(const Operation& op, const Types& inputs) {
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 1));
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 0, 2, 1));
  const Block& block = op.region(0).front();
  const Type& element = block.terminator()->operand(0)->type();
  Types results;
  for (const Type& input : inputs) {
    if (!same_element(input, inputs[0])) {
      return op_error(op, "operands of one reduction differ in element type: {} and {}",
                      inputs[0].to_string(), input.to_string());
    }
    results.push_back(
        Type::tensor(is_quantized(input) ? input.element() : element.element(), input.dims()));
  }
  if (!inputs.empty() && !can_promote(inputs[0], element)) {
    return op_error(op, "the region reduces {}, the operand is {}", element.to_string(),
                    inputs[0].to_string());
  }
  for (const Type& argument : block.argument_types()) {
    if (!same_element(argument, element)) {
      return op_error(op, "the region takes {} and returns {}", argument.to_string(),
                      element.to_string());
    }
  }
  return results;
}

Result<Types> infer_all_reduce(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_some_operands(op));
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_RETURN_IF_ERROR(group_size(op, true).status());
  return reduced_types(op, inputs);
}

Result<Types> infer_reduce_scatter(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type input, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, "scatter_dimension"));
  HEKLA_RETURN_IF_ERROR(expect_dimension(op, "scatter_dimension", dim, input.rank()));
  HEKLA_ASSIGN_OR_RETURN(GroupSize size, group_size(op, false));
  HEKLA_ASSIGN_OR_RETURN(Types reduced, reduced_types(op, {input}));
  Dims dims = input.dims();
  int64_t& extent = dims[static_cast<size_t>(dim)];
  if (extent != kDynamic && size.factor != kDynamic && extent % size.factor != 0) {
    return op_error(op, "dimension {} of {} does not divide by {} participants", dim,
                    input.to_string(), size.factor);
  }
  if (extent == kDynamic || size.factor == kDynamic || !size.is_exact) {
    extent = kDynamic;
  } else {
    extent /= size.factor;
  }
  return Types{Type::tensor(reduced[0].element(), dims)};
}

Result<Types> infer_all_to_all(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_some_operands(op));
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t split, int_value(op, "split_dimension"));
  HEKLA_ASSIGN_OR_RETURN(int64_t concat, int_value(op, "concat_dimension"));
  HEKLA_ASSIGN_OR_RETURN(int64_t count, int_value(op, "split_count"));
  HEKLA_ASSIGN_OR_RETURN(GroupSize size, group_size(op, false));
  if (count <= 0) return op_error(op, "split_count {} must be positive", count);
  if (size.factor != kDynamic && size.factor != count) {
    return op_error(op, "split_count {} differs from the {} participants of a group", count,
                    size.factor);
  }
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

// The operands without the positions of the roots, which come last where has_dynamic_root is set.
Result<Types> inputs_before_root(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  if (flag_value(op, "has_dynamic_root")) {
    if (inputs.empty() || !is_integer_tensor(inputs.back()) || inputs.back().rank() > 1) {
      return op_error(op, "with has_dynamic_root the last operand must be a vector of integers");
    }
    inputs.pop_back();
  }
  if (inputs.empty()) return op_error(op, "takes at least one operand");
  return inputs;
}

Result<Types> infer_collective_broadcast(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(group_size(op, true).status());
  return inputs_before_root(op);
}

Result<Types> infer_collective_reduce(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(group_size(op, true).status());
  HEKLA_ASSIGN_OR_RETURN(Types inputs, inputs_before_root(op));
  return reduced_types(op, inputs);
}

Result<Types> infer_cross_replica_sum(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_RETURN_IF_ERROR(group_size(op, true).status());
  return tensor_operands(op);
}

// source_target_pairs: two columns, no negative id, none twice in a column.
Status check_pairs(const Operation& op) {
  const Attribute& attribute = op.attribute("source_target_pairs");
  if (attribute.is_absent()) return ok_status();
  const DenseValue* dense = attribute.get<DenseValue>();
  if (dense == nullptr || dense->type.rank() != 2 || dense->type.dtype() != DType::kI64 ||
      (dense->type.dims()[0] != 0 && dense->type.dims()[1] != 2)) {
    return op_error(op, "source_target_pairs must be a matrix of i64 with two columns");
  }
  HEKLA_RETURN_IF_ERROR(expect_few_ids(op, "source_target_pairs", *dense));
  HEKLA_ASSIGN_OR_RETURN(HostArray ids, dense->expand());
  std::unordered_set<int64_t> seen[2];
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids.as<int64_t>()[i];
    if (id < 0) return op_error(op, "source_target_pairs holds {}", id);
    if (!seen[i % 2].insert(id).second) {
      return op_error(op, "source_target_pairs has the {} {} twice",
                      i % 2 == 0 ? "source" : "target", id);
    }
  }
  return ok_status();
}

Result<Types> infer_permute(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  if (op.attribute("source_target_pairs").is_absent()) {
    return op_error(op, "has no source_target_pairs");
  }
  HEKLA_RETURN_IF_ERROR(check_pairs(op));
  return tensor_operands(op);
}

// Types of channels, by their numbers.
constexpr int64_t kDeviceToDevice = 1;
constexpr int64_t kDeviceToHost = 2;
constexpr int64_t kHostToDevice = 3;

Status check_channel(const Operation& op, int64_t host_type) {
  const auto* channel = op.attribute("channel_handle").get<ChannelHandle>();
  if (channel == nullptr) return op_error(op, "has no channel_handle");
  const bool is_host = flag_value(op, "is_host_transfer");
  const int64_t wanted = is_host ? host_type : kDeviceToDevice;
  // 0 is what senders write that leave the type to is_host_transfer.
  if (channel->type != wanted && channel->type != 0) {
    return op_error(op, "is_host_transfer = {} needs a channel of type {}, not {}", is_host, wanted,
                    channel->type);
  }
  return check_pairs(op);
}

Result<Types> infer_send(const Operation& op) {
  if (op.operand_count() == 0 || !op.operand(op.operand_count() - 1)->type().is_token()) {
    return op_error(op, "the last operand must be a token");
  }
  for (size_t i = 0; i + 1 < op.operand_count(); ++i) {
    HEKLA_RETURN_IF_ERROR(tensor_operand(op, i).status());
  }
  HEKLA_RETURN_IF_ERROR(check_channel(op, kDeviceToHost));
  return Types{Type::token()};
}

Result<Types> infer_recv(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  if (!op.operand(0)->type().is_token()) return op_error(op, "the operand must be a token");
  HEKLA_RETURN_IF_ERROR(check_channel(op, kHostToDevice));
  // The types of what is received cannot be inferred; they are declared.
  Types types = op.result_types();
  if (types.empty() || !types.back().is_token()) {
    return op_error(op, "the last result must be a token");
  }
  for (size_t i = 0; i + 1 < types.size(); ++i) {
    if (!types[i].is_static_tensor()) {
      return op_error(op, "result {} must be a tensor of known shape, is {}", i,
                      types[i].to_string());
    }
  }
  return types;
}

bool can_be_asynchronous(OpCode code) {
  switch (code) {
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kAllToAll:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kCollectiveReduce:
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kReduceScatter:
    case OpCode::kSlice:
      return true;
    default:
      return false;
  }
}

// The region holds one operation on its arguments, in any order, and returns its results.
Result<Types> infer_async_start(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 1));
  HEKLA_ASSIGN_OR_RETURN(const Block* block, region_block(op, 0));
  Types operands;
  for (const Value* operand : op.operands()) operands.push_back(operand->type());
  const Types arguments = block->argument_types();
  if (!std::equal(operands.begin(), operands.end(), arguments.begin(), arguments.end(),
                  are_compatible)) {
    return op_error(op, "the region takes ({}), the operands are ({})", types_string(arguments),
                    types_string(operands));
  }
  if (block->operations().size() != 2 || !can_be_asynchronous(block->operations()[0]->code())) {
    return op_error(op, "the region must hold one collective or slice and its return");
  }
  const Operation& body = *block->operations()[0];
  const Operation& last = *block->terminator();
  bool returns_it = last.operand_count() == body.result_count();
  for (size_t i = 0; returns_it && i < body.result_count(); ++i) {
    returns_it = last.operand(i) == body.result(i);
  }
  if (!returns_it) return op_error(op, "the region must return the results of {}", body.name());
  return Types{Type::future(body.result_types())};
}

Result<Types> infer_async_done(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  const Value& operand = *op.operand(0);
  if (operand.type().kind() != Type::Kind::kFuture) {
    return op_error(op, "takes a future, not {}", operand.type().to_string());
  }
  return operand.type().elements();
}

}  // namespace

Outcome infer_collective(const Operation& op) {
  switch (op.code()) {
    case OpCode::kAllGather:
      return {true, infer_all_gather(op)};
    case OpCode::kAllReduce:
      return {true, infer_all_reduce(op)};
    case OpCode::kAllToAll:
      return {true, infer_all_to_all(op)};
    case OpCode::kAsyncDone:
      return {true, infer_async_done(op)};
    case OpCode::kAsyncStart:
      return {true, infer_async_start(op)};
    case OpCode::kCollectiveBroadcast:
      return {true, infer_collective_broadcast(op)};
    case OpCode::kCollectivePermute:
      return {true, infer_permute(op)};
    case OpCode::kCollectiveReduce:
      return {true, infer_collective_reduce(op)};
    case OpCode::kCrossReplicaSum:
      return {true, infer_cross_replica_sum(op)};
    case OpCode::kRecv:
      return {true, infer_recv(op)};
    case OpCode::kReduceScatter:
      return {true, infer_reduce_scatter(op)};
    case OpCode::kSend:
      return {true, infer_send(op)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
