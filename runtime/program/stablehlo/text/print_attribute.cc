// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/text/module_printer.h"
#include "runtime/program/stablehlo/text/parser.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {
namespace {

// Above this many elements a tensor is written as hexadecimal bytes, as MLIR does.
constexpr int64_t kMaxListedElements = 100;

uint64_t bits_at(const HostArray& array, int64_t i) {
  uint64_t bits = 0;
  const int64_t width = dtype_bytes(array.dtype());
  std::memcpy(&bits, array.data() + i * width, static_cast<size_t>(width));
  return bits;
}

// Shortest decimal text with a point, or the bit pattern of NaN and infinity.
std::string float_text(DType dtype, uint64_t bits) {
  const double value = float_from_bits(dtype, bits);
  // Types without the text of every value keep their bits.
  if (!std::isfinite(value) || float_to_bits(dtype, value) != bits) {
    return fmt::format("0x{:0{}X}", bits, (dtype_bits(dtype) + 3) / 4);
  }
  std::string text = dtype == DType::kF32 ? fmt::format("{}", static_cast<float>(value))
                                          : fmt::format("{}", value);
  const size_t exponent = text.find('e');
  if (text.find('.') == std::string::npos) {
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  }
  return text;
}

std::string scalar_text(DType dtype, const HostArray& array, int64_t i) {
  if (is_complex(dtype)) {
    const DType part = complex_part(dtype);
    const HostArray parts = array.with_shape(part, {array.size() * 2});
    return fmt::format("({}, {})", float_text(part, bits_at(parts, 2 * i)),
                       float_text(part, bits_at(parts, 2 * i + 1)));
  }
  const uint64_t bits = bits_at(array, i);
  if (dtype == DType::kI1) return bits != 0 ? "true" : "false";
  if (is_float(dtype)) return float_text(dtype, bits);
  if (is_unsigned_integer(dtype)) return fmt::format("{}", bits);
  const int shift = 64 - 8 * static_cast<int>(dtype_bytes(dtype));
  return fmt::format("{}", static_cast<int64_t>(bits << shift) >> shift);
}

void nested_text(const HostArray& array, size_t dim, int64_t& next, std::string& out) {
  if (dim == array.dims().size()) {
    out += scalar_text(array.dtype(), array, next++);
    return;
  }
  out += '[';
  for (int64_t i = 0; i < array.dims()[dim]; ++i) {
    if (i > 0) out += ", ";
    nested_text(array, dim + 1, next, out);
  }
  out += ']';
}

std::string dense_text(const ir::DenseValue& dense, int64_t max_elements) {
  std::string elements;
  int64_t next = 0;
  if (dense.values.size() == 0) {
    elements = "";
  } else if (dense.is_splat) {
    elements = scalar_text(dense.values.dtype(), dense.values, 0);
  } else if (dense.values.size() > max_elements) {
    for (int64_t i = 0; i < max_elements; ++i) {
      elements += scalar_text(dense.values.dtype(), dense.values, i) + ", ";
    }
    elements += fmt::format("... {} in all", dense.values.size());
  } else if (dense.values.size() <= kMaxListedElements) {
    nested_text(dense.values, 0, next, elements);
  } else {
    constexpr char kDigits[] = "0123456789ABCDEF";
    elements.reserve(static_cast<size_t>(dense.values.size_bytes()) * 2 + 4);
    elements = "\"0x";
    // Narrow integers without the extension that fills their byte in memory.
    const int bits = dtype_bits(dense.values.dtype());
    const std::byte mask{bits < 8 ? static_cast<uint8_t>((1U << bits) - 1) : uint8_t{0xff}};
    for (std::byte b : dense.values.bytes()) {
      b &= mask;
      elements += kDigits[std::to_integer<unsigned>(b) >> 4];
      elements += kDigits[std::to_integer<unsigned>(b) & 15];
    }
    elements += '"';
  }
  return fmt::format("dense<{}> : {}", elements, dense.type.to_string());
}

std::string int_array_text(const ir::IntArrayValue& list, int64_t max_elements) {
  std::string text = fmt::format("array<{}", dtype_name(list.dtype));
  for (size_t i = 0; i < list.values.size(); ++i) {
    if (static_cast<int64_t>(i) == max_elements) {
      return fmt::format("{}, ... {} in all>", text, list.values.size());
    }
    text += i == 0 ? ": " : ", ";
    text += list.dtype == DType::kI1 ? (list.values[i] != 0 ? "true" : "false")
                                     : fmt::format("{}", list.values[i]);
  }
  return text + ">";
}

// key = [list], ... without the empty ones.
std::string struct_text(
    std::string_view name,
    std::initializer_list<std::pair<const char*, const std::vector<int64_t>*>> lists,
    std::string_view last = "") {
  std::string fields;
  for (const auto& [key, list] : lists) {
    if (list->empty()) continue;
    fields += fmt::format("{}{} = {}", fields.empty() ? "" : ", ", key, list_text(*list));
  }
  if (!last.empty()) fields += fmt::format("{}{}", fields.empty() ? "" : ", ", last);
  return fmt::format("#stablehlo.{}<{}>", name, fields);
}

std::string index_text(int64_t index_vector_dim) {
  return index_vector_dim == 0 ? "" : fmt::format("index_vector_dim = {}", index_vector_dim);
}

std::string conv_text(const ir::ConvDimensionNumbers& n) {
  const std::string lists = conv_lists_text(n);
  if (!lists.empty()) return fmt::format("#stablehlo.conv<{}>", lists);
  return fmt::format(
      "#stablehlo.conv<raw input_batch_dimension = {}, input_feature_dimension = {}, "
      "input_spatial_dimensions = {}, kernel_input_feature_dimension = {}, "
      "kernel_output_feature_dimension = {}, kernel_spatial_dimensions = {}, "
      "output_batch_dimension = {}, output_feature_dimension = {}, output_spatial_dimensions = {}>",
      n.input_batch_dimension, n.input_feature_dimension, list_text(n.input_spatial_dimensions),
      n.kernel_input_feature_dimension, n.kernel_output_feature_dimension,
      list_text(n.kernel_spatial_dimensions), n.output_batch_dimension, n.output_feature_dimension,
      list_text(n.output_spatial_dimensions));
}

// "[b, 0, f]": letters and spatial numbers at their dimensions. Empty where a dimension is outside
// or taken.
std::string conv_list_text(char first, int64_t first_dim, char second, int64_t second_dim,
                           const std::vector<int64_t>& spatial) {
  std::vector<std::string> places(spatial.size() + 2);
  const auto put = [&](int64_t dim, std::string text) {
    if (dim < 0 || dim >= static_cast<int64_t>(places.size())) return false;
    std::string& place = places[static_cast<size_t>(dim)];
    if (!place.empty()) return false;
    place = std::move(text);
    return true;
  };
  bool fits = put(first_dim, std::string(1, first)) && put(second_dim, std::string(1, second));
  for (size_t i = 0; fits && i < spatial.size(); ++i) fits = put(spatial[i], std::to_string(i));
  return fits ? fmt::format("[{}]", fmt::join(places, ", ")) : "";
}

std::string enum_text(const ir::EnumValue& value) {
  if (value.kind == "result_accuracy_mode") {
    return fmt::format("#stablehlo.result_accuracy_mode<{}>", value.value);
  }
  return fmt::format("#stablehlo<{} {}>", value.kind, value.value);
}

struct Printer {
  const PrintOptions& options;

