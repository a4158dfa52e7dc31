// SPDX-License-Identifier: Apache-2.0
// Attributes.
#include <charconv>
#include <cmath>

#include "backends/compiler/stablehlo/text/parser.h"

namespace hekla::stablehlo {
namespace {

// Integers in [lowest, highest] of the type, unsigned spellings of signless types included.
bool fits_integer(DType dtype, bool is_index, int64_t value) {
  if (is_index || dtype == DType::kI64 || dtype == DType::kUI64) return true;
  const int bits = dtype_bits(dtype);
  const int64_t limit = int64_t{1} << bits;
  if (is_unsigned_integer(dtype)) return value >= 0 && value < limit;
  return value >= -(limit / 2) && value < limit;
}

int64_t wrapped(DType dtype, bool is_index, int64_t value) {
  if (is_index || is_unsigned_integer(dtype) || dtype_bits(dtype) == 64) return value;
  const int shift = 64 - dtype_bits(dtype);
  return static_cast<int64_t>(static_cast<uint64_t>(value) << shift) >> shift;
}

}  // namespace

Result<std::vector<int64_t>> Parser::parse_int_list() {
  std::vector<int64_t> values;
  HEKLA_RETURN_IF_ERROR(scan_.expect('['));
  while (!scan_.accept(']')) {
    if (!values.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_ASSIGN_OR_RETURN(int64_t value, scan_.integer());
    values.push_back(value);
  }
  return values;
}

Result<ir::Attribute> Parser::parse_symbol() {
  ir::SymbolValue symbol;
  HEKLA_RETURN_IF_ERROR(scan_.expect('@'));
  if (scan_.raw() == '"') {
    HEKLA_ASSIGN_OR_RETURN(symbol.root, scan_.string());
  } else {
    symbol.root = std::string(scan_.suffix_name());
  }
  while (scan_.accept("::@")) symbol.nested.emplace_back(scan_.suffix_name());
  return ir::Attribute(std::move(symbol));
}

Result<std::vector<ir::NamedAttribute>> Parser::parse_dictionary(int depth) {
  std::vector<ir::NamedAttribute> entries;
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  while (!scan_.accept('}')) {
    if (!entries.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    std::string name;
    if (scan_.peek() == '"') {
      HEKLA_ASSIGN_OR_RETURN(name, scan_.string());
    } else {
      scan_.peek();
      name = std::string(scan_.word());
    }
    if (name.empty()) return scan_.error("an attribute's name");
    ir::Attribute value = ir::UnitValue{};
    if (scan_.accept('=')) {
      // `value` of constants and assertions keeps its tensor form.
      if (name == "value" && scan_.accept_word("dense")) {
        HEKLA_ASSIGN_OR_RETURN(value, parse_dense(true));
      } else {
        HEKLA_ASSIGN_OR_RETURN(value, parse_attribute(depth + 1));
      }
    }
    // Senders of bytecode write symbols in foreign attributes as strings.
    const auto* symbol = value.get<ir::SymbolValue>();
    if (symbol != nullptr && symbol->nested.empty() && name.find('.') != std::string::npos) {
      value = ir::StringValue{symbol->root};
    }
    entries.emplace_back(std::move(name), std::move(value));
  }
  return entries;
}

Result<ir::Attribute> Parser::parse_attribute(int depth) {
  if (depth > kMaxTextDepth) return scan_.error_at(scan_.position(), "attributes nest too deep");
  const char c = scan_.peek();
  switch (c) {
    case '"': {
      HEKLA_ASSIGN_OR_RETURN(std::string text, scan_.string());
      if (scan_.accept(':')) HEKLA_RETURN_IF_ERROR(parse_type().status());
      return ir::Attribute(ir::StringValue{std::move(text)});
    }
    case '[': {
      ir::ArrayValue array;
      scan_.accept('[');
      while (!scan_.accept(']')) {
        if (!array.elements.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
        HEKLA_ASSIGN_OR_RETURN(ir::Attribute element, parse_attribute(depth + 1));
        array.elements.push_back(std::move(element));
      }
      return ir::Attribute(std::move(array));
    }
    case '{': {
      HEKLA_ASSIGN_OR_RETURN(auto entries, parse_dictionary(depth + 1));
      return ir::make_dictionary(std::move(entries));
    }
    case '@':
      return parse_symbol();
    case '#':
      return parse_hash_attribute(depth);
    default:
      break;
  }
  if (c == '-' || (c >= '0' && c <= '9')) return parse_number_attribute(depth);
  if (scan_.accept_word("true")) {
    if (scan_.accept(':')) HEKLA_RETURN_IF_ERROR(parse_type().status());
    return ir::Attribute(ir::BoolValue{true});
  }
  if (scan_.accept_word("false")) {
    if (scan_.accept(':')) HEKLA_RETURN_IF_ERROR(parse_type().status());
    return ir::Attribute(ir::BoolValue{false});
  }
  if (scan_.accept_word("unit")) return ir::Attribute(ir::UnitValue{});
  if (scan_.accept_word("dense")) return parse_dense(false);
  if (scan_.accept_word("dense_resource")) return parse_dense_resource();
  if (scan_.accept_word("array")) return parse_array_attribute();
  if (scan_.accept("loc(")) {
    HEKLA_RETURN_IF_ERROR(parse_location(depth + 1).status());
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
    return ir::Attribute(ir::OpaqueValue{"loc(unknown)"});
  }
  if (scan_.peek_text("affine_map<") || scan_.peek_text("affine_set<")) {
    const std::string word(scan_.word());
    HEKLA_ASSIGN_OR_RETURN(std::string_view body, scan_.balanced());
    return ir::Attribute(ir::OpaqueValue{word + std::string(body)});
  }
  if (at_type()) {
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type(depth + 1));
    return ir::Attribute(ir::TypeValue{std::move(type)});
  }
  return scan_.error("an attribute");
}

Result<ir::Attribute> Parser::parse_number_attribute(int depth) {
  const size_t start = scan_.position();
  const std::string_view text = scan_.number();
  if (text.empty()) return scan_.error("a number");
  const bool is_hex = text.find("0x") != std::string_view::npos;
  const bool looks_float = !is_hex && text.find_first_of(".eE") != std::string_view::npos;
  ir::Type type = ir::Type::scalar(looks_float ? DType::kF64 : DType::kI64);
  if (scan_.accept(':')) {
    HEKLA_ASSIGN_OR_RETURN(type, parse_type(depth + 1));
  }
  const size_t end = scan_.position();
  scan_.set_position(start);
  if (type.is_scalar() && is_float(type.dtype())) {
    HEKLA_ASSIGN_OR_RETURN(uint64_t bits, parse_scalar_bits(type.dtype()));
    scan_.set_position(end);
    return ir::Attribute(ir::FloatValue{type, bits});
  }
  if (!type.is_scalar() || is_complex(type.dtype()) || looks_float) {
    return scan_.error("a number of its type");
  }
  // The largest ui64 does not fit into int64: read as unsigned then.
  int64_t value = 0;
  uint64_t unsigned_value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), unsigned_value);
  if (!is_hex && code == std::errc() && stop == text.data() + text.size() &&
      type.dtype() == DType::kUI64) {
    value = static_cast<int64_t>(unsigned_value);
  } else {
    HEKLA_ASSIGN_OR_RETURN(value, scan_.integer());
  }
  scan_.set_position(end);
  if (type.dtype() == DType::kI1) return ir::Attribute(ir::BoolValue{value != 0});
  if (!fits_integer(type.dtype(), type.is_index(), value)) {
    return scan_.error_at(start, fmt::format("{} does not fit into {}", text, type.to_string()));
  }
  return ir::Attribute(ir::IntegerValue{type, wrapped(type.dtype(), type.is_index(), value)});
}

// Behind "array": <i64: 1, 2>, <i1: true>, <f32: 1.0>, <i64>.
Result<ir::Attribute> Parser::parse_array_attribute() {
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_scalar_type(0));
  const DType dtype = type.dtype();
  ir::IntArrayValue list{dtype, {}};
  std::string floats = fmt::format("array<{}", type.to_string());
  if (scan_.accept(':')) {
    bool is_first = true;
    while (scan_.peek() != '>') {
      if (!is_first) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      if (is_float(dtype)) {
        HEKLA_ASSIGN_OR_RETURN(uint64_t bits, parse_scalar_bits(dtype));
        floats += fmt::format("{}0x{:0{}X}", is_first ? ": " : ", ", bits,
                              static_cast<size_t>(dtype_bytes(dtype)) * 2);
      } else {
        HEKLA_ASSIGN_OR_RETURN(uint64_t bits, parse_scalar_bits(dtype));
        list.values.push_back(wrapped(dtype, false, static_cast<int64_t>(bits)));
      }
      is_first = false;
    }
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  if (is_float(dtype)) return ir::Attribute(ir::OpaqueValue{floats + ">"});
  if (is_complex(dtype)) return scan_.error("an array of integers or floats before this");
  return ir::Attribute(std::move(list));
}

Result<ir::Attribute> Parser::parse_hash_attribute(int depth) {
  const size_t start = scan_.position();
  HEKLA_RETURN_IF_ERROR(scan_.expect('#'));
  const std::string name(scan_.suffix_name());
  if (auto alias = aliases_.find("#" + name); alias != aliases_.end()) {
    if (auto it = attribute_aliases_.find(name); it != attribute_aliases_.end()) return it->second;
    if (++alias_depth_ > kMaxTextDepth) {
      return scan_.error_at(start, "aliases refer to each other without end");
    }
    const size_t back = scan_.position();
    scan_.set_position(alias->second);
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_attribute(depth + 1));
    --alias_depth_;
    scan_.set_position(back);
    attribute_aliases_[name] = value;
    return value;
  }
  // #stablehlo<precision DEFAULT>, and #chlo<...> of source programs.
  if (name == "stablehlo" || name == "chlo") {
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    const std::string kind(scan_.word());
    const std::string word(scan_.word());
    if (kind.empty() || word.empty()) return scan_.error("a kind and a word");
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return ir::enum_attribute(kind, word);
  }
  // What the printer makes of opaque text that would not read back as such.
  if (name == "hekla.text") {
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    HEKLA_ASSIGN_OR_RETURN(std::string text, scan_.string());
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return ir::Attribute(ir::OpaqueValue{std::move(text)});
  }
  if (name.starts_with("stablehlo.")) {
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_stablehlo_struct(name.substr(10)));
    if (!value.is_absent()) return value;
  }
  if (scan_.raw() == '<') HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
  return ir::Attribute(
      ir::OpaqueValue{std::string(scan_.text().substr(start, scan_.position() - start))});
}

