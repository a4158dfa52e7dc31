// SPDX-License-Identifier: Apache-2.0
// The pretty forms that are one line: operands, a few named fields, a type.
#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {

using ir::OpCode;

Result<std::vector<int64_t>> Parser::parse_named_list(std::string_view name) {
  if (!scan_.accept_word(name)) return scan_.error(fmt::format("{} = [...]", name));
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  return parse_int_list();
}

Status Parser::parse_named_int(OpState& op, std::string_view keyword, std::string_view attribute) {
  if (!scan_.accept_word(keyword)) return scan_.error(fmt::format("{} = ...", keyword));
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_ASSIGN_OR_RETURN(int64_t value, scan_.integer());
  op.set(attribute, ir::i64_attribute(value));
  return ok_status();
}

Result<ir::Attribute> Parser::parse_enum(std::string_view kind) {
  const std::string_view word = scan_.word();
  if (word.empty()) return scan_.error(fmt::format("a {}", kind));
  return ir::enum_attribute(kind, word);
}

Status Parser::parse_same_type(OpState& op) {
  HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  if (scan_.peek() == '(') return parse_operation_type(op);
  HEKLA_ASSIGN_OR_RETURN(Types types, parse_type_list());
  if (scan_.accept("->")) {
    HEKLA_RETURN_IF_ERROR(check_operand_types(op, types));
    HEKLA_ASSIGN_OR_RETURN(op.result_types, parse_result_types());
    return ok_status();
  }
  op.result_types = {types.back()};
  return ok_status();
}

