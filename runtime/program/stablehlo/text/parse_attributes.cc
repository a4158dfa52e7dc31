// SPDX-License-Identifier: Apache-2.0
// Attributes.
#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "runtime/program/stablehlo/text/parser.h"

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
  const bool is_signed = is_signed_integer(dtype) && dtype != DType::kI64;
  if (is_index || !is_signed) return value;
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

Result<std::string> Parser::parse_symbol_name() {
  HEKLA_RETURN_IF_ERROR(scan_.expect('@'));
  if (scan_.raw() == '"') return scan_.string();
  const std::string_view name = scan_.suffix_name();
  if (name.empty()) return scan_.error("a name");
  return std::string(name);
}

Result<ir::Attribute> Parser::parse_symbol() {
  ir::SymbolValue symbol;
  HEKLA_ASSIGN_OR_RETURN(symbol.root, parse_symbol_name());
  while (scan_.accept("::")) {
    HEKLA_ASSIGN_OR_RETURN(std::string nested, parse_symbol_name());
    symbol.nested.push_back(std::move(nested));
  }
  return ir::Attribute(std::move(symbol));
}

Status Parser::spend_parts(int64_t parts) {
  // What a program repeats through aliases is walked by whoever compares or prints it.
  constexpr int64_t kFreeParts = 1 << 20;
  constexpr int64_t kPartsPerByte = 64;
  parts_ += parts;
  if (parts_ <= kFreeParts + kPartsPerByte * static_cast<int64_t>(scan_.text().size())) {
    return ok_status();
  }
  return scan_.error_at(scan_.position(), "the aliases of this program repeat too much");
}

Status Parser::spend_bytes(int64_t bytes, size_t position) {
  constexpr int64_t kFreeBytes = 16 << 20;
  constexpr int64_t kBytesPerByte = 256;
  bytes_ += bytes;
  if (bytes_ <= kFreeBytes + kBytesPerByte * static_cast<int64_t>(scan_.text().size())) {
    return ok_status();
  }
  return scan_.error_at(position, "the lists of the attributes take too much room");
}

Result<std::vector<ir::NamedAttribute>> Parser::parse_dictionary(int depth) {
  std::vector<ir::NamedAttribute> entries;
  std::unordered_set<std::string> names;
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  while (!scan_.accept('}')) {
    if (!entries.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    std::string name;
    scan_.peek();
    const size_t start = scan_.position();
    if (scan_.peek() == '"') {
      HEKLA_ASSIGN_OR_RETURN(name, scan_.string());
    } else {
      name = std::string(scan_.word());
    }
    if (name.empty()) return scan_.error("an attribute's name");
    if (!names.insert(name).second) {
      return scan_.error_at(start, fmt::format("the attribute {} is given twice", name));
    }
    ir::Attribute value = ir::UnitValue{};
    if (scan_.accept('=')) {
      // `value` of constants and assertions keeps its tensor form.
      if (name == "value" && scan_.accept_word("dense")) {
        HEKLA_ASSIGN_OR_RETURN(value, parse_dense(true));
      } else if (name == "value" && scan_.accept_word("dense_resource")) {
        HEKLA_ASSIGN_OR_RETURN(value, parse_dense_resource(true));
      } else {
        HEKLA_ASSIGN_OR_RETURN(value, parse_attribute(depth + 1));
      }
    }
    // Senders of bytecode write symbols in foreign attributes as strings.
    const auto* symbol = value.get<ir::SymbolValue>();
    if (symbol != nullptr && symbol->nested.empty() && name.find('.') != std::string::npos) {
      value = ir::StringValue{symbol->root};
    }
    value = typed_attributes_.typed(name, value);
    entries.emplace_back(std::move(name), std::move(value));
  }
  return entries;
}

Result<ir::Attribute> Parser::parse_attribute(int depth) {
  if (depth > kMaxTextDepth) return scan_.error_at(scan_.position(), "attributes nest too deep");
  deepest_ = std::max(deepest_, depth);
  HEKLA_RETURN_IF_ERROR(spend_parts(1));
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
  if (scan_.accept_word("dense_resource")) return parse_dense_resource(false);
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
  scan_.peek();
  const size_t start = scan_.position();
  HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_scalar_type(0));
  const DType dtype = type.dtype();
  if (!(type == ir::Type::scalar(dtype)) || is_complex(dtype)) {
    return scan_.error_at(start, "an array holds integers or floats");
  }
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
  return ir::Attribute(std::move(list));
}

Result<ir::Attribute> Parser::parse_hash_attribute(int depth) {
  const size_t start = scan_.position();
  HEKLA_RETURN_IF_ERROR(scan_.expect('#'));
  const std::string name(scan_.suffix_name());
  if (auto alias = aliases_.find("#" + name); alias != aliases_.end()) {
    if (auto it = attribute_aliases_.find(name); it != attribute_aliases_.end()) {
      const AttributeAlias& known = it->second;
      if (depth + known.height > kMaxTextDepth) {
        return scan_.error_at(start, "attributes nest too deep");
      }
      deepest_ = std::max(deepest_, depth + known.height);
      HEKLA_RETURN_IF_ERROR(spend_parts(known.parts));
      return known.value;
    }
    // A cycle ends at the limit of the nesting.
    const size_t back = scan_.position();
    const int64_t parts_before = parts_;
    const int deepest_before = std::exchange(deepest_, depth);
    scan_.set_position(alias->second);
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_attribute(depth + 1));
    scan_.set_position(back);
    attribute_aliases_[name] = {value, parts_ - parts_before, deepest_ - depth};
    deepest_ = std::max(deepest_, deepest_before);
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
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, parse_stablehlo_struct(name.substr(10), depth));
    if (!value.is_absent()) return value;
  }
  if (scan_.raw() == '<') HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
  if (name == "stablehlo.replica_group_mesh_axes") {
    const std::string_view text = scan_.text().substr(start, scan_.position() - start);
    sharding::TextError error;
    Result<sharding::MeshAxes> value = sharding::parse_mesh_axes(text, &error);
    if (!value.ok()) return scan_.error_at(start + error.position, error.reason);
    return ir::Attribute(ir::MeshAxesValue{std::move(value).value()});
  }
  if (name == "sdy" || name.starts_with("sdy.")) {
    const std::string_view text = scan_.text().substr(start, scan_.position() - start);
    sharding::TextError error;
    Result<sharding::Attribute> value = sharding::parse_attribute(text, &error);
    if (!value.ok()) return scan_.error_at(start + error.position, error.reason);
    return ir::Attribute(ir::ShardingValue{std::move(value).value()});
  }
  return ir::Attribute(
      ir::OpaqueValue{std::string(scan_.text().substr(start, scan_.position() - start))});
}

}  // namespace hekla::stablehlo