// The struct attributes of §6.8; absent (and nothing consumed) for those that stay text.
Result<ir::Attribute> Parser::parse_stablehlo_struct(std::string_view name) {
  if (name == "conv") return parse_conv_numbers();
  if (name == "dot_algorithm") return parse_algorithm();
  if (name == "result_accuracy_mode") {
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    const std::string word(scan_.word());
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return ir::enum_attribute("result_accuracy_mode", word);
  }
  const bool is_known = name == "gather" || name == "scatter" || name == "dot" ||
                        name == "channel_handle" || name == "output_operand_alias" ||
                        name == "result_accuracy" || name == "bounds";
  if (!is_known) return ir::Attribute();
  if (name == "bounds") {
    std::vector<int64_t> bounds;
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    while (!scan_.accept('>')) {
      if (!bounds.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      int64_t bound = ir::kDynamic;
      if (!scan_.accept('?')) {
        HEKLA_ASSIGN_OR_RETURN(bound, scan_.integer());
      }
      bounds.push_back(bound);
    }
    return ir::i64_array(std::move(bounds));
  }
  // key = [list] or key = number or key = attribute, in any order.
  std::unordered_map<std::string, std::vector<int64_t>> lists;
  std::unordered_map<std::string, double> reals;
  std::string mode = "DEFAULT";
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  bool is_first = true;
  while (!scan_.accept('>')) {
    if (!is_first) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    is_first = false;
    const std::string key(scan_.word());
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    if (scan_.peek() == '[') {
      HEKLA_ASSIGN_OR_RETURN(lists[key], parse_int_list());
    } else if (scan_.peek() == '#') {
      HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_hash_attribute(0));
      if (const auto* word = value.get<ir::EnumValue>()) mode = word->value;
    } else {
      Scanner ahead = scan_;
      const std::string_view number = ahead.number();
      double real = 0;
      std::from_chars(number.data(), number.data() + number.size(), real);
      reals[key] = real;
      if (number.find_first_of(".eE") == std::string_view::npos) {
        HEKLA_ASSIGN_OR_RETURN(int64_t value, scan_.integer());
        lists[key] = {value};
      } else {
        scan_ = ahead;
      }
    }
  }
  const auto single = [&](const char* key) { return lists[key].empty() ? 0 : lists[key][0]; };
  if (name == "gather") {
    return ir::Attribute(ir::GatherDimensionNumbers{
        lists["offset_dims"], lists["collapsed_slice_dims"], lists["operand_batching_dims"],
        lists["start_indices_batching_dims"], lists["start_index_map"],
        single("index_vector_dim")});
  }
  if (name == "scatter") {
    return ir::Attribute(ir::ScatterDimensionNumbers{
        lists["update_window_dims"], lists["inserted_window_dims"], lists["input_batching_dims"],
        lists["scatter_indices_batching_dims"], lists["scatter_dims_to_operand_dims"],
        single("index_vector_dim")});
  }
  if (name == "dot") {
    return ir::Attribute(ir::DotDimensionNumbers{
        lists["lhs_batching_dimensions"], lists["rhs_batching_dimensions"],
        lists["lhs_contracting_dimensions"], lists["rhs_contracting_dimensions"]});
  }
  if (name == "channel_handle") {
    return ir::Attribute(ir::ChannelHandle{single("handle"), single("type")});
  }
  if (name == "output_operand_alias") {
    return ir::Attribute(ir::OutputOperandAlias{
        lists["output_tuple_indices"], single("operand_index"), lists["operand_tuple_indices"]});
  }
  return ir::Attribute(
      ir::ResultAccuracy{reals["atol"], reals["rtol"], single("ulps"), std::move(mode)});
}

