// SPDX-License-Identifier: Apache-2.0
// Ops that make or rearrange elements by position: constants, broadcasts, reshapes, slices, pads.
#include <algorithm>
#include <limits>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

// The declared result, which the op does not determine, as a tensor.
Result<Type> declared_tensor(const Operation& op) {
  if (op.result_count() != 1 || !op.result()->type().is_tensor()) {
    return op_error(op, "must have one result, a ranked tensor");
  }
  return op.result()->type();
}

// Operand i, a vector of integers, gives the shape of `out`: a constant one of i32 or i64, as
// clients write them, agrees with it.
Status check_shape_operand(const Operation& op, size_t i, const Type& out) {
  HEKLA_ASSIGN_OR_RETURN(Type shape, tensor_operand(op, i));
  if (!is_integer_tensor(shape) || shape.rank() != 1) {
    return op_error(op, "operand {} must be a vector of integers, is {}", i, shape.to_string());
  }
  if (!dims_agree(shape.dims()[0], out.rank())) {
    return op_error(op, "operand {} has {} entries for rank {}", i, shape.dims()[0], out.rank());
  }
  const Operation* maker = op.operand(i)->defining_op();
  const auto* value = maker != nullptr && maker->code() == OpCode::kConstant
                          ? maker->attribute("value").get<DenseValue>()
                          : nullptr;
  if (value == nullptr) return ok_status();
  HEKLA_ASSIGN_OR_RETURN(HostArray sizes, value->expand());
  if (sizes.dtype() != DType::kI32 && sizes.dtype() != DType::kI64) return ok_status();
  for (int64_t d = 0; d < sizes.size(); ++d) {
    const int64_t size =
        sizes.dtype() == DType::kI32 ? sizes.as<int32_t>()[d] : sizes.as<int64_t>()[d];
    if (!dims_agree(size, out.dims()[static_cast<size_t>(d)])) {
      return op_error(op, "the shape operand says {} for dimension {} of {}", size, d,
                      out.to_string());
    }
  }
  return ok_status();
}

Result<Types> infer_broadcast_in_dim(const Operation& op, size_t operands) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, operands));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, int_list(op, "broadcast_dimensions"));
  if (static_cast<int64_t>(dims.size()) != x.rank()) {
    return op_error(op, "broadcast_dimensions has {} entries for rank {}", dims.size(), x.rank());
  }
  HEKLA_RETURN_IF_ERROR(expect_dimensions(op, "broadcast_dimensions", dims, out.rank()));
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t from = x.dims()[i];
    const int64_t to = out.dims()[static_cast<size_t>(dims[i])];
    if (from != 1 && !dims_agree(from, to)) {
      return op_error(op, "dimension {} of {} cannot become dimension {} of {}", i, x.to_string(),
                      dims[i], out.to_string());
    }
  }
  if (operands == 2) HEKLA_RETURN_IF_ERROR(check_shape_operand(op, 1, out));
  return Types{
      Type::tensor(is_quantized(x) ? out.element() : x.element(), out.dims(), out.bounds())};
}

Result<Types> infer_broadcast(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, int_list(op, "broadcast_sizes"));
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t s) { return s < 0; })) {
    return op_error(op, "broadcast_sizes must not be negative");
  }
  Dims dims = sizes;
  dims.insert(dims.end(), x.dims().begin(), x.dims().end());
  return Types{Type::tensor(x.element(), dims)};
}

Result<Types> infer_reshape(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  if (x.is_static_tensor() && out.is_static_tensor()) {
    HEKLA_ASSIGN_OR_RETURN(int64_t from, checked_bytes(DType::kI8, x.dims()));
    HEKLA_ASSIGN_OR_RETURN(int64_t to, checked_bytes(DType::kI8, out.dims()));
    if (from != to) {
      return op_error(op, "{} and {} have different numbers of elements", x.to_string(),
                      out.to_string());
    }
  }
  return Types{
      Type::tensor(is_quantized(x) ? out.element() : x.element(), out.dims(), out.bounds())};
}

Result<Types> infer_transpose(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> permutation, int_list(op, "permutation"));
  if (static_cast<int64_t>(permutation.size()) != x.rank()) {
    return op_error(op, "permutation has {} entries for rank {}", permutation.size(), x.rank());
  }
  HEKLA_RETURN_IF_ERROR(expect_dimensions(op, "permutation", permutation, x.rank()));
  Dims dims;
  Dims bounds;
  for (int64_t from : permutation) {
    dims.push_back(x.dims()[static_cast<size_t>(from)]);
    if (!x.bounds().empty()) bounds.push_back(x.bounds()[static_cast<size_t>(from)]);
  }
  const bool takes_declared = is_quantized(x) && op.result()->type().is_tensor();
  return Types{
      Type::tensor(takes_declared ? op.result()->type().element() : x.element(), dims, bounds)};
}

