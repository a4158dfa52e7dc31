// SPDX-License-Identifier: Apache-2.0
// StableHLO's pretty forms of one line.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/program/stablehlo/text/module_printer.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {

using ir::OpCode;

const std::vector<int64_t>* i64_list(const ir::Attribute& attribute) {
  const auto* list = attribute.get<ir::IntArrayValue>();
  return list != nullptr && list->dtype == DType::kI64 ? &list->values : nullptr;
}

const int64_t* integer(const ir::Attribute& attribute, DType dtype) {
  const auto* number = attribute.get<ir::IntegerValue>();
  const bool is_plain = number != nullptr && number->type == ir::Type::scalar(dtype);
  return is_plain ? &number->value : nullptr;
}

const std::string* enum_word(const ir::Attribute& attribute, std::string_view kind) {
  const auto* word = attribute.get<ir::EnumValue>();
  return word != nullptr && word->kind == kind ? &word->value : nullptr;
}
std::vector<ir::Type> operand_types(const ir::Operation& op) {
  std::vector<ir::Type> types;
  for (const ir::Value* operand : op.operands()) types.push_back(operand->type());
  return types;
}

std::string function_type(const ir::Operation& op) {
  return ir::Type::function(operand_types(op), op.result_types()).to_string();
}
namespace {

// As StableHLO's text has it: custom_call's API version is an integer, two flags are units.
ir::NamedAttribute printable(OpCode code, const ir::NamedAttribute& entry) {
  const auto* flag = entry.second.get<ir::BoolValue>();
  if (entry.first == "use_global_device_ids" || entry.first == "has_dynamic_root") {
    if (flag != nullptr && flag->value) return {entry.first, ir::UnitValue{}};
  }
  constexpr std::string_view kVersions[] = {
      "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
      "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
  if (code != OpCode::kCustomCall || entry.first != "api_version") return entry;
  const std::string* word = enum_word(entry.second, "custom_call_api_version");
  const auto at = word == nullptr ? std::end(kVersions)
                                  : std::find(std::begin(kVersions), std::end(kVersions), *word);
  if (at == std::end(kVersions)) return entry;
  const int64_t number = at - std::begin(kVersions);
  return {entry.first, ir::IntegerValue{ir::Type::scalar(DType::kI32), number}};
}
// How many operands an op takes whose form is operands, fields and a type; -1 for any number.
int operand_count_of(OpCode code) {
  switch (code) {
    case OpCode::kReplicaId:
    case OpCode::kPartitionId:
    case OpCode::kCreateToken:
    case OpCode::kIota:
      return 0;
    case OpCode::kReshape:
    case OpCode::kBitcastConvert:
    case OpCode::kBroadcastInDim:
    case OpCode::kBroadcast:
    case OpCode::kTranspose:
    case OpCode::kReverse:
    case OpCode::kGetDimensionSize:
    case OpCode::kDynamicIota:
    case OpCode::kFft:
    case OpCode::kCholesky:
    case OpCode::kRngBitGenerator:
    case OpCode::kUnaryEinsum:
    case OpCode::kGetTupleElement:
      return 1;
    case OpCode::kDynamicReshape:
    case OpCode::kDynamicBroadcastInDim:
    case OpCode::kPad:
    case OpCode::kSetDimensionSize:
    case OpCode::kEinsum:
      return 2;
    case OpCode::kRng:
      return 3;
    case OpCode::kRealDynamicSlice:
      return 4;
    case OpCode::kDynamicPad:
      return 5;
    default:
      return -1;
  }
}
}  // namespace

std::string ModulePrinter::other_attributes(const ir::Operation& op,
                                            const std::vector<std::string_view>& written) const {
  std::vector<ir::NamedAttribute> rest;
  for (const ir::NamedAttribute& entry : op.attributes()) {
    if (std::find(written.begin(), written.end(), entry.first) == written.end()) {
      rest.push_back(printable(op.code(), entry));
    }
  }
  return rest.empty() ? "" : " " + dictionary_text(rest, options_);
}

bool ModulePrinter::print_pretty(const ir::Operation& op, int depth) {
  for (const ir::Value* operand : op.operands()) {
    if (operand == nullptr) return false;
  }
  switch (op.code()) {
    case OpCode::kReduce:
      return print_reduce(op, depth);
    case OpCode::kWhile:
      return print_while(op, depth);
    default:
      break;
  }
  if (op.region_count() > 0) return false;
  if (op.code() == OpCode::kReturn || op.code() == OpCode::kFuncReturn) {
    if (!op.attributes().empty() || op.result_count() > 0) return false;
    // A value's name on the next line would be its operand.
    const bool is_last = op.block() != nullptr && op.block()->terminator() == &op;
    if (op.operand_count() == 0 && !is_last) return false;
    if (op.code() == OpCode::kReturn) {
      out_ += op.name();
    } else {
      out_ += op.parent_op() == nullptr ? "return" : "func.return";
    }
    if (op.operand_count() == 0) return true;
    out_ += fmt::format(" {} : {}", operand_list(op), ir::types_string(operand_types(op)));
    return true;
  }
  if (op.code() == OpCode::kFuncCall) {
    const auto* callee = op.attribute("callee").get<ir::SymbolValue>();
    if (callee == nullptr || !callee->nested.empty()) return false;
    // Only functions let `func` go without saying.
    out_ += op.parent_op() == nullptr ? "call " : "func.call ";
    out_ += fmt::format("{}({}){} : {}", symbol_text(callee->root), operand_list(op),
                        other_attributes(op, {"callee"}), function_type(op));
    return true;
  }
  if (op.code() == OpCode::kComposite) {
    const auto* title = op.attribute("name").get<ir::StringValue>();
    if (title == nullptr) return false;
    out_ += fmt::format("{} {}{}{}{} : {}", op.name(), quoted(title->value),
                        op.operand_count() > 0 ? " " : "", operand_list(op),
                        other_attributes(op, {"name"}), function_type(op));
    return true;
  }
  if (op.code() == OpCode::kCustomCall) {
    const auto* target = op.attribute("call_target_name").get<ir::StringValue>();
    if (target == nullptr) return false;
    out_ += fmt::format("{} {}({}){} : {}", op.name(), symbol_text(target->value), operand_list(op),
                        other_attributes(op, {"call_target_name"}), function_type(op));
    return true;
  }
  if (op.code() == OpCode::kOptimizationBarrier) {
    if (op.operand_count() == 0 || op.result_types() != operand_types(op)) return false;
    out_ += fmt::format("{} {}{} : {}", op.name(), operand_list(op), other_attributes(op, {}),
                        ir::types_string(op.result_types()));
    return true;
  }
  if (op.code() == OpCode::kRngBitGenerator) return print_plain(op);
  if (op.result_count() != 1) return false;
  if (ir::is_elementwise(op.code())) return print_elementwise(op);
  switch (op.code()) {
    case OpCode::kConstant: {
      const auto* value = op.attribute("value").get<ir::DenseValue>();
      if (value == nullptr || !(value->type == op.result()->type()) || op.operand_count() > 0 ||
          value->type.quantization() != nullptr) {
        return false;
      }
      out_ += fmt::format("stablehlo.constant{} ", other_attributes(op, {"value"}));
      out_ += print_attribute(op.attribute("value"), options_);
      return true;
    }
    case OpCode::kSlice:
      return print_slice(op);
    case OpCode::kDotGeneral:
      return print_dot_general(op);
    case OpCode::kConvolution:
      return print_convolution(op);
    default:
      return print_plain(op);
  }
}

bool ModulePrinter::print_elementwise(const ir::Operation& op) {
  const size_t arity = ir::is_elementwise_unary(op.code())    ? 1
                       : ir::is_elementwise_binary(op.code()) ? 2
                                                              : 3;
  if (op.operand_count() != arity) return false;
  const ir::Type& result = op.result()->type();
  const std::vector<ir::Type> types = operand_types(op);
  const bool is_same =
      std::all_of(types.begin(), types.end(), [&](const ir::Type& type) { return type == result; });
  if (op.code() == OpCode::kCompare) {
    const std::string* direction =
        enum_word(op.attribute("comparison_direction"), "comparison_direction");
    const ir::Attribute& kind = op.attribute("compare_type");
    const std::string* kind_word = enum_word(kind, "comparison_type");
    if (direction == nullptr || (!kind.is_absent() && kind_word == nullptr)) return false;
    out_ += fmt::format("stablehlo.compare {}, {}{}{}{} : {}", *direction, operand_list(op),
                        kind_word == nullptr ? "" : ", ", kind_word == nullptr ? "" : *kind_word,
                        other_attributes(op, {"comparison_direction", "compare_type"}),
                        function_type(op));
    return true;
  }
  if (op.code() == OpCode::kReducePrecision) {
    const int64_t* exponent = integer(op.attribute("exponent_bits"), DType::kI32);
    const int64_t* mantissa = integer(op.attribute("mantissa_bits"), DType::kI32);
    // The form's numbers have no sign.
    if (exponent == nullptr || mantissa == nullptr || *exponent < 0 || *mantissa < 0 ||
        *exponent > 999999999 || *mantissa > 999999999) {
      return false;
    }
    out_ += fmt::format("{} {}, format = e{}m{}{} : {}", op.name(), operand_list(op), *exponent,
                        *mantissa, other_attributes(op, {"exponent_bits", "mantissa_bits"}),
                        is_same ? result.to_string() : function_type(op));
    return true;
  }
  const bool is_select = op.code() == OpCode::kSelect;
  std::string type = is_same && !is_select ? result.to_string() : function_type(op);
  if (is_select && types[1] == result && types[2] == result) {
    type = fmt::format("{}, {}", types[0].to_string(), result.to_string());
  }
  out_ += fmt::format("{} {}{} : {}", op.name(), operand_list(op), other_attributes(op, {}), type);
  return true;
}

// Operands, named fields, a type.
bool ModulePrinter::print_plain(const ir::Operation& op) {
  const int count = operand_count_of(op.code());
  if (count >= 0 && op.operand_count() != static_cast<size_t>(count)) return false;
  std::string fields;
  std::vector<std::string_view> written;
  const auto field = [&](std::string_view text) {
    fields += (fields.empty() && op.operand_count() == 0 ? " " : ", ") + std::string(text);
  };
  const auto list = [&](std::string_view keyword, std::string_view attribute) {
    const std::vector<int64_t>* values = i64_list(op.attribute(attribute));
    if (values == nullptr) return false;
    field(fmt::format("{} = {}", keyword, list_text(*values)));
    written.push_back(attribute);
    return true;
  };
  const auto number = [&](std::string_view keyword, std::string_view attribute) {
    const int64_t* value = integer(op.attribute(attribute), DType::kI64);
    if (value == nullptr) return false;
    field(fmt::format("{} = {}", keyword, *value));
    written.push_back(attribute);
    return true;
  };
  const auto word = [&](std::string_view keyword, std::string_view attribute) {
    const std::string* value = enum_word(op.attribute(attribute), attribute);
    if (value == nullptr) return false;
    field(fmt::format("{} = {}", keyword, *value));
    written.push_back(attribute);
    return true;
  };
  bool has_result_type_only = false;
  switch (op.code()) {
    case OpCode::kReshape:
    case OpCode::kBitcastConvert:
    case OpCode::kDynamicReshape:
    case OpCode::kRealDynamicSlice:
    case OpCode::kDynamicPad:
      break;
    case OpCode::kDynamicUpdateSlice:
      if (op.operand_count() < 2) return false;
      break;
    case OpCode::kReplicaId:
    case OpCode::kPartitionId:
    case OpCode::kCreateToken:
    case OpCode::kTuple:
      has_result_type_only = true;
      break;
    case OpCode::kAfterAll:
      for (const ir::Type& type : operand_types(op)) {
        if (type.kind() != ir::Type::Kind::kToken) return false;
      }
      has_result_type_only = true;
      break;
    case OpCode::kIota:
      if (!number("dim", "iota_dimension")) return false;
      has_result_type_only = true;
      break;
    case OpCode::kBroadcastInDim:
    case OpCode::kDynamicBroadcastInDim:
      if (!list("dims", "broadcast_dimensions")) return false;
      break;
    case OpCode::kBroadcast:
      if (!list("sizes", "broadcast_sizes")) return false;
      break;
    case OpCode::kTranspose:
      if (!list("dims", "permutation")) return false;
      break;
    case OpCode::kReverse:
      if (!list("dims", "dimensions")) return false;
      has_result_type_only = op.operand(0)->type() == op.result()->type();
      break;
    case OpCode::kDynamicSlice:
      if (op.operand_count() == 0 || !list("sizes", "slice_sizes")) return false;
      break;
    case OpCode::kPad:
      if (!list("low", "edge_padding_low") || !list("high", "edge_padding_high") ||
          !list("interior", "interior_padding")) {
        return false;
      }
      break;
    case OpCode::kConcatenate:
      if (op.operand_count() == 0 || !number("dim", "dimension")) return false;
      break;
    case OpCode::kGetDimensionSize:
    case OpCode::kSetDimensionSize:
      if (!number("dim", "dimension")) return false;
      break;
    case OpCode::kDynamicIota:
      if (!number("dim", "iota_dimension")) return false;
      break;
    case OpCode::kFft:
      if (!word("type", "fft_type") || !list("length", "fft_length")) return false;
      break;
    case OpCode::kCholesky: {
      const auto* lower = op.attribute("lower").get<ir::BoolValue>();
      if (lower != nullptr) {
        field(fmt::format("lower = {}", lower->value));
        written.push_back("lower");
      }
      has_result_type_only = op.operand(0)->type() == op.result()->type();
      break;
    }
    case OpCode::kRng:
      if (!word("distribution", "rng_distribution")) return false;
      break;
    case OpCode::kRngBitGenerator:
      if (!word("algorithm", "rng_algorithm")) return false;
      break;
    case OpCode::kEinsum:
    case OpCode::kUnaryEinsum: {
      const auto* config = op.attribute("einsum_config").get<ir::StringValue>();
      if (config == nullptr) return false;
      field("config = " + quoted(config->value));
      written.push_back("einsum_config");
      break;
    }
    case OpCode::kGetTupleElement: {
      const int64_t* index = integer(op.attribute("index"), DType::kI32);
      if (index == nullptr) return false;
      fields = fmt::format("[{}]", *index);
      written.push_back("index");
      break;
    }
    default:
      return false;
  }
  out_ += fmt::format("{}{}{}{}{} : {}", op.name(), op.operand_count() > 0 ? " " : "",
                      operand_list(op), fields, other_attributes(op, written),
                      has_result_type_only ? op.result()->type().to_string() : function_type(op));
  return true;
}

}  // namespace hekla::stablehlo
