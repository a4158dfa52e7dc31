// SPDX-License-Identifier: Apache-2.0
// Elementwise operations and conversions.
#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

namespace {

const std::vector<OpCode>& exact_unary(DType dtype) {
  static const std::vector<OpCode> kBool = {OpCode::kNot};
  static const std::vector<OpCode> kSigned = {OpCode::kAbs,    OpCode::kNegate,
                                              OpCode::kNot,    OpCode::kSign,
                                              OpCode::kPopcnt, OpCode::kCountLeadingZeros};
  static const std::vector<OpCode> kUnsigned = {OpCode::kNegate, OpCode::kNot, OpCode::kPopcnt,
                                                OpCode::kCountLeadingZeros};
  static const std::vector<OpCode> kFloat = {OpCode::kAbs,
                                             OpCode::kNegate,
                                             OpCode::kSign,
                                             OpCode::kCeil,
                                             OpCode::kFloor,
                                             OpCode::kRoundNearestAfz,
                                             OpCode::kRoundNearestEven,
                                             OpCode::kSqrt,
                                             OpCode::kIsFinite};
  static const std::vector<OpCode> kComplex = {OpCode::kNegate, OpCode::kReal, OpCode::kImag};
  if (dtype == DType::kI1) return kBool;
  if (is_complex(dtype)) return kComplex;
  if (is_float(dtype)) return kFloat;
  return is_signed_integer(dtype) ? kSigned : kUnsigned;
}

const std::vector<OpCode>& functions(DType dtype) {
  static const std::vector<OpCode> kFloat = {
      OpCode::kCbrt, OpCode::kCosine,     OpCode::kExponential, OpCode::kExponentialMinusOne,
      OpCode::kLog,  OpCode::kLogPlusOne, OpCode::kLogistic,    OpCode::kRsqrt,
      OpCode::kSine, OpCode::kTan,        OpCode::kTanh};
  static const std::vector<OpCode> kComplex = {
      OpCode::kAbs,  OpCode::kCosine,     OpCode::kExponential, OpCode::kExponentialMinusOne,
      OpCode::kLog,  OpCode::kLogPlusOne, OpCode::kLogistic,    OpCode::kRsqrt,
      OpCode::kSine, OpCode::kSqrt,       OpCode::kTanh,        OpCode::kSign};
  return is_complex(dtype) ? kComplex : kFloat;
}

const std::vector<OpCode>& exact_binary(DType dtype) {
  static const std::vector<OpCode> kBool = {OpCode::kAnd,    OpCode::kOr,       OpCode::kXor,
                                            OpCode::kAdd,    OpCode::kMultiply, OpCode::kMaximum,
                                            OpCode::kMinimum};
  static const std::vector<OpCode> kInteger = {OpCode::kAdd,       OpCode::kSubtract,
                                               OpCode::kMultiply,  OpCode::kDivide,
                                               OpCode::kRemainder, OpCode::kMaximum,
                                               OpCode::kMinimum,   OpCode::kAnd,
                                               OpCode::kOr,        OpCode::kXor,
                                               OpCode::kShiftLeft, OpCode::kShiftRightArithmetic,
                                               OpCode::kPower,     OpCode::kShiftRightLogical};
  static const std::vector<OpCode> kFloat = {
      OpCode::kAdd,    OpCode::kAdd,       OpCode::kSubtract, OpCode::kMultiply, OpCode::kMultiply,
      OpCode::kDivide, OpCode::kRemainder, OpCode::kMaximum,  OpCode::kMinimum};
  static const std::vector<OpCode> kComplex = {OpCode::kAdd, OpCode::kSubtract};
  if (dtype == DType::kI1) return kBool;
  if (is_complex(dtype)) return kComplex;
  return is_float(dtype) ? kFloat : kInteger;
}

}  // namespace

ir::Operation* Generator::unary(OpCode code, ir::Value* x) {
  if (x == nullptr) return nullptr;
  // Without a result to look at these have no type; what is inferred replaces this one.
  return append(code, {x}, {x->type()});
}
ir::Operation* Generator::binary(OpCode code, ir::Value* x, ir::Value* y) {
  return append(code, {x, y});
}

