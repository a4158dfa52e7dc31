// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/op_attributes.h"

namespace hekla::ir {

std::vector<int64_t> int_list(const Operation& op, std::string_view name) {
  const auto* list = op.attribute(name).get<IntArrayValue>();
  return list == nullptr ? std::vector<int64_t>() : list->values;
}

std::vector<bool> bool_list(const Operation& op, std::string_view name) {
  const std::vector<int64_t> values = int_list(op, name);
  return std::vector<bool>(values.begin(), values.end());
}

int64_t int_value(const Operation& op, std::string_view name, int64_t fallback) {
  const auto* integer = op.attribute(name).get<IntegerValue>();
  return integer == nullptr ? fallback : integer->value;
}

bool bool_value(const Operation& op, std::string_view name) {
  const auto* flag = op.attribute(name).get<BoolValue>();
  return flag != nullptr && flag->value;
}

std::string text_value(const Operation& op, std::string_view name) {
  if (const auto* word = op.attribute(name).get<EnumValue>()) return word->value;
  if (const auto* text = op.attribute(name).get<StringValue>()) return text->value;
  return "";
}

double float_value(const Operation& op, std::string_view name, double fallback) {
  const auto* value = op.attribute(name).get<FloatValue>();
  return value == nullptr ? fallback : float_from_bits(value->type.dtype(), value->bits);
}

std::vector<std::array<int64_t, 2>> padding_of(const Operation& op) {
  std::vector<std::array<int64_t, 2>> padding;
  const auto* dense = op.attribute("padding").get<DenseValue>();
  if (dense == nullptr) return padding;
  const Result<HostArray> values = dense->expand();
  if (!values.ok()) return padding;
  for (int64_t i = 0; i + 1 < values->size(); i += 2) {
    padding.push_back({values->as<int64_t>()[i], values->as<int64_t>()[i + 1]});
  }
  return padding;
}

const DenseValue* constant_value(const Value& value) {
  const Operation* op = value.defining_op();
  if (op == nullptr || op->code() != OpCode::kConstant) return nullptr;
  return op->attribute("value").get<DenseValue>();
}

bool is_one_number(const Value& value) {
  const DenseValue* dense = constant_value(value);
  return dense != nullptr && dense->values.size() == 1;
}

std::optional<int64_t> constant_integer(const Value& value) {
  const DenseValue* dense = constant_value(value);
  if (dense == nullptr || value.type().rank() != 0 || value.type().quantization() != nullptr) {
    return {};
  }
  switch (value.type().dtype()) {
    case DType::kI32:
      return *dense->values.as<int32_t>();
    case DType::kI64:
      return *dense->values.as<int64_t>();
    default:
      return {};
  }
}

}  // namespace hekla::ir
