// SPDX-License-Identifier: Apache-2.0
// dot, dot_general and convolution.
#include <algorithm>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

// The declared result's element type: contractions may accumulate in a wider one.
Result<Type> declared_element(const Operation& op) {
  if (op.result_count() != 1 || !op.result()->type().is_tensor()) {
    return op_error(op, "must have one result, a ranked tensor");
  }
  return op.result()->type().element();
}

Result<Types> infer_dot(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Type a, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type b, tensor_operand(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type element, declared_element(op));
  if (a.rank() < 1 || a.rank() > 2 || b.rank() < 1 || b.rank() > 2 ||
      !dims_agree(a.dims().back(), b.dims().front())) {
    return op_error(op, "cannot multiply {} and {}", a.to_string(), b.to_string());
  }
  Dims dims(a.dims().begin(), a.dims().end() - 1);
  dims.insert(dims.end(), b.dims().begin() + 1, b.dims().end());
  return Types{Type::tensor(element, dims)};
}

// The algorithms that StableHLO's specification lists: two sides alike (the 8-bit floats in any
// pairing), and how many products make one.
bool is_known(const DotAlgorithm& a) {
  if (a.lhs_component_count != 1 || a.rhs_component_count != 1) return false;
  const auto is_f8 = [](DType type) {
    return type == DType::kF8E4M3FN || type == DType::kF8E5M2 || type == DType::kF8E4M3FNUZ ||
           type == DType::kF8E5M2FNUZ || type == DType::kF8E4M3B11FNUZ;
  };
  const DType lhs = a.lhs_precision_type.dtype();
  const DType rhs = a.rhs_precision_type.dtype();
  const DType sum = a.accumulation_type.dtype();
  const int64_t products = a.num_primitive_operations;
  if (is_f8(lhs)) return is_f8(rhs) && sum == DType::kF32 && products == 1;
  if (lhs != rhs || a.allow_imprecise_accumulation) return false;
  const bool is_wider = sum == DType::kF32;
  switch (lhs) {
    case DType::kF16:
      return products == 1 && (sum == lhs || is_wider);
    case DType::kBF16:
      return (products == 1 && sum == lhs) ||
             (is_wider && (products == 1 || products == 3 || products == 6 || products == 9));
    case DType::kTF32:
      return is_wider && (products == 1 || products == 3);
    case DType::kF32:
    case DType::kF64:
      return products == 1 && sum == lhs;
    default:
      return false;
  }
}

Status check_algorithm(const Operation& op) {
  const auto* algorithm = op.attribute("algorithm").get<DotAlgorithm>();
  if (algorithm == nullptr) return ok_status();
  if (!is_known(*algorithm)) {
    return op_error(op, "the algorithm lhs {} rhs {} accumulation {} with {} products is not known",
                    algorithm->lhs_precision_type.to_string(),
                    algorithm->rhs_precision_type.to_string(),
                    algorithm->accumulation_type.to_string(), algorithm->num_primitive_operations);
  }
  const auto* precision = op.attribute("precision_config").get<ArrayValue>();
  if (precision == nullptr) return ok_status();
  for (const Attribute& element : precision->elements) {
    const auto* word = element.get<EnumValue>();
    if (word != nullptr && word->value != "DEFAULT") {
      return op_error(op, "an algorithm goes with the precision DEFAULT, not {}", word->value);
    }
  }
  return ok_status();
}

