// SPDX-License-Identifier: Apache-2.0
// Ops with a region on scalars: reduce, windows, map, sort.
#include <algorithm>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

// n inputs of one shape and n scalar initial values; returns the inputs.
Result<Types> inputs_and_initial_values(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types operands, tensor_operands(op));
  if (operands.empty() || operands.size() % 2 != 0) {
    return op_error(op, "takes n inputs and n initial values, has {} operands", operands.size());
  }
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 1));
  const size_t n = operands.size() / 2;
  for (size_t i = 0; i < n; ++i) {
    if (!shapes_agree(operands[0].dims(), operands[i].dims())) {
      return op_error(op, "inputs differ in shape: {} and {}", operands[0].to_string(),
                      operands[i].to_string());
    }
    if (!is_scalar_tensor(operands[n + i])) {
      return op_error(op, "initial value {} must be a scalar, is {}", i,
                      operands[n + i].to_string());
    }
  }
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 0, 2 * n, n));
  operands.resize(n);
  return operands;
}

// Result i has the element type that region `r` returns (it may promote).
Type with_region_element(const Operation& op, size_t r, size_t i, const Type& input, Dims dims) {
  if (is_quantized(input)) return Type::tensor(input.element(), std::move(dims));
  const Value* returned = op.region(r).front().terminator()->operand(i);
  return Type::tensor(returned->type().element(), std::move(dims));
}

Result<Types> infer_reduce(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, inputs_and_initial_values(op));
  HEKLA_ASSIGN_OR_RETURN(auto dimensions, int_list(op, "dimensions"));
  HEKLA_RETURN_IF_ERROR(expect_dimensions(op, "dimensions", dimensions, inputs[0].rank()));
  Dims shape = inputs[0].dims();
  for (const Type& input : inputs) shape = merged(shape, input.dims());
  Dims dims;
  for (int64_t i = 0; i < inputs[0].rank(); ++i) {
    if (std::find(dimensions.begin(), dimensions.end(), i) == dimensions.end()) {
      dims.push_back(shape[static_cast<size_t>(i)]);
    }
  }
  Types results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    results.push_back(with_region_element(op, 0, i, inputs[i], dims));
  }
  return results;
}

Result<Dims> windowed_shape(const Operation& op, const Type& input) {
  const size_t rank = input.dims().size();
  HEKLA_ASSIGN_OR_RETURN(auto window, int_list(op, "window_dimensions"));
  if (window.size() != rank) {
    return op_error(op, "window_dimensions has {} entries for rank {}", window.size(), rank);
  }
  HEKLA_ASSIGN_OR_RETURN(auto strides, int_list_or(op, "window_strides", rank, 1));
  HEKLA_ASSIGN_OR_RETURN(auto base_dilations, int_list_or(op, "base_dilations", rank, 1));
  HEKLA_ASSIGN_OR_RETURN(auto window_dilations, int_list_or(op, "window_dilations", rank, 1));
  HEKLA_ASSIGN_OR_RETURN(auto padding, padding_or_zero(op, rank));
  Dims dims;
  for (size_t i = 0; i < rank; ++i) {
    if (window[i] <= 0 || strides[i] <= 0 || base_dilations[i] <= 0 || window_dilations[i] <= 0) {
      return op_error(op, "window, stride and dilations of dimension {} must be positive", i);
    }
    dims.push_back(window_output_size(input.dims()[i], base_dilations[i], padding[i].first,
                                      padding[i].second, window[i], window_dilations[i],
                                      strides[i]));
  }
  return dims;
}

Result<Types> infer_reduce_window(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, inputs_and_initial_values(op));
  HEKLA_ASSIGN_OR_RETURN(Dims dims, windowed_shape(op, inputs[0]));
  Types results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    results.push_back(with_region_element(op, 0, i, inputs[i], dims));
  }
  return results;
}

Result<Types> infer_select_and_scatter(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 3));
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Types operands, tensor_operands(op));
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 0, 2, 1));
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 1, 2, 1));
  if (!is_scalar_tensor(operands[2])) {
    return op_error(op, "the initial value must be a scalar, is {}", operands[2].to_string());
  }
  HEKLA_ASSIGN_OR_RETURN(Dims dims, windowed_shape(op, operands[0]));
  if (!shapes_agree(dims, operands[1].dims())) {
    return op_error(op, "the source {} does not fit the windows of {}", operands[1].to_string(),
                    operands[0].to_string());
  }
  return Types{with_region_element(op, 1, 0, operands[0], operands[0].dims())};
}

Result<Types> infer_map(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 1));
  if (inputs.empty()) return op_error(op, "takes at least one operand");
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 0, inputs.size(), 1));
  for (const Type& input : inputs) {
    if (!shapes_agree(input.dims(), inputs[0].dims())) {
      return op_error(op, "operands differ in shape: {} and {}", inputs[0].to_string(),
                      input.to_string());
    }
  }
  return Types{with_region_element(op, 0, 0, inputs[0], inputs[0].dims())};
}

Result<Types> infer_sort(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 1));
  if (inputs.empty()) return op_error(op, "takes at least one operand");
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 0, 2 * inputs.size(), 1));
  const Value* less = op.region(0).front().terminator()->operand(0);
  if (less->type().dtype() != DType::kI1) {
    return op_error(op, "the comparator must return i1, returns {}", less->type().to_string());
  }
  const int64_t rank = inputs[0].rank();
  const IntegerValue* dimension = op.attribute("dimension").get<IntegerValue>();
  const int64_t dim = dimension == nullptr ? -1 : dimension->value;
  if (dim < -rank || dim >= std::max<int64_t>(rank, 1)) {
    return op_error(op, "dimension {} is outside of rank {}", dim, rank);
  }
  for (const Type& input : inputs) {
    if (!shapes_agree(input.dims(), inputs[0].dims())) {
      return op_error(op, "operands differ in shape: {} and {}", inputs[0].to_string(),
                      input.to_string());
    }
  }
  return inputs;
}

}  // namespace

Outcome infer_reduction(const Operation& op) {
  switch (op.code()) {
    case OpCode::kReduce:
      return {true, infer_reduce(op)};
    case OpCode::kReduceWindow:
      return {true, infer_reduce_window(op)};
    case OpCode::kSelectAndScatter:
      return {true, infer_select_and_scatter(op)};
    case OpCode::kMap:
      return {true, infer_map(op)};
    case OpCode::kSort:
      return {true, infer_sort(op)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
