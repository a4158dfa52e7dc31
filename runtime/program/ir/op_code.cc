// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/op_code.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "runtime/program/ir/attribute.h"

namespace hekla::ir {
namespace {

constexpr std::string_view kNames[] = {"",
#define HEKLA_IR_NAME(code, name) name,
                                       HEKLA_IR_OPS(HEKLA_IR_NAME)
#undef HEKLA_IR_NAME
};

bool is_false(const Attribute& value) {
  const BoolValue* flag = value.get<BoolValue>();
  return flag != nullptr && !flag->value;
}

bool is_integer(const Attribute& value, int64_t expected) {
  const IntegerValue* integer = value.get<IntegerValue>();
  return integer != nullptr && integer->value == expected;
}

bool is_enum(const Attribute& value, std::string_view word) {
  const EnumValue* e = value.get<EnumValue>();
  return e != nullptr && e->value == word;
}

bool is_string(const Attribute& value, std::string_view text) {
  const StringValue* string = value.get<StringValue>();
  return string != nullptr && string->value == text;
}

bool is_empty_array(const Attribute& value) {
  if (const ArrayValue* array = value.get<ArrayValue>()) return array->elements.empty();
  if (const IntArrayValue* array = value.get<IntArrayValue>()) return array->values.empty();
  if (const DenseValue* dense = value.get<DenseValue>()) return dense->values.size() == 0;
  return false;
}

bool is_empty_dictionary(const Attribute& value) {
  const DictionaryValue* dictionary = value.get<DictionaryValue>();
  return dictionary != nullptr && dictionary->entries.empty();
}

// Every element of a list or matrix of integers equals `expected`; also true of an empty one.
bool is_filled_with(const Attribute& value, int64_t expected) {
  if (const IntArrayValue* array = value.get<IntArrayValue>()) {
    return std::all_of(array->values.begin(), array->values.end(),
                       [&](int64_t v) { return v == expected; });
  }
  if (const DenseValue* dense = value.get<DenseValue>()) {
    if (dense->values.dtype() != DType::kI64) return false;
    const int64_t* data = dense->values.as<int64_t>();
    return std::all_of(data, data + dense->values.size(), [&](int64_t v) { return v == expected; });
  }
  return false;
}

bool all_default_precision(const Attribute& value) {
  const ArrayValue* array = value.get<ArrayValue>();
  return array != nullptr && std::all_of(array->elements.begin(), array->elements.end(),
                                         [](const Attribute& a) { return is_enum(a, "DEFAULT"); });
}

bool is_window_op(OpCode code) {
  return code == OpCode::kConvolution || code == OpCode::kDynamicConv ||
         code == OpCode::kReduceWindow || code == OpCode::kSelectAndScatter;
}

}  // namespace

std::string_view op_name(OpCode code) { return kNames[static_cast<size_t>(code)]; }

std::optional<OpCode> op_code_from_name(std::string_view name) {
  static const std::unordered_map<std::string_view, OpCode> kCodes = [] {
    std::unordered_map<std::string_view, OpCode> codes;
    for (size_t i = 1; i < std::size(kNames); ++i) codes[kNames[i]] = static_cast<OpCode>(i);
    return codes;
  }();
  auto it = kCodes.find(name);
  if (it == kCodes.end()) return std::nullopt;
  return it->second;
}

bool is_elementwise_unary(OpCode code) {
  switch (code) {
    case OpCode::kAbs:
    case OpCode::kCbrt:
    case OpCode::kCeil:
    case OpCode::kConvert:
    case OpCode::kCosine:
    case OpCode::kCountLeadingZeros:
    case OpCode::kExponential:
    case OpCode::kExponentialMinusOne:
    case OpCode::kFloor:
    case OpCode::kImag:
    case OpCode::kIsFinite:
    case OpCode::kLog:
    case OpCode::kLogPlusOne:
    case OpCode::kLogistic:
    case OpCode::kNegate:
    case OpCode::kNot:
    case OpCode::kPopcnt:
    case OpCode::kReal:
    case OpCode::kReducePrecision:
    case OpCode::kRoundNearestAfz:
    case OpCode::kRoundNearestEven:
    case OpCode::kRsqrt:
    case OpCode::kSign:
    case OpCode::kSine:
    case OpCode::kSqrt:
    case OpCode::kTan:
    case OpCode::kTanh:
    case OpCode::kUniformQuantize:
    case OpCode::kUniformDequantize:
      return true;
    default:
      return false;
  }
}

bool is_elementwise_binary(OpCode code) {
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kAnd:
    case OpCode::kAtan2:
    case OpCode::kCompare:
    case OpCode::kComplex:
    case OpCode::kDivide:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kMultiply:
    case OpCode::kOr:
    case OpCode::kPower:
    case OpCode::kRemainder:
    case OpCode::kShiftLeft:
    case OpCode::kShiftRightArithmetic:
    case OpCode::kShiftRightLogical:
    case OpCode::kSubtract:
    case OpCode::kXor:
      return true;
    default:
      return false;
  }
}