Result<Types> infer_dot_general(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Type a, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type b, tensor_operand(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type element, declared_element(op));
  const auto* numbers = op.attribute("dot_dimension_numbers").get<DotDimensionNumbers>();
  if (numbers == nullptr) return op_error(op, "has no dot_dimension_numbers");
  HEKLA_RETURN_IF_ERROR(check_algorithm(op));
  const DotDimensionNumbers& n = *numbers;
  if (n.lhs_batching_dimensions.size() != n.rhs_batching_dimensions.size() ||
      n.lhs_contracting_dimensions.size() != n.rhs_contracting_dimensions.size()) {
    return op_error(op, "the dimension lists of the two sides differ in length");
  }
  const auto check_side = [&](const Type& side, const std::vector<int64_t>& batch,
                              const std::vector<int64_t>& contracting, std::string_view what) {
    std::vector<int64_t> all = batch;
    all.insert(all.end(), contracting.begin(), contracting.end());
    return expect_dimensions(op, what, all, side.rank());
  };
  HEKLA_RETURN_IF_ERROR(check_side(a, n.lhs_batching_dimensions, n.lhs_contracting_dimensions,
                                   "left dimension list"));
  HEKLA_RETURN_IF_ERROR(check_side(b, n.rhs_batching_dimensions, n.rhs_contracting_dimensions,
                                   "right dimension list"));
  Dims dims;
  const auto pair_up = [&](const std::vector<int64_t>& left, const std::vector<int64_t>& right,
                           bool keep) -> Status {
    for (size_t i = 0; i < left.size(); ++i) {
      const int64_t l = a.dims()[static_cast<size_t>(left[i])];
      const int64_t r = b.dims()[static_cast<size_t>(right[i])];
      if (!dims_agree(l, r)) {
        return op_error(op, "dimension {} of {} and dimension {} of {} differ in size", left[i],
                        a.to_string(), right[i], b.to_string());
      }
      if (keep) dims.push_back(l == kDynamic ? r : l);
    }
    return ok_status();
  };
  HEKLA_RETURN_IF_ERROR(pair_up(n.lhs_batching_dimensions, n.rhs_batching_dimensions, true));
  HEKLA_RETURN_IF_ERROR(pair_up(n.lhs_contracting_dimensions, n.rhs_contracting_dimensions, false));
  const auto append_free = [&](const Type& side, const std::vector<int64_t>& batch,
                               const std::vector<int64_t>& contracting) {
    for (int64_t i = 0; i < side.rank(); ++i) {
      if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
          std::find(contracting.begin(), contracting.end(), i) == contracting.end()) {
        dims.push_back(side.dims()[static_cast<size_t>(i)]);
      }
    }
  };
  append_free(a, n.lhs_batching_dimensions, n.lhs_contracting_dimensions);
  append_free(b, n.rhs_batching_dimensions, n.rhs_contracting_dimensions);
  return Types{Type::tensor(element, dims)};
}

Status expect_permutation(const Operation& op, std::string_view what, int64_t first, int64_t second,
                          const std::vector<int64_t>& spatial, int64_t rank) {
  std::vector<int64_t> all = spatial;
  all.push_back(first);
  all.push_back(second);
  if (static_cast<int64_t>(all.size()) != rank) {
    return op_error(op, "{} dimension numbers name {} dimensions of rank {}", what, all.size(),
                    rank);
  }
  return expect_dimensions(op, what, all, rank);
}