// Behind "#stablehlo.conv": <[b, 0, f]x[0, i, o]->[b, 0, f]> or <raw key = value, ...>.
Result<ir::Attribute> Parser::parse_conv_numbers() {
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  ir::ConvDimensionNumbers n;
  if (!scan_.accept_word("raw")) {
    HEKLA_ASSIGN_OR_RETURN(n, parse_conv_lists());
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return ir::Attribute(std::move(n));
  }
  bool is_first = true;
  while (!scan_.accept('>')) {
    if (!is_first) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    is_first = false;
    const std::string key(scan_.word());
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    std::vector<int64_t> list;
    if (scan_.peek() == '[') {
      HEKLA_ASSIGN_OR_RETURN(list, parse_int_list());
    } else {
      HEKLA_ASSIGN_OR_RETURN(int64_t value, scan_.integer());
      list = {value};
    }
    const auto single = [&] { return list.empty() ? int64_t{0} : list[0]; };
    if (key == "input_batch_dimension") n.input_batch_dimension = single();
    if (key == "input_feature_dimension") n.input_feature_dimension = single();
    if (key == "input_spatial_dimensions") n.input_spatial_dimensions = list;
    if (key == "kernel_input_feature_dimension") n.kernel_input_feature_dimension = single();
    if (key == "kernel_output_feature_dimension") n.kernel_output_feature_dimension = single();
    if (key == "kernel_spatial_dimensions") n.kernel_spatial_dimensions = list;
    if (key == "output_batch_dimension") n.output_batch_dimension = single();
    if (key == "output_feature_dimension") n.output_feature_dimension = single();
    if (key == "output_spatial_dimensions") n.output_spatial_dimensions = list;
  }
  return ir::Attribute(std::move(n));
}