bool is_elementwise(OpCode code) {
  return is_elementwise_unary(code) || is_elementwise_binary(code) || code == OpCode::kSelect ||
         code == OpCode::kClamp;
}

bool is_commutative_reducer(OpCode code) {
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kAnd:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kMultiply:
    case OpCode::kOr:
    case OpCode::kXor:
      return true;
    default:
      return false;
  }
}

bool is_terminator(OpCode code) {
  return code == OpCode::kReturn || code == OpCode::kFuncReturn || code == OpCode::kSdyReturn;
}

bool has_side_effect(OpCode code) {
  switch (code) {
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kAllToAll:
    case OpCode::kAsyncDone:
    case OpCode::kAsyncStart:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kCollectiveReduce:
    case OpCode::kCrossReplicaSum:
    case OpCode::kCustomCall:
    case OpCode::kInfeed:
    case OpCode::kOutfeed:
    case OpCode::kRecv:
    case OpCode::kReduceScatter:
    case OpCode::kRng:
    case OpCode::kSend:
    case OpCode::kFuncCall:
    case OpCode::kCheckExpectEq:
    case OpCode::kCheckExpectEqConst:
    case OpCode::kCheckExpectAlmostEq:
    case OpCode::kCheckExpectAlmostEqConst:
    case OpCode::kCheckExpectClose:
    case OpCode::kCheckExpectSerializedEq:
    case OpCode::kUnknown:
      return true;
    default:
      return is_terminator(code);
  }
}

bool is_default_attribute(OpCode code, std::string_view name, const Attribute& value) {
  if (value.is_absent()) return true;
  if (name == "channel_handle" && code != OpCode::kSend && code != OpCode::kRecv) {
    const ChannelHandle* channel = value.get<ChannelHandle>();
    return channel != nullptr && channel->handle == 0;
  }
  if (name == "use_global_device_ids" || name == "has_dynamic_root") return is_false(value);
  if (name == "result_accuracy") {
    const ResultAccuracy* accuracy = value.get<ResultAccuracy>();
    return accuracy != nullptr && *accuracy == ResultAccuracy{};
  }
  if (name == "precision_config") return all_default_precision(value);
  if (is_window_op(code)) {
    if (name == "window_strides" || name == "lhs_dilation" || name == "rhs_dilation" ||
        name == "base_dilations" || name == "window_dilations") {
      return is_filled_with(value, 1);
    }
    if (name == "padding" || name == "window_reversal") return is_filled_with(value, 0);
  }
  switch (code) {
    case OpCode::kCholesky:
      return name == "lower" && is_false(value);
    case OpCode::kCompare:
      return name == "compare_type" && is_enum(value, "NOTYPE");
    case OpCode::kComposite:
      return (name == "version" && is_integer(value, 0)) ||
             (name == "composite_attributes" && is_empty_dictionary(value));
    case OpCode::kCustomCall:
      if (name == "has_side_effect") return is_false(value);
      if (name == "backend_config") return is_string(value, "") || is_empty_dictionary(value);
      if (name == "api_version") return is_enum(value, "API_VERSION_ORIGINAL");
      // operand_layouts and result_layouts count as set together; readers decide about the two.
      return (name == "called_computations" || name == "output_operand_aliases" ||
              name == "result_tilings") &&
             is_empty_array(value);
    case OpCode::kDynamicBroadcastInDim:
      return (name == "known_expanding_dimensions" || name == "known_nonexpanding_dimensions") &&
             is_empty_array(value);
    case OpCode::kGather:
    case OpCode::kDynamicGather:
      return name == "indices_are_sorted" && is_false(value);
    case OpCode::kScatter:
      return (name == "indices_are_sorted" || name == "unique_indices") && is_false(value);
    case OpCode::kInfeed:
      return (name == "infeed_config" && is_string(value, "")) ||
             (name == "layout" && is_empty_array(value));
    case OpCode::kSend:
    case OpCode::kRecv:
      return (name == "is_host_transfer" && is_false(value)) ||
             (name == "source_target_pairs" && is_empty_array(value));
    case OpCode::kSort:
      return (name == "dimension" && is_integer(value, -1)) ||
             (name == "is_stable" && is_false(value));
    default:
      return false;
  }
}

}  // namespace hekla::ir