Status Parser::parse_pretty(OpState& op) {
  if (op.code == OpCode::kCompare) {
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute direction, parse_enum("comparison_direction"));
    op.set("comparison_direction", std::move(direction));
    HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
    // The list's last comma stands before the compare type.
    const std::string kind(scan_.word());
    if (!kind.empty()) op.set("compare_type", ir::enum_attribute("comparison_type", kind));
    return parse_same_type(op);
  }
  if (op.code == OpCode::kReducePrecision) {
    HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
    if (!scan_.accept_word("format")) return scan_.error("format = eXmY");
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    // "e8m10" is one word.
    const std::string format(scan_.word());
    const size_t m = format.find('m');
    int64_t exponent = 0;
    int64_t mantissa = 0;
    const auto digits = [](std::string_view text, int64_t& value) {
      if (text.empty() || text.size() > 9) return false;
      for (char c : text) {
        if (c < '0' || c > '9') return false;
        value = value * 10 + (c - '0');
      }
      return true;
    };
    if (!format.starts_with('e') || m == std::string::npos ||
        !digits(std::string_view(format).substr(1, m - 1), exponent) ||
        !digits(std::string_view(format).substr(m + 1), mantissa)) {
      return scan_.error("a format such as e8m10 before this");
    }
    op.set("exponent_bits", ir::IntegerValue{ir::Type::scalar(DType::kI32), exponent});
    op.set("mantissa_bits", ir::IntegerValue{ir::Type::scalar(DType::kI32), mantissa});
    return parse_same_type(op);
  }
  if (ir::is_elementwise(op.code)) {
    HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
    return parse_same_type(op);
  }
  switch (op.code) {
    case OpCode::kReturn:
    case OpCode::kFuncReturn:
    case OpCode::kSdyReturn:
      HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
      HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
      if (op.operands.empty()) return ok_status();
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
      {
        HEKLA_ASSIGN_OR_RETURN(Types types, parse_type_list());
        return check_operand_types(op, types);
      }
    case OpCode::kConstant: {
      HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
      ir::Attribute value;
      if (scan_.accept_word("dense_resource")) {
        HEKLA_ASSIGN_OR_RETURN(value, parse_dense_resource(true));
      } else if (scan_.accept_word("dense")) {
        HEKLA_ASSIGN_OR_RETURN(value, parse_dense(true));
      } else if (scan_.accept("()")) {
        // The generic-looking form of quantized constants.
        if (scan_.accept('<')) {
          HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
          HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
        }
        HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
        HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
        return parse_operation_type(op);
      } else {
        return scan_.error("dense<...>");
      }
      op.result_types = {value.get<ir::DenseValue>()->type};
      op.set("value", std::move(value));
      return ok_status();
    }
    case OpCode::kFuncCall: {
      HEKLA_ASSIGN_OR_RETURN(ir::Attribute callee, parse_symbol());
      op.set("callee", std::move(callee));
      HEKLA_RETURN_IF_ERROR(scan_.expect('('));
      HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
      HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
      HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
      return parse_operation_type(op);
    }
    case OpCode::kIota:
      HEKLA_RETURN_IF_ERROR(parse_named_int(op, "dim", "iota_dimension"));
      return parse_same_type(op);
    case OpCode::kSlice:
      return parse_slice(op);
    case OpCode::kDot:
    case OpCode::kDotGeneral:
      return parse_dot(op);
    case OpCode::kConvolution:
      return parse_convolution(op);
    case OpCode::kReduce:
      return parse_reduce(op);
    case OpCode::kWhile:
      return parse_while(op);
    case OpCode::kCustomCall:
      return parse_custom_call(op);
    case OpCode::kComposite:
      return parse_composite(op);
    case OpCode::kSdyManualComputation:
      return parse_manual_computation(op);
    case OpCode::kCheckExpectEq:
    case OpCode::kCheckExpectEqConst:
    case OpCode::kCheckExpectAlmostEq:
    case OpCode::kCheckExpectAlmostEqConst:
    case OpCode::kCheckExpectClose:
    case OpCode::kCheckExpectSerializedEq:
      return parse_check(op);
    case OpCode::kUnknown:
      // CHLO's ops look like elementwise ones; anything else needs its generic form.
      if (op.name.starts_with("chlo.")) {
        const bool has_brackets = scan_.accept('(');
        HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
        while (has_brackets && !scan_.accept(')')) {
          scan_.accept(',');
          const std::string key(scan_.word());
          if (key.empty()) return scan_.error("a field or ')'");
          HEKLA_RETURN_IF_ERROR(scan_.expect('='));
          HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_attribute());
          op.set(key, std::move(value));
        }
        return parse_same_type(op);
      }
      return scan_.error_at(op.position,
                            fmt::format("there is no operation {}; an unknown one is written in "
                                        "its generic form, \"{}\"(...)",
                                        op.name, op.name));
    default:
      break;
  }
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  return parse_pretty_other(op);
}

