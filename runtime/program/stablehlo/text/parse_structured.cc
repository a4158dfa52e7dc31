// SPDX-License-Identifier: Apache-2.0
// The pretty forms with a structure of their own.
#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {

using ir::OpCode;

// %x [0:4, 1:8:2] : (t) -> t
Status Parser::parse_slice(OpState& op) {
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect('['));
  std::vector<int64_t> starts;
  std::vector<int64_t> limits;
  std::vector<int64_t> strides;
  while (!scan_.accept(']')) {
    if (!starts.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_ASSIGN_OR_RETURN(int64_t start, scan_.integer());
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    HEKLA_ASSIGN_OR_RETURN(int64_t limit, scan_.integer());
    int64_t stride = 1;
    if (scan_.accept(':')) {
      HEKLA_ASSIGN_OR_RETURN(stride, scan_.integer());
    }
    starts.push_back(start);
    limits.push_back(limit);
    strides.push_back(stride);
  }
  op.set("start_indices", ir::i64_array(std::move(starts)));
  op.set("limit_indices", ir::i64_array(std::move(limits)));
  op.set("strides", ir::i64_array(std::move(strides)));
  return parse_same_type(op);
}

// precision = [DEFAULT, HIGHEST]
Status Parser::parse_precision(OpState& op) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_RETURN_IF_ERROR(scan_.expect('['));
  ir::ArrayValue words;
  while (!scan_.accept(']')) {
    if (!words.elements.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute word, parse_enum("precision"));
    words.elements.push_back(std::move(word));
  }
  op.set("precision_config", std::move(words));
  return ok_status();
}

// %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = ..., algorithm =
// <..>
Status Parser::parse_dot(OpState& op) {
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  ir::DotDimensionNumbers n;
  bool has_numbers = false;
  while (scan_.peek() != ':' && scan_.peek() != '{') {
    if (scan_.accept(',')) continue;
    if (scan_.accept_word("precision")) {
      HEKLA_RETURN_IF_ERROR(parse_precision(op));
    } else if (scan_.accept_word("algorithm")) {
      HEKLA_RETURN_IF_ERROR(scan_.expect('='));
      HEKLA_ASSIGN_OR_RETURN(ir::Attribute algorithm, parse_algorithm());
      op.set("algorithm", std::move(algorithm));
    } else {
      const bool is_batch = scan_.accept_word("batching_dims");
      if (!is_batch && !scan_.accept_word("contracting_dims")) {
        return scan_.error("batching_dims, contracting_dims, precision, algorithm or ':'");
      }
      HEKLA_RETURN_IF_ERROR(scan_.expect('='));
      auto& left = is_batch ? n.lhs_batching_dimensions : n.lhs_contracting_dimensions;
      auto& right = is_batch ? n.rhs_batching_dimensions : n.rhs_contracting_dimensions;
      HEKLA_ASSIGN_OR_RETURN(left, parse_int_list());
      HEKLA_RETURN_IF_ERROR(scan_.expect('x'));
      HEKLA_ASSIGN_OR_RETURN(right, parse_int_list());
      has_numbers = true;
    }
  }
  if (op.code == OpCode::kDotGeneral) {
    op.set("dot_dimension_numbers", std::move(n));
  } else if (has_numbers) {
    return scan_.error_at(op.position, "dot has no dimension lists");
  }
  return parse_same_type(op);
}

// (%lhs, %rhs) dim_numbers = ..., window = {...} {attributes} : (t, t) -> t
Status Parser::parse_convolution(OpState& op) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  if (!scan_.accept_word("dim_numbers")) return scan_.error("dim_numbers = ...");
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_ASSIGN_OR_RETURN(ir::ConvDimensionNumbers numbers, parse_conv_lists());
  op.set("dimension_numbers", std::move(numbers));
  HEKLA_RETURN_IF_ERROR(scan_.expect(','));
  if (!scan_.accept_word("window")) return scan_.error("window = {...}");
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  bool is_first = true;
  while (!scan_.accept('}')) {
    if (!is_first) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    is_first = false;
    scan_.peek();
    const size_t key_start = scan_.position();
    const std::string key(scan_.word());
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    if (key == "pad") {
      std::vector<int64_t> flat;
      HEKLA_RETURN_IF_ERROR(scan_.expect('['));
      while (!scan_.accept(']')) {
        if (!flat.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
        HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> pair, parse_int_list());
        if (pair.size() != 2) return scan_.error("pairs of low and high before this");
        flat.insert(flat.end(), pair.begin(), pair.end());
      }
      const Dims dims = {static_cast<int64_t>(flat.size() / 2), 2};
      op.set("padding", ir::make_dense(ir::Type::tensor(DType::kI64, dims),
                                       HostArray::from<int64_t>(DType::kI64, dims, flat)));
    } else if (key == "reverse") {
      std::vector<bool> flags;
      HEKLA_RETURN_IF_ERROR(scan_.expect('['));
      while (!scan_.accept(']')) {
        if (!flags.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
        HEKLA_ASSIGN_OR_RETURN(uint64_t flag, parse_scalar_bits(DType::kI1));
        flags.push_back(flag != 0);
      }
      op.set("window_reversal", ir::bool_array(flags));
    } else {
      const char* name = key == "stride"       ? "window_strides"
                         : key == "lhs_dilate" ? "lhs_dilation"
                         : key == "rhs_dilate" ? "rhs_dilation"
                                               : nullptr;
      if (name == nullptr) {
        return scan_.error_at(
            key_start,
            fmt::format("'{}' is none of stride, pad, lhs_dilate, rhs_dilate, reverse", key));
      }
      HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> values, parse_int_list());
      op.set(name, ir::i64_array(std::move(values)));
    }
  }
  return parse_same_type(op);
}