Result<Types> infer_convolution(const Operation& op, bool dynamic) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, dynamic ? 3 : 2));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type w, tensor_operand(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type element, declared_element(op));
  const auto* numbers = op.attribute("dimension_numbers").get<ConvDimensionNumbers>();
  if (numbers == nullptr) return op_error(op, "has no dimension_numbers");
  const ConvDimensionNumbers& n = *numbers;
  const int64_t rank = x.rank();
  if (w.rank() != rank || rank < 2) {
    return op_error(op, "{} and {} must have one rank, at least 2", x.to_string(), w.to_string());
  }
  HEKLA_RETURN_IF_ERROR(expect_permutation(op, "input", n.input_batch_dimension,
                                           n.input_feature_dimension, n.input_spatial_dimensions,
                                           rank));
  HEKLA_RETURN_IF_ERROR(expect_permutation(op, "kernel", n.kernel_input_feature_dimension,
                                           n.kernel_output_feature_dimension,
                                           n.kernel_spatial_dimensions, rank));
  HEKLA_RETURN_IF_ERROR(expect_permutation(op, "output", n.output_batch_dimension,
                                           n.output_feature_dimension, n.output_spatial_dimensions,
                                           rank));
  const size_t spatial = static_cast<size_t>(rank - 2);
  HEKLA_ASSIGN_OR_RETURN(auto strides, int_list_or(op, "window_strides", spatial, 1));
  HEKLA_ASSIGN_OR_RETURN(auto lhs_dilation, int_list_or(op, "lhs_dilation", spatial, 1));
  HEKLA_ASSIGN_OR_RETURN(auto rhs_dilation, int_list_or(op, "rhs_dilation", spatial, 1));
  HEKLA_ASSIGN_OR_RETURN(auto reversal, int_list_or(op, "window_reversal", spatial, 0));
  std::vector<std::pair<int64_t, int64_t>> padding(spatial);
  if (!dynamic) {
    HEKLA_ASSIGN_OR_RETURN(padding, padding_or_zero(op, spatial));
  }
  for (size_t i = 0; i < spatial; ++i) {
    if (strides[i] <= 0 || lhs_dilation[i] <= 0 || rhs_dilation[i] <= 0) {
      return op_error(op, "strides and dilations of spatial dimension {} must be positive", i);
    }
  }
  HEKLA_ASSIGN_OR_RETURN(int64_t groups, int_value(op, "feature_group_count"));
  HEKLA_ASSIGN_OR_RETURN(int64_t batch_groups, int_value(op, "batch_group_count"));
  if (groups < 1 || batch_groups < 1 || (groups > 1 && batch_groups > 1)) {
    return op_error(op,
                    "feature_group_count {} and batch_group_count {} must be positive, and one "
                    "of them 1",
                    groups, batch_groups);
  }
  const auto dim = [](const Type& type, int64_t i) { return type.dims()[static_cast<size_t>(i)]; };
  const int64_t batch = dim(x, n.input_batch_dimension);
  const int64_t features = dim(x, n.input_feature_dimension);
  const int64_t kernel_in = dim(w, n.kernel_input_feature_dimension);
  const int64_t kernel_out = dim(w, n.kernel_output_feature_dimension);
  if (features != kDynamic &&
      (features % groups != 0 || !dims_agree(features / groups, kernel_in))) {
    return op_error(op, "{} input features in {} groups do not fit {}", features, groups,
                    w.to_string());
  }
  if (batch != kDynamic && batch % batch_groups != 0) {
    return op_error(op, "batch {} is no multiple of batch_group_count {}", batch, batch_groups);
  }
  if (kernel_out != kDynamic && (kernel_out % groups != 0 || kernel_out % batch_groups != 0)) {
    return op_error(op, "{} output features are no multiple of the {} groups", kernel_out,
                    std::max(groups, batch_groups));
  }
  Dims dims(static_cast<size_t>(rank));
  dims[static_cast<size_t>(n.output_batch_dimension)] =
      batch == kDynamic ? kDynamic : batch / batch_groups;
  dims[static_cast<size_t>(n.output_feature_dimension)] = kernel_out;
  for (size_t i = 0; i < spatial; ++i) {
    dims[static_cast<size_t>(n.output_spatial_dimensions[i])] =
        dynamic ? kDynamic
                : window_output_size(dim(x, n.input_spatial_dimensions[i]), lhs_dilation[i],
                                     padding[i].first, padding[i].second,
                                     dim(w, n.kernel_spatial_dimensions[i]), rhs_dilation[i],
                                     strides[i]);
  }
  return Types{Type::tensor(element, dims)};
}

}  // namespace

Outcome infer_contraction(const Operation& op) {
  switch (op.code()) {
    case OpCode::kDot:
      return {true, infer_dot(op)};
    case OpCode::kDotGeneral:
      return {true, infer_dot_general(op)};
    case OpCode::kConvolution:
      return {true, infer_convolution(op, false)};
    case OpCode::kDynamicConv:
      return {true, infer_convolution(op, true)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