// Operands were read; named fields follow.
Status Parser::parse_pretty_other(OpState& op) {
  const auto list = [&](std::string_view keyword, std::string_view attribute) -> Status {
    HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> values, parse_named_list(keyword));
    op.set(attribute, ir::i64_array(std::move(values)));
    return ok_status();
  };
  const auto word = [&](std::string_view keyword, std::string_view attribute) -> Status {
    if (!scan_.accept_word(keyword)) return scan_.error(fmt::format("{} = ...", keyword));
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_enum(attribute));
    op.set(attribute, std::move(value));
    return ok_status();
  };
  switch (op.code) {
    case OpCode::kBitcastConvert:
    case OpCode::kReshape:
    case OpCode::kDynamicReshape:
    case OpCode::kRealDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kDynamicPad:
    case OpCode::kReplicaId:
    case OpCode::kPartitionId:
    case OpCode::kCreateToken:
    case OpCode::kAfterAll:
    case OpCode::kTuple:
      return parse_same_type(op);
    case OpCode::kBroadcastInDim:
    case OpCode::kDynamicBroadcastInDim:
      HEKLA_RETURN_IF_ERROR(list("dims", "broadcast_dimensions"));
      return parse_same_type(op);
    case OpCode::kBroadcast:
      HEKLA_RETURN_IF_ERROR(list("sizes", "broadcast_sizes"));
      return parse_same_type(op);
    case OpCode::kTranspose:
      HEKLA_RETURN_IF_ERROR(list("dims", "permutation"));
      return parse_same_type(op);
    case OpCode::kReverse:
      HEKLA_RETURN_IF_ERROR(list("dims", "dimensions"));
      return parse_same_type(op);
    case OpCode::kDynamicSlice:
      HEKLA_RETURN_IF_ERROR(list("sizes", "slice_sizes"));
      return parse_same_type(op);
    case OpCode::kPad:
      HEKLA_RETURN_IF_ERROR(list("low", "edge_padding_low"));
      HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_RETURN_IF_ERROR(list("high", "edge_padding_high"));
      HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_RETURN_IF_ERROR(list("interior", "interior_padding"));
      return parse_same_type(op);
    case OpCode::kConcatenate:
    case OpCode::kGetDimensionSize:
    case OpCode::kSetDimensionSize:
      HEKLA_RETURN_IF_ERROR(parse_named_int(op, "dim", "dimension"));
      return parse_same_type(op);
    case OpCode::kDynamicIota:
      HEKLA_RETURN_IF_ERROR(parse_named_int(op, "dim", "iota_dimension"));
      return parse_same_type(op);
    case OpCode::kFft:
      HEKLA_RETURN_IF_ERROR(word("type", "fft_type"));
      HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_RETURN_IF_ERROR(list("length", "fft_length"));
      return parse_same_type(op);
    case OpCode::kCholesky:
      if (scan_.accept_word("lower")) {
        HEKLA_RETURN_IF_ERROR(scan_.expect('='));
        // The colon behind it belongs to the operation's type.
        const bool is_lower = scan_.accept_word("true");
        if (!is_lower && !scan_.accept_word("false")) return scan_.error("true or false");
        op.set("lower", ir::BoolValue{is_lower});
      }
      return parse_same_type(op);
    case OpCode::kRng:
      HEKLA_RETURN_IF_ERROR(word("distribution", "rng_distribution"));
      return parse_same_type(op);
    case OpCode::kRngBitGenerator:
      HEKLA_RETURN_IF_ERROR(word("algorithm", "rng_algorithm"));
      return parse_same_type(op);
    case OpCode::kEinsum:
    case OpCode::kUnaryEinsum: {
      if (!scan_.accept_word("config")) return scan_.error("config = \"...\"");
      HEKLA_RETURN_IF_ERROR(scan_.expect('='));
      HEKLA_ASSIGN_OR_RETURN(std::string config, scan_.string());
      op.set("einsum_config", ir::StringValue{std::move(config)});
      return parse_same_type(op);
    }
    case OpCode::kGetTupleElement: {
      HEKLA_RETURN_IF_ERROR(scan_.expect('['));
      HEKLA_ASSIGN_OR_RETURN(int64_t index, scan_.integer());
      HEKLA_RETURN_IF_ERROR(scan_.expect(']'));
      op.set("index", ir::IntegerValue{ir::Type::scalar(DType::kI32), index});
      return parse_same_type(op);
    }
    case OpCode::kOptimizationBarrier:
      if (op.operands.empty() && scan_.accept("()")) return parse_optional_attributes(op);
      HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
      { HEKLA_ASSIGN_OR_RETURN(op.result_types, parse_type_list()); }
      return check_operand_types(op, op.result_types);
    case OpCode::kSdyShardingConstraint:
    case OpCode::kSdyReshard: {
      HEKLA_ASSIGN_OR_RETURN(auto value, parse_shardy(sharding::parse_sharding));
      op.set("sharding", ir::ShardingValue{std::move(value)});
      return parse_same_type(op);
    }
    default:
      return scan_.error_at(
          op.position,
          fmt::format("{} is written in its generic form, \"{}\"(...)", op.name, op.name));
  }
}

}  // namespace hekla::stablehlo