  std::string operator()(std::monostate) const { return "unit"; }
  std::string operator()(const ir::UnitValue&) const { return "unit"; }
  std::string operator()(const ir::BoolValue& v) const { return v.value ? "true" : "false"; }
  std::string operator()(const ir::IntegerValue& v) const {
    if (v.type.dtype() == DType::kUI64) {
      return fmt::format("{} : ui64", static_cast<uint64_t>(v.value));
    }
    return fmt::format("{} : {}", v.value, v.type.to_string());
  }
  std::string operator()(const ir::FloatValue& v) const {
    return fmt::format("{} : {}", float_text(v.type.dtype(), v.bits), v.type.to_string());
  }
  std::string operator()(const ir::StringValue& v) const { return quoted(v.value); }
  std::string operator()(const ir::ArrayValue& v) const {
    std::string text = "[";
    for (size_t i = 0; i < v.elements.size(); ++i) {
      text += (i > 0 ? ", " : "") + print_attribute(v.elements[i], options);
    }
    return text + "]";
  }
  std::string operator()(const ir::DictionaryValue& v) const {
    return dictionary_text(v.entries, options);
  }
  std::string operator()(const ir::TypeValue& v) const { return v.type.to_string(); }
  std::string operator()(const ir::EnumValue& v) const { return enum_text(v); }
  std::string operator()(const ir::DenseValue& v) const {
    return dense_text(v, options.max_elements);
  }
  std::string operator()(const ir::IntArrayValue& v) const {
    return int_array_text(v, options.max_elements);
  }
  std::string operator()(const ir::SymbolValue& v) const {
    std::string text = symbol_text(v.root);
    for (const std::string& nested : v.nested) text += "::" + symbol_text(nested);
    return text;
  }
  std::string operator()(const ir::ConvDimensionNumbers& v) const { return conv_text(v); }
  std::string operator()(const ir::DotDimensionNumbers& n) const {
    return struct_text("dot", {{"lhs_batching_dimensions", &n.lhs_batching_dimensions},
                               {"rhs_batching_dimensions", &n.rhs_batching_dimensions},
                               {"lhs_contracting_dimensions", &n.lhs_contracting_dimensions},
                               {"rhs_contracting_dimensions", &n.rhs_contracting_dimensions}});
  }
  std::string operator()(const ir::DotAlgorithm& v) const {
    return "#stablehlo.dot_algorithm" + algorithm_text(v);
  }
  std::string operator()(const ir::GatherDimensionNumbers& n) const {
    return struct_text("gather",
                       {{"offset_dims", &n.offset_dims},
                        {"collapsed_slice_dims", &n.collapsed_slice_dims},
                        {"operand_batching_dims", &n.operand_batching_dims},
                        {"start_indices_batching_dims", &n.start_indices_batching_dims},
                        {"start_index_map", &n.start_index_map}},
                       index_text(n.index_vector_dim));
  }
  std::string operator()(const ir::ScatterDimensionNumbers& n) const {
    return struct_text("scatter",
                       {{"update_window_dims", &n.update_window_dims},
                        {"inserted_window_dims", &n.inserted_window_dims},
                        {"input_batching_dims", &n.input_batching_dims},
                        {"scatter_indices_batching_dims", &n.scatter_indices_batching_dims},
                        {"scatter_dims_to_operand_dims", &n.scatter_dims_to_operand_dims}},
                       index_text(n.index_vector_dim));
  }
  std::string operator()(const ir::ChannelHandle& v) const {
    return fmt::format("#stablehlo.channel_handle<handle = {}, type = {}>", v.handle, v.type);
  }
  std::string operator()(const ir::OutputOperandAlias& v) const {
    return fmt::format(
        "#stablehlo.output_operand_alias<output_tuple_indices = {}, operand_index = {}, "
        "operand_tuple_indices = {}>",
        list_text(v.output_tuple_indices), v.operand_index, list_text(v.operand_tuple_indices));
  }
  std::string operator()(const ir::ResultAccuracy& v) const {
    const auto real = [](double x) { return float_text(DType::kF64, std::bit_cast<uint64_t>(x)); };
    return fmt::format(
        "#stablehlo.result_accuracy<atol = {}, rtol = {}, ulps = {}, mode = "
        "#stablehlo.result_accuracy_mode<{}>>",
        real(v.atol), real(v.rtol), v.ulps, v.mode);
  }
  std::string operator()(const ir::ShardingValue& v) const {
    return sharding::attribute_text(v.value);
  }
  std::string operator()(const ir::HloShardingValue& v) const { return quoted(v.written); }
  std::string operator()(const ir::MeshAxesValue& v) const { return sharding::to_text(v.value); }
  std::string operator()(const ir::OpaqueValue& v) const {
    // Bytecode may hold any text, and parts of attributes that have no text by themselves.
    const Result<ir::Attribute> same = Parser(v.text).run_attribute();
    if (same.ok() && *same == ir::Attribute(v)) return v.text;
    return fmt::format("#hekla.text<{}>", quoted(v.text));
  }
};

}  // namespace

