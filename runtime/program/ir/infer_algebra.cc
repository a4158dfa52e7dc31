// SPDX-License-Identifier: Apache-2.0
// fft, linear algebra, random numbers, batch normalisation.
#include <algorithm>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

Result<Types> infer_fft(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  const EnumValue* kind = op.attribute("fft_type").get<EnumValue>();
  if (kind == nullptr) return op_error(op, "has no fft_type");
  HEKLA_ASSIGN_OR_RETURN(auto length, int_list(op, "fft_length"));
  if (length.empty() || length.size() > 3 || static_cast<int64_t>(length.size()) > x.rank()) {
    return op_error(op, "transforms 1 to 3 dimensions, not {} of {}", length.size(), x.to_string());
  }
  if (std::any_of(length.begin(), length.end(), [](int64_t n) { return n < 0; })) {
    return op_error(op, "fft_length must not be negative");
  }
  Dims dims = x.dims();
  const size_t first = dims.size() - length.size();
  const auto check = [&](int64_t i, int64_t expected) -> Status {
    if (dims_agree(dims[first + static_cast<size_t>(i)], expected)) return ok_status();
    return op_error(op, "dimension {} of {} must have {} elements for fft_length {}",
                    first + static_cast<size_t>(i), x.to_string(), expected,
                    length[static_cast<size_t>(i)]);
  };
  const int64_t last = static_cast<int64_t>(length.size()) - 1;
  for (int64_t i = 0; i < last; ++i) {
    HEKLA_RETURN_IF_ERROR(check(i, length[static_cast<size_t>(i)]));
  }
  const int64_t half = length.back() / 2 + 1;
  if (kind->value == "RFFT") {
    if (!is_float(x.dtype())) return op_error(op, "RFFT takes floats, not {}", x.to_string());
    HEKLA_RETURN_IF_ERROR(check(last, length.back()));
    dims.back() = length.back() == 0 ? 0 : half;
    return Types{Type::tensor(Type::scalar(complex_of(x.dtype())), dims)};
  }
  if (!is_complex(x.dtype())) {
    return op_error(op, "{} takes complex numbers, not {}", kind->value, x.to_string());
  }
  if (kind->value == "IRFFT") {
    HEKLA_RETURN_IF_ERROR(check(last, length.back() == 0 ? 0 : half));
    dims.back() = length.back();
    return Types{Type::tensor(Type::scalar(complex_part(x.dtype())), dims)};
  }
  HEKLA_RETURN_IF_ERROR(check(last, length.back()));
  return Types{x};
}

Result<Types> infer_cholesky(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type a, tensor_operand(op, 0));
  const size_t rank = a.dims().size();
  if (rank < 2 || !dims_agree(a.dims()[rank - 1], a.dims()[rank - 2]) ||
      !(is_float(a.dtype()) || is_complex(a.dtype()))) {
    return op_error(op, "takes square matrices of floats or complex numbers, not {}",
                    a.to_string());
  }
  return Types{a};
}

Result<Types> infer_triangular_solve(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Type a, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type b, tensor_operand(op, 1));
  const BoolValue* left = op.attribute("left_side").get<BoolValue>();
  const size_t rank = a.dims().size();
  const bool fits = rank >= 2 && b.dims().size() == rank && same_element(a, b) &&
                    dims_agree(a.dims()[rank - 1], a.dims()[rank - 2]) &&
                    dims_agree(a.dims()[rank - 1],
                               b.dims()[left != nullptr && left->value ? rank - 2 : rank - 1]) &&
                    std::equal(a.dims().begin(), a.dims().end() - 2, b.dims().begin(), dims_agree);
  if (!fits) {
    return op_error(op, "{} does not solve for {}", a.to_string(), b.to_string());
  }
  return Types{b};
}

Result<Types> infer_rng(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 3));
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  if (inputs[0].rank() != 0 || !same_element(inputs[0], inputs[1]) || inputs[1].rank() != 0 ||
      inputs[2].rank() != 1 || op.result_count() != 1 || !op.result()->type().is_tensor()) {
    return op_error(op, "takes two scalars of one type and a shape vector, has ({})",
                    types_string(inputs));
  }
  if (op.attribute("rng_distribution").get<EnumValue>() == nullptr) {
    return op_error(op, "has no rng_distribution");
  }
  return Types{Type::tensor(inputs[0].element(), op.result()->type().dims())};
}

Result<Types> infer_rng_bit_generator(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 1));
  HEKLA_ASSIGN_OR_RETURN(Type state, tensor_operand(op, 0));
  if (op.attribute("rng_algorithm").get<EnumValue>() == nullptr) {
    return op_error(op, "has no rng_algorithm");
  }
  if (op.result_count() != 2 || !op.result(1)->type().is_tensor()) {
    return op_error(op, "must have two results, the state and the bits");
  }
  return Types{state, op.result(1)->type()};
}

Result<Types> infer_batch_norm(const Operation& op, size_t operands) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, operands));
  HEKLA_ASSIGN_OR_RETURN(Types inputs, tensor_operands(op));
  HEKLA_ASSIGN_OR_RETURN(int64_t feature, int_value(op, "feature_index"));
  HEKLA_RETURN_IF_ERROR(expect_dimension(op, "feature_index", feature, inputs[0].rank()));
  if (op.attribute("epsilon").get<FloatValue>() == nullptr) return op_error(op, "has no epsilon");
  const Type per_feature =
      Type::tensor(inputs[0].element(), {inputs[0].dims()[static_cast<size_t>(feature)]});
  for (size_t i = 1; i < operands; ++i) {
    const bool is_full = op.code() == OpCode::kBatchNormGrad && i == 4;
    if (!are_compatible(inputs[i], is_full ? inputs[0] : per_feature)) {
      return op_error(op, "operand {} must be {}, is {}", i,
                      (is_full ? inputs[0] : per_feature).to_string(), inputs[i].to_string());
    }
  }
  if (op.code() == OpCode::kBatchNormInference) return Types{inputs[0]};
  return Types{inputs[0], per_feature, per_feature};
}

}  // namespace

Outcome infer_algebra(const Operation& op) {
  switch (op.code()) {
    case OpCode::kFft:
      return {true, infer_fft(op)};
    case OpCode::kCholesky:
      return {true, infer_cholesky(op)};
    case OpCode::kTriangularSolve:
      return {true, infer_triangular_solve(op)};
    case OpCode::kRng:
      return {true, infer_rng(op)};
    case OpCode::kRngBitGenerator:
      return {true, infer_rng_bit_generator(op)};
    case OpCode::kBatchNormTraining:
      return {true, infer_batch_norm(op, 3)};
    case OpCode::kBatchNormInference:
    case OpCode::kBatchNormGrad:
      return {true, infer_batch_norm(op, 5)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