Result<Types> infer_slice(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  const size_t rank = x.dims().size();
  HEKLA_ASSIGN_OR_RETURN(auto starts, int_list_or(op, "start_indices", rank, 0));
  HEKLA_ASSIGN_OR_RETURN(auto limits, int_list(op, "limit_indices"));
  HEKLA_ASSIGN_OR_RETURN(auto strides, int_list_or(op, "strides", rank, 1));
  if (limits.size() != rank) {
    return op_error(op, "limit_indices has {} entries for rank {}", limits.size(), rank);
  }
  Dims dims;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t size = x.dims()[i];
    if (starts[i] < 0 || starts[i] > limits[i] || (size != kDynamic && limits[i] > size) ||
        strides[i] <= 0) {
      return op_error(op, "dimension {}: [{}:{}:{}] is no slice of {}", i, starts[i], limits[i],
                      strides[i], x.to_string());
    }
    dims.push_back(limits[i] == starts[i] ? 0 : (limits[i] - starts[i] - 1) / strides[i] + 1);
  }
  return Types{Type::tensor(x.element(), dims)};
}

Result<Types> infer_pad(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type value, tensor_operand(op, 1));
  if (value.rank() != 0 || !same_element(x, value)) {
    return op_error(op, "the padding value {} is no scalar of {}", value.to_string(),
                    x.to_string());
  }
  const size_t rank = x.dims().size();
  HEKLA_ASSIGN_OR_RETURN(auto low, int_list_or(op, "edge_padding_low", rank, 0));
  HEKLA_ASSIGN_OR_RETURN(auto high, int_list_or(op, "edge_padding_high", rank, 0));
  HEKLA_ASSIGN_OR_RETURN(auto interior, int_list_or(op, "interior_padding", rank, 0));
  Dims dims;
  for (size_t i = 0; i < rank; ++i) {
    if (interior[i] < 0) {
      return op_error(op, "interior padding {} of dimension {} is negative", interior[i], i);
    }
    const int64_t size = x.dims()[i];
    if (size == kDynamic) {
      dims.push_back(kDynamic);
      continue;
    }
    const __int128 padded = static_cast<__int128>(size) + low[i] + high[i] +
                            static_cast<__int128>(std::max<int64_t>(size - 1, 0)) * interior[i];
    if (padded < 0 || padded > std::numeric_limits<int64_t>::max()) {
      return op_error(op, "dimension {} of {} is padded by {} and {} to an impossible size", i,
                      x.to_string(), low[i], high[i]);
    }
    dims.push_back(static_cast<int64_t>(padded));
  }
  return Types{Type::tensor(x.element(), dims)};
}

Result<Types> infer_concatenate(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  if (inputs.empty()) return op_error(op, "takes at least one operand");
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, "dimension"));
  HEKLA_RETURN_IF_ERROR(expect_dimension(op, "dimension", dim, inputs[0].rank()));
  Dims dims = inputs[0].dims();
  const size_t d = static_cast<size_t>(dim);
  for (size_t i = 1; i < inputs.size(); ++i) {
    Dims other = inputs[i].dims();
    if (other.size() == dims.size()) {
      if (dims[d] != kDynamic)
        dims[d] = other[d] == kDynamic ? kDynamic : add_sizes(dims[d], other[d]);
      other[d] = kDynamic;
    }
    if (!shapes_agree(dims, other) || !same_element(inputs[0], inputs[i])) {
      return op_error(op, "operand {} {} does not fit {}", i, inputs[i].to_string(),
                      inputs[0].to_string());
    }
    const int64_t total = dims[d];
    dims = merged(dims, other);
    dims[d] = total;
  }
  return Types{Type::tensor(inputs[0].element(), dims)};
}

Result<Types> infer_reverse(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(auto dims, int_list(op, "dimensions"));
  HEKLA_RETURN_IF_ERROR(expect_dimensions(op, "dimensions", dims, x.rank()));
  return Types{x};
}

Result<Types> infer_iota(const Operation& op, size_t operands) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, operands));
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, "iota_dimension"));
  HEKLA_RETURN_IF_ERROR(expect_dimension(op, "iota_dimension", dim, out.rank()));
  if (out.dtype() == DType::kI1) return op_error(op, "makes numbers, not {}", out.to_string());
  return Types{out};
}