// (%x init: %c), (%y init: %d) [applies op] across dimensions = [1] {attributes} : fn [reducer ...]
Status Parser::parse_reduce(OpState& op) {
  Values inits;
  do {
    HEKLA_RETURN_IF_ERROR(scan_.expect('('));
    HEKLA_ASSIGN_OR_RETURN(ir::Value * input, parse_operand());
    if (!scan_.accept_word("init")) return scan_.error("'init:'");
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    HEKLA_ASSIGN_OR_RETURN(ir::Value * init, parse_operand());
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
    op.operands.push_back(input);
    inits.push_back(init);
  } while (scan_.accept(','));
  op.operands.insert(op.operands.end(), inits.begin(), inits.end());
  std::string applied;
  if (scan_.accept_word("applies")) {
    scan_.peek();
    applied = std::string(scan_.suffix_name());
  }
  if (!scan_.accept_word("across")) return scan_.error("'across dimensions = [...]'");
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> dimensions, parse_named_list("dimensions"));
  op.set("dimensions", ir::i64_array(std::move(dimensions)));
  HEKLA_RETURN_IF_ERROR(parse_same_type(op));
  auto region = std::make_unique<ir::Region>(nullptr);
  if (!applied.empty()) {
    // The body is that one op on scalars of the initial value's type.
    const auto code = ir::op_code_from_name(applied);
    if (!code.has_value() || !ir::is_elementwise_binary(*code)) {
      return scan_.error_at(op.position, fmt::format("{} is no reduction", applied));
    }
    const ir::Type& type = inits[0]->type();
    const ir::Type scalar = type.is_tensor() ? ir::Type::tensor(type.element(), {}) : type;
    ir::Block& block = region->add_block();
    ir::Value* left = block.add_argument(scalar);
    ir::Value* right = block.add_argument(scalar);
    ir::Operation* body = block.append(*code, {left, right}, {scalar});
    block.append(OpCode::kReturn, {body->result()}, {});
    op.regions.push_back(std::move(region));
    return ok_status();
  }
  HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
  if (!scan_.accept_word("reducer")) return scan_.error("'reducer'");
  // One pair (left, right) for each input; the block has all lefts, then all rights.
  std::vector<RegionArgument> lefts;
  std::vector<RegionArgument> rights;
  while (scan_.accept('(')) {
    for (auto* side : {&lefts, &rights}) {
      if (side == &rights) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_ASSIGN_OR_RETURN(RegionArgument argument, parse_argument_name());
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
      HEKLA_ASSIGN_OR_RETURN(argument.type, parse_type());
      HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
      side->push_back(std::move(argument));
    }
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  }
  lefts.insert(lefts.end(), rights.begin(), rights.end());
  HEKLA_ASSIGN_OR_RETURN(region, parse_region(lefts));
  op.regions.push_back(std::move(region));
  return ok_status();
}

// (%it = %x, ...) : t, t [attributes {...}] cond {...} do {...}
Status Parser::parse_while(OpState& op) {
  std::vector<RegionArgument> arguments;
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  while (!scan_.accept(')')) {
    if (!arguments.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_ASSIGN_OR_RETURN(RegionArgument argument, parse_argument_name());
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    HEKLA_ASSIGN_OR_RETURN(ir::Value * value, parse_operand());
    op.operands.push_back(value);
    argument.type = value->type();
    arguments.push_back(std::move(argument));
  }
  if (!arguments.empty()) {
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    HEKLA_ASSIGN_OR_RETURN(op.result_types, parse_type_list());
    HEKLA_RETURN_IF_ERROR(check_operand_types(op, op.result_types));
  }
  if (scan_.accept_word("attributes")) HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
  for (const char* keyword : {"cond", "do"}) {
    if (!scan_.accept_word(keyword)) return scan_.error(fmt::format("'{}'", keyword));
    HEKLA_ASSIGN_OR_RETURN(auto region, parse_region(arguments));
    op.regions.push_back(std::move(region));
  }
  return ok_status();
}

// @target(%a, %b) {attributes} : (t, t) -> t
Status Parser::parse_custom_call(OpState& op) {
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute target, parse_symbol());
  op.set("call_target_name", ir::StringValue{target.get<ir::SymbolValue>()->root});
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  return parse_operation_type(op);
}