bool Generator::elementwise() {
  ir::Value* x = any_value();
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  if (dtype == DType::kF8E8M0FNU) return conversion();
  const bool has_functions = depth_ == 0 && (is_float(dtype) || is_complex(dtype));
  switch (random_.below(8)) {
    case 0:
      return unary(random_.pick(exact_unary(dtype)), x) != nullptr;
    case 1:
      if (!has_functions) return unary(random_.pick(exact_unary(dtype)), x) != nullptr;
      return unary(random_.pick(functions(dtype)), x) != nullptr;
    case 2: {
      if (!has_functions) return false;
      static const std::vector<OpCode> kFloat = {OpCode::kPower, OpCode::kAtan2};
      static const std::vector<OpCode> kComplex = {OpCode::kMultiply, OpCode::kDivide};
      return binary(random_.pick(is_complex(dtype) ? kComplex : kFloat), x, want(dtype, dims)) !=
             nullptr;
    }
    case 3: {  // compare
      static const std::vector<const char*> kDirections = {"EQ", "NE", "GE", "GT", "LE", "LT"};
      const char* direction =
          kDirections[static_cast<size_t>(random_.below(is_complex(dtype) ? 2 : 6))];
      std::vector<ir::NamedAttribute> attributes = {
          {"comparison_direction", ir::enum_attribute("comparison_direction", direction)}};
      if (random_.chance(50)) {
        const char* type = is_complex(dtype) || is_float(dtype)                ? "FLOAT"
                           : dtype == DType::kI1 || is_unsigned_integer(dtype) ? "UNSIGNED"
                                                                               : "SIGNED";
        ir::Value* y = want(dtype, dims);
        if (is_float(dtype) && random_.chance(20)) {
          // The sign of a NaN would show.
          type = "TOTALORDER";
          x = fresh(dtype, dims, Content::kModerate);
          y = fresh(dtype, dims, Content::kModerate);
        }
        attributes.push_back({"compare_type", ir::enum_attribute("comparison_type", type)});
        return append(OpCode::kCompare, {x, y}, {}, attributes) != nullptr;
      }
      return append(OpCode::kCompare, {x, want(dtype, dims)}, {}, attributes) != nullptr;
    }
    case 4: {
      ir::Value* predicate = want(DType::kI1, random_.chance(70) ? dims : Dims());
      return append(OpCode::kSelect, {predicate, x, want(dtype, dims)}) != nullptr;
    }
    case 5: {
      if (is_complex(dtype) || dtype == DType::kI1) return false;
      ir::Value* low = want(dtype, random_.chance(50) ? dims : Dims());
      ir::Value* high = want(dtype, random_.chance(50) ? dims : Dims());
      return append(OpCode::kClamp, {low, x, high}) != nullptr;
    }
    default:
      return binary(random_.pick(exact_binary(dtype)), x, want(dtype, dims)) != nullptr;
  }
}

bool Generator::conversion() {
  ir::Value* x = any_value();
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  switch (random_.below(6)) {
    case 0: {  // bitcast
      if (is_float(dtype)) x = fresh(dtype, dims, Content::kModerate);
      const DType to = any_dtype();
      const int from_bits = dtype_bits(dtype);
      const int to_bits = dtype_bits(to);
      if (is_complex(dtype) || is_complex(to) || (dtype == DType::kI1) != (to == DType::kI1)) {
        return false;
      }
      Dims out = dims;
      if (from_bits > to_bits) out.push_back(from_bits / to_bits);
      if (from_bits < to_bits) {
        if (out.empty() || out.back() * from_bits != to_bits) return false;
        out.pop_back();
      }
      return append(OpCode::kBitcastConvert, {x}, {tensor(to, out)}) != nullptr;
    }
    case 1: {
      if (!is_float(dtype) || is_tiny(dtype)) return false;
      return append(OpCode::kReducePrecision, {x}, {},
                    {{"exponent_bits", ir::Attribute(ir::IntegerValue{ir::Type::scalar(DType::kI32),
                                                                      random_.between(2, 9)})},
                     {"mantissa_bits", ir::Attribute(ir::IntegerValue{ir::Type::scalar(DType::kI32),
                                                                      random_.between(0, 12)})}}) !=
             nullptr;
    }
    case 2:
      if (dtype != DType::kF32 && dtype != DType::kF64) return false;
      return append(OpCode::kComplex, {x, want(dtype, dims)}) != nullptr;
    default: {
      DType to = any_dtype();
      if (is_complex(dtype) && !is_complex(to) && !is_float(to)) to = DType::kF32;
      // These have no NaN: its sign would show.
      if (is_float(to) && dtype_bits(to) < 8 && (is_float(dtype) || is_complex(dtype))) {
        x = fresh(dtype, dims, Content::kModerate);
      }
      return append(OpCode::kConvert, {x}, {tensor(to, dims)}) != nullptr;
    }
  }
}

}  // namespace hekla::testing