std::string list_text(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string algorithm_text(const ir::DotAlgorithm& a) {
  return fmt::format(
      "<lhs_precision_type = {}, rhs_precision_type = {}, accumulation_type = {}, "
      "lhs_component_count = {}, rhs_component_count = {}, num_primitive_operations = {}, "
      "allow_imprecise_accumulation = {}>",
      a.lhs_precision_type.to_string(), a.rhs_precision_type.to_string(),
      a.accumulation_type.to_string(), a.lhs_component_count, a.rhs_component_count,
      a.num_primitive_operations, a.allow_imprecise_accumulation);
}

std::string conv_lists_text(const ir::ConvDimensionNumbers& n) {
  const std::string input = conv_list_text('b', n.input_batch_dimension, 'f',
                                           n.input_feature_dimension, n.input_spatial_dimensions);
  const std::string kernel =
      conv_list_text('i', n.kernel_input_feature_dimension, 'o', n.kernel_output_feature_dimension,
                     n.kernel_spatial_dimensions);
  const std::string output = conv_list_text(
      'b', n.output_batch_dimension, 'f', n.output_feature_dimension, n.output_spatial_dimensions);
  if (input.empty() || kernel.empty() || output.empty()) return "";
  return fmt::format("{}x{}->{}", input, kernel, output);
}

std::string symbol_text(std::string_view name) {
  return "@" + (sharding::is_bare_symbol(name) ? std::string(name) : quoted(name));
}

std::string dictionary_text(const std::vector<ir::NamedAttribute>& entries,
                            const PrintOptions& options) {
  std::string text = "{";
  for (const auto& [name, value] : entries) {
    if (text.size() > 1) text += ", ";
    text += sharding::is_bare_symbol(name) ? name : quoted(name);
    if (value.get<ir::UnitValue>() == nullptr) text += " = " + print_attribute(value, options);
  }
  return text + "}";
}

std::string print_attribute(const ir::Attribute& attribute, const PrintOptions& options) {
  return std::visit(Printer{options}, attribute.content());
}

}  // namespace hekla::stablehlo