// [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]: the place in a list is the tensor's dimension.
Result<ir::ConvDimensionNumbers> Parser::parse_conv_lists() {
  ir::ConvDimensionNumbers n;
  const auto parse_list = [&](char first, int64_t& first_dim, char second, int64_t& second_dim,
                              std::vector<int64_t>& spatial) -> Status {
    HEKLA_RETURN_IF_ERROR(scan_.expect('['));
    for (int64_t dim = 0; !scan_.accept(']'); ++dim) {
      if (dim > 0) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      if (scan_.accept('?')) continue;
      const char c = scan_.peek();
      if (c == first) {
        scan_.accept(c);
        first_dim = dim;
      } else if (c == second) {
        scan_.accept(c);
        second_dim = dim;
      } else {
        HEKLA_ASSIGN_OR_RETURN(int64_t number, scan_.integer());
        constexpr int64_t kMaxSpatial = 1 << 10;
        if (number < 0 || number > kMaxSpatial) return scan_.error("a spatial dimension");
        if (static_cast<int64_t>(spatial.size()) <= number) {
          spatial.resize(static_cast<size_t>(number) + 1, -1);
        }
        spatial[static_cast<size_t>(number)] = dim;
      }
    }
    return ok_status();
  };
  HEKLA_RETURN_IF_ERROR(parse_list('b', n.input_batch_dimension, 'f', n.input_feature_dimension,
                                   n.input_spatial_dimensions));
  HEKLA_RETURN_IF_ERROR(scan_.expect('x'));
  HEKLA_RETURN_IF_ERROR(parse_list('i', n.kernel_input_feature_dimension, 'o',
                                   n.kernel_output_feature_dimension, n.kernel_spatial_dimensions));
  HEKLA_RETURN_IF_ERROR(scan_.expect("->"));
  HEKLA_RETURN_IF_ERROR(parse_list('b', n.output_batch_dimension, 'f', n.output_feature_dimension,
                                   n.output_spatial_dimensions));
  return n;
}

// <lhs_precision_type = tf32, ..., allow_imprecise_accumulation = false>
Result<ir::Attribute> Parser::parse_algorithm() {
  ir::DotAlgorithm a;
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  bool is_first = true;
  while (!scan_.accept('>')) {
    if (!is_first) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    is_first = false;
    const std::string key(scan_.word());
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    if (key.ends_with("_type")) {
      HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
      if (key == "lhs_precision_type") a.lhs_precision_type = type;
      if (key == "rhs_precision_type") a.rhs_precision_type = type;
      if (key == "accumulation_type") a.accumulation_type = type;
    } else if (key == "allow_imprecise_accumulation") {
      a.allow_imprecise_accumulation = scan_.accept_word("true");
      if (!a.allow_imprecise_accumulation && !scan_.accept_word("false")) {
        return scan_.error("true or false");
      }
    } else {
      HEKLA_ASSIGN_OR_RETURN(int64_t count, scan_.integer());
      if (key == "lhs_component_count") a.lhs_component_count = count;
      if (key == "rhs_component_count") a.rhs_component_count = count;
      if (key == "num_primitive_operations") a.num_primitive_operations = count;
    }
  }
  return ir::Attribute(std::move(a));
}

}  // namespace hekla::stablehlo
