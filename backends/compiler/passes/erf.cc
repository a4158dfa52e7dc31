// SPDX-License-Identifier: Apache-2.0
// Two polynomials, both computed for each element: x + x a(x^2) is exact in its first term, and so
// accurate where erf(x) is near 2 / sqrt(pi) x; 1 - b(|x|) is accurate where erf is near 1. There
// is no quotient, which takes as long as the second polynomial.
#include "backends/compiler/passes/erf.h"

#include <span>

#include "backends/compiler/passes/erf_coefficients.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;
using ir::Value;

Value* polynomial(ir::GraphBuilder& g, std::span<const double> coefficients, Value* x) {
  const Dims& dims = x->type().dims();
  Value* sum = g.constant(DType::kF32, dims, coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) {
    sum = g.add(g.multiply(sum, x), g.constant(DType::kF32, dims, coefficients[i]));
  }
  return sum;
}

}  // namespace

bool is_erf(const ir::Operation& op) {
  std::string name;
  if (op.code() == OpCode::kComposite) name = ir::text_value(op, "name");
  if (op.code() == OpCode::kCustomCall) name = ir::text_value(op, "call_target_name");
  if (name != "chlo.erf" && (name != "mhlo.erf" || op.code() != OpCode::kCustomCall)) return false;
  if (op.operand_count() != 1 || op.result_count() != 1) return false;
  const ir::Type& type = op.operand(0)->type();
  return type.is_static_tensor() && type.quantization() == nullptr && is_float(type.dtype()) &&
         type.dtype() != DType::kF64 && op.result()->type() == type;
}

Value* make_erf(ir::GraphBuilder& g, Value* argument) {
  const DType dtype = argument->type().dtype();
  const Dims dims = argument->type().dims();
  const auto constant = [&](double value) { return g.constant(DType::kF32, dims, value); };
  Value* x = g.convert(argument, DType::kF32);
  Value* size = g.make(OpCode::kAbs, {x});
  Value* square = g.multiply(x, x);
  Value* small = g.add(x, g.multiply(x, polynomial(g, kErfSmall, square)));
  Value* rest = polynomial(g, kErfLarge, g.subtract(size, constant(kErfMiddle)));
  // Of NaN the comparison is false, and it stays.
  Value* is_one = g.compare("GT", size, constant(kErfEnd));
  Value* large = g.select(is_one, constant(1), g.subtract(constant(1), rest));
  // large > 0 takes the sign bit of x.
  const auto bits = [&](Value* value) {
    return g.make(OpCode::kBitcastConvert, {value}, {}, ir::Type::tensor(DType::kUI32, dims));
  };
  Value* sign = g.bit_and(bits(x), g.constant(DType::kUI32, dims, 2147483648.0));
  Value* signed_large = g.make(OpCode::kBitcastConvert, {g.binary(OpCode::kOr, bits(large), sign)},
                               {}, ir::Type::tensor(DType::kF32, dims));
  Value* is_small = g.compare("LT", size, constant(kErfSplit));
  return g.convert(g.select(is_small, small, signed_large), dtype);
}

}  // namespace hekla::passes