// "name" %a, %b [({...})] {attributes} : fn
Status Parser::parse_composite(OpState& op) {
  HEKLA_ASSIGN_OR_RETURN(std::string name, scan_.string());
  op.set("name", ir::StringValue{std::move(name)});
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  if (scan_.peek_text("({")) {
    scan_.accept('(');
    HEKLA_RETURN_IF_ERROR(parse_regions(op));
  }
  HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  return parse_operation_type(op);
}

// (%a) in_shardings=[...] out_shardings=[...] manual_axes={...} (%b: t) {...} : (t) -> t
Status Parser::parse_manual_computation(OpState& op) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  for (const char* name : {"in_shardings", "out_shardings"}) {
    if (!scan_.accept_word(name)) return scan_.error(fmt::format("{}=[...]", name));
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    HEKLA_ASSIGN_OR_RETURN(auto shardings, parse_shardy(sharding::parse_sharding_list));
    op.set(name, ir::ShardingValue{std::move(shardings)});
  }
  if (!scan_.accept_word("manual_axes")) return scan_.error("manual_axes={...}");
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_ASSIGN_OR_RETURN(auto axes, parse_shardy(sharding::parse_manual_axes));
  op.set("manual_axes", ir::ShardingValue{std::move(axes)});
  std::vector<RegionArgument> arguments;
  if (scan_.accept('(')) {
    while (!scan_.accept(')')) {
      if (!arguments.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_ASSIGN_OR_RETURN(RegionArgument argument, parse_argument_name());
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
      HEKLA_ASSIGN_OR_RETURN(argument.type, parse_type());
      HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
      arguments.push_back(std::move(argument));
    }
  }
  HEKLA_ASSIGN_OR_RETURN(auto region, parse_region(arguments));
  op.regions.push_back(std::move(region));
  HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  return parse_operation_type(op);
}

// %x, dense<...> : t   |   %a, %b [, key = value ...] [{attributes}] : t, t
Status Parser::parse_check(OpState& op) {
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  const bool has_value =
      op.code == OpCode::kCheckExpectEqConst || op.code == OpCode::kCheckExpectAlmostEqConst;
  if (has_value) {
    scan_.accept(',');
    ir::Attribute value;
    if (scan_.accept_word("dense_resource")) {
      HEKLA_ASSIGN_OR_RETURN(value, parse_dense_resource(true));
    } else {
      if (!scan_.accept_word("dense")) return scan_.error("dense<...>");
      HEKLA_ASSIGN_OR_RETURN(value, parse_dense(true));
    }
    op.set("value", std::move(value));
  }
  // Fields such as `max_ulp_difference = 3`, with or without a comma before them.
  while (true) {
    scan_.accept(',');
    Scanner ahead = scan_;
    const std::string key(ahead.word());
    if (key.empty() || !ahead.accept('=')) break;
    scan_ = ahead;
    // Behind a bare number the colon belongs to the operation's types.
    const std::string_view number = ahead.number();
    const bool is_bare = !number.empty() && !(ahead.accept(':') && dtype_from_name(ahead.word()));
    if (is_bare) {
      const bool is_real = number.find_first_of(".eE") != std::string_view::npos;
      const DType dtype = is_real ? DType::kF64 : DType::kUI64;
      HEKLA_ASSIGN_OR_RETURN(uint64_t bits, parse_scalar_bits(dtype));
      const ir::Type type = ir::Type::scalar(dtype);
      if (is_real) {
        op.set(key, ir::FloatValue{type, bits});
      } else {
        op.set(key, ir::IntegerValue{type, static_cast<int64_t>(bits)});
      }
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_attribute());
    op.set(key, std::move(value));
  }
  HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  if (!scan_.accept(':')) return ok_status();
  HEKLA_ASSIGN_OR_RETURN(Types types, parse_type_list());
  // One type stands for all operands.
  if (types.size() == 1) types.resize(op.operands.size(), types[0]);
  return check_operand_types(op, types);
}

}  // namespace hekla::stablehlo