Result<Types> infer_bitcast(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  if (is_complex(x.dtype()) != is_complex(out.dtype()) ||
      (x.dtype() == DType::kI1) != (out.dtype() == DType::kI1)) {
    return op_error(op, "cannot reinterpret {} as {}", x.to_string(), out.to_string());
  }
  const int from = dtype_bits(x.dtype());
  const int to = dtype_bits(out.dtype());
  // The wider side lacks the last dimension of the narrower one, which counts the parts.
  Dims expected = x.dims();
  if (from < to) {
    if (expected.empty() || to % from != 0 || !dims_agree(expected.back(), to / from)) {
      return op_error(op, "{} has no last dimension of {} elements for {}", x.to_string(),
                      to / from, out.to_string());
    }
    expected.pop_back();
  } else if (from > to) {
    if (from % to != 0) {
      return op_error(op, "{} bits are no multiple of {}", from, to);
    }
    expected.push_back(from / to);
  }
  return Types{Type::tensor(out.element(), expected, from == to ? x.bounds() : Dims{})};
}

Result<Types> infer_constant(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 0));
  const DenseValue* value = op.attribute("value").get<DenseValue>();
  if (value == nullptr) return op_error(op, "attribute value must hold dense elements");
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  if (is_quantized(out) && value->type.dims() == out.dims()) return Types{out};
  return Types{value->type};
}

Result<Types> infer_dimension_size(const Operation& op) {
  const bool sets = op.code() == OpCode::kSetDimensionSize;
  HEKLA_RETURN_IF_ERROR(expect_operands(op, sets ? 2 : 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, "dimension"));
  HEKLA_RETURN_IF_ERROR(expect_dimension(op, "dimension", dim, x.rank()));
  if (!sets) return Types{Type::tensor(DType::kI32, {})};
  HEKLA_ASSIGN_OR_RETURN(Type size, tensor_operand(op, 1));
  if (size.rank() != 0 || size.dtype() != DType::kI32) {
    return op_error(op, "the size must be tensor<i32>, is {}", size.to_string());
  }
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  return Types{Type::tensor(x.element(), out.dims(), out.bounds())};
}

// dynamic_reshape, dynamic_pad, real_dynamic_slice: operands give the shape at run time.
Result<Types> infer_dynamic_shape(const Operation& op, size_t operands, bool same_rank) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, operands));
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(Type out, declared_tensor(op));
  const size_t first_shape = op.code() == OpCode::kDynamicPad ? 2 : 1;
  for (size_t i = first_shape; i < inputs.size(); ++i) {
    if (!is_integer_tensor(inputs[i]) || inputs[i].rank() != 1) {
      return op_error(op, "operand {} must be a vector of integers, is {}", i,
                      inputs[i].to_string());
    }
    if (!dims_agree(inputs[i].dims()[0], out.rank())) {
      return op_error(op, "operand {} has {} entries for rank {}", i, inputs[i].dims()[0],
                      out.rank());
    }
  }
  if (same_rank && inputs[0].rank() != out.rank()) {
    return op_error(op, "{} and {} differ in rank", inputs[0].to_string(), out.to_string());
  }
  return Types{Type::tensor(inputs[0].element(), out.dims(), out.bounds())};
}

}  // namespace

Outcome infer_movement(const Operation& op) {
  switch (op.code()) {
    case OpCode::kBroadcastInDim:
      return {true, infer_broadcast_in_dim(op, 1)};
    case OpCode::kDynamicBroadcastInDim:
      return {true, infer_broadcast_in_dim(op, 2)};
    case OpCode::kBroadcast:
      return {true, infer_broadcast(op)};
    case OpCode::kReshape:
      return {true, infer_reshape(op)};
    case OpCode::kTranspose:
      return {true, infer_transpose(op)};
    case OpCode::kSlice:
      return {true, infer_slice(op)};
    case OpCode::kPad:
      return {true, infer_pad(op)};
    case OpCode::kConcatenate:
      return {true, infer_concatenate(op)};
    case OpCode::kReverse:
      return {true, infer_reverse(op)};
    case OpCode::kIota:
      return {true, infer_iota(op, 0)};
    case OpCode::kDynamicIota:
      return {true, infer_iota(op, 1)};
    case OpCode::kBitcastConvert:
      return {true, infer_bitcast(op)};
    case OpCode::kConstant:
      return {true, infer_constant(op)};
    case OpCode::kGetDimensionSize:
    case OpCode::kSetDimensionSize:
      return {true, infer_dimension_size(op)};
    case OpCode::kDynamicReshape:
      return {true, infer_dynamic_shape(op, 2, false)};
    case OpCode::kDynamicPad:
      return {true, infer_dynamic_shape(op, 5, true)};
    case OpCode::kRealDynamicSlice:
      return {true, infer_dynamic_shape(op, 4, true)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
