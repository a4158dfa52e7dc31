// SPDX-License-Identifier: Apache-2.0
// Instructions that work element by element and are one operation of StableHLO.
#include <array>
#include <string>

#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;

// xla.ResultAccuracy, which has the default mode or a tolerance.
Result<ir::Attribute> read_accuracy(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const Message accuracy,
                         site.fields().message(kResultAccuracy, "a result accuracy"));
  ir::ResultAccuracy value;
  if (accuracy.integer(1) == 1) value.mode = "HIGHEST";
  if (accuracy.has(2)) {
    HEKLA_ASSIGN_OR_RETURN(const Message tolerance, accuracy.message(2, "a tolerance"));
    value.mode = "TOLERANCE";
    value.atol = tolerance.number(1);
    value.rtol = tolerance.number(2);
    value.ulps = tolerance.integer(3);
  }
  return ir::Attribute(std::move(value));
}

template <OpCode kCode>
Result<Leaves> plain(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  return site.append(kCode, std::move(operands));
}

template <OpCode kCode>
Result<Leaves> with_accuracy(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute accuracy, read_accuracy(site));
  return site.append(kCode, std::move(operands), {{"result_accuracy", std::move(accuracy)}});
}

Result<Leaves> convert_compare(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  const std::string direction = site.fields().text(kComparisonDirection);
  const std::string type = site.fields().text(kComparisonType);
  const auto is_one_of = [](std::string_view word, std::initializer_list<std::string_view> words) {
    for (std::string_view known : words) {
      if (word == known) return true;
    }
    return false;
  };
  if (!is_one_of(direction, {"EQ", "NE", "GE", "GT", "LE", "LT"})) {
    return site.error("compares by '{}'", direction);
  }
  if (!is_one_of(type, {"", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"})) {
    return site.error("compares as '{}'", type);
  }
  std::vector<ir::NamedAttribute> attributes = {
      {"comparison_direction", ir::enum_attribute("comparison_direction", direction)}};
  if (!type.empty()) {
    attributes.emplace_back("compare_type", ir::enum_attribute("comparison_type", type));
  }
  return site.append(OpCode::kCompare, std::move(operands), std::move(attributes));
}

Result<Leaves> convert_reduce_precision(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  const ir::Type i32 = ir::Type::scalar(DType::kI32);
  const auto bits = [&](InstructionField field) {
    return ir::Attribute(ir::IntegerValue{i32, static_cast<int32_t>(site.fields().integer(field))});
  };
  return site.append(
      OpCode::kReducePrecision, std::move(operands),
      {{"exponent_bits", bits(kExponentBits)}, {"mantissa_bits", bits(kMantissaBits)}});
}

constexpr Handler kElementwise[] = {
    {"abs", plain<OpCode::kAbs>},
    {"add", plain<OpCode::kAdd>},
    {"and", plain<OpCode::kAnd>},
    {"atan2", plain<OpCode::kAtan2>},
    {"bitcast-convert", plain<OpCode::kBitcastConvert>},
    {"cbrt", with_accuracy<OpCode::kCbrt>},
    {"ceil", plain<OpCode::kCeil>},
    {"clamp", plain<OpCode::kClamp>},
    {"compare", convert_compare},
    {"complex", plain<OpCode::kComplex>},
    {"convert", plain<OpCode::kConvert>},
    {"cosine", with_accuracy<OpCode::kCosine>},
    {"count-leading-zeros", plain<OpCode::kCountLeadingZeros>},
    {"divide", plain<OpCode::kDivide>},
    {"exponential", with_accuracy<OpCode::kExponential>},
    {"exponential-minus-one", with_accuracy<OpCode::kExponentialMinusOne>},
    {"floor", plain<OpCode::kFloor>},
    {"imag", plain<OpCode::kImag>},
    {"is-finite", plain<OpCode::kIsFinite>},
    {"log", with_accuracy<OpCode::kLog>},
    {"log-plus-one", with_accuracy<OpCode::kLogPlusOne>},
    {"logistic", with_accuracy<OpCode::kLogistic>},
    {"maximum", plain<OpCode::kMaximum>},
    {"minimum", plain<OpCode::kMinimum>},
    {"multiply", plain<OpCode::kMultiply>},
    {"negate", plain<OpCode::kNegate>},
    {"not", plain<OpCode::kNot>},
    {"or", plain<OpCode::kOr>},
    {"popcnt", plain<OpCode::kPopcnt>},
    {"power", plain<OpCode::kPower>},
    {"real", plain<OpCode::kReal>},
    {"reduce-precision", convert_reduce_precision},
    {"remainder", plain<OpCode::kRemainder>},
    {"round-nearest-afz", plain<OpCode::kRoundNearestAfz>},
    {"round-nearest-even", plain<OpCode::kRoundNearestEven>},
    {"rsqrt", with_accuracy<OpCode::kRsqrt>},
    {"select", plain<OpCode::kSelect>},
    {"shift-left", plain<OpCode::kShiftLeft>},
    {"shift-right-arithmetic", plain<OpCode::kShiftRightArithmetic>},
    {"shift-right-logical", plain<OpCode::kShiftRightLogical>},
    {"sign", plain<OpCode::kSign>},
    {"sine", with_accuracy<OpCode::kSine>},
    {"sqrt", with_accuracy<OpCode::kSqrt>},
    {"subtract", plain<OpCode::kSubtract>},
    {"tan", with_accuracy<OpCode::kTan>},
    {"tanh", with_accuracy<OpCode::kTanh>},
    {"xor", plain<OpCode::kXor>},
};

}  // namespace

std::span<const Handler> elementwise_handlers() { return kElementwise; }

}  // namespace hekla::hlo
