// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "runtime/program/sharding/text.h"

namespace hekla::ir {
namespace {

template <typename... Args>
void append(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// Quoted; bytes outside printable ASCII as two hex digits.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20 || byte > 0x7e) {
      append(out, "\\{:02X}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_double(std::string& out, double value) { append(out, "{}", value); }

void append_float(std::string& out, DType dtype, uint64_t bits) {
  const double value = float_from_bits(dtype, bits);
  if (!std::isfinite(value)) {
    append(out, "0x{:0{}X}", bits, (dtype_bits(dtype) + 3) / 4);
  } else if (dtype == DType::kF64) {
    append_double(out, value);
  } else {
    append(out, "{}", static_cast<float>(value));  // narrower formats are exact in f32
  }
}

uint64_t read_bits(const std::byte* data, int64_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, data, static_cast<size_t>(bytes));
  return bits;
}

int64_t sign_extend(uint64_t bits, int64_t bytes) {
  const int shift = 64 - static_cast<int>(8 * bytes);
  return static_cast<int64_t>(bits << shift) >> shift;
}

void append_element(std::string& out, DType dtype, const std::byte* data) {
  const int64_t bytes = dtype_bytes(dtype);
  if (is_complex(dtype)) {
    const DType part = complex_part(dtype);
    out += '(';
    append_float(out, part, read_bits(data, bytes / 2));
    out += ", ";
    append_float(out, part, read_bits(data + bytes / 2, bytes / 2));
    out += ')';
  } else if (dtype == DType::kI1) {
    out += data[0] == std::byte{0} ? "false" : "true";
  } else if (is_float(dtype)) {
    append_float(out, dtype, read_bits(data, bytes));
  } else if (is_unsigned_integer(dtype)) {
    append(out, "{}", read_bits(data, bytes));
  } else {
    append(out, "{}", sign_extend(read_bits(data, bytes), bytes));
  }
}

void append_integers(std::string& out, const std::vector<int64_t>& values, size_t max) {
  out += '[';
  for (size_t i = 0; i < std::min(values.size(), max); ++i) {
    append(out, "{}{}", i > 0 ? ", " : "", values[i]);
  }
  if (values.size() > max) append(out, ", ... {} in all", values.size());
  out += ']';
}

class Dumper {
 public:
  explicit Dumper(const DumpOptions& options) : options_(options) {}

  std::string take() { return std::move(out_); }

  void attribute(const Attribute& value) {
    std::visit([this](const auto& content) { print(content); }, value.content());
  }

  template <typename Entries>
  void entries(const Entries& list) {
    out_ += '{';
    bool is_first = true;
    for (const auto& [name, value] : list) {
      append(out_, "{}{} = ", is_first ? "" : ", ", name);
      attribute(value);
      is_first = false;
    }
    out_ += '}';
  }

  void function(const Function& function) {
    numbers_.clear();
    static constexpr std::string_view kVisibility[] = {"", "public ", "private ", "nested "};
    append(out_, "func {}@{}(", kVisibility[static_cast<size_t>(function.visibility)],
           function.name());
    const std::vector<Type>& inputs = function.type.elements();
    for (size_t i = 0; i < inputs.size(); ++i) {
      append(out_, "{}", i > 0 ? ", " : "");
      const bool has_argument =
          !function.is_declaration() && i < function.body().front().argument_count();
      if (has_argument) append(out_, "%{}: ", number(function.body().front().argument(i)));
      out_ += inputs[i].to_string();
      optional_entries(function.argument_attributes, i);
    }
    out_ += ") -> (";
    const std::vector<Type>& results = function.type.results();
    for (size_t i = 0; i < results.size(); ++i) {
      append(out_, "{}{}", i > 0 ? ", " : "", results[i].to_string());
      optional_entries(function.result_attributes, i);
    }
    out_ += ')';
    if (!function.attributes.empty()) {
      out_ += " attributes ";
      entries(function.attributes);
    }
    location(function.location);
    out_ += '\n';
    for (size_t i = 0; i < function.body().blocks().size(); ++i) {
      if (i > 0) append(out_, "  block {}\n", i);
      operations(*function.body().blocks()[i], 1);
    }
  }

  void module(const Module& module) {
    append(out_, "module @{}", module.name);
    if (!module.attributes.empty()) {
      out_ += " attributes ";
      entries(module.attributes);
    }
    out_ += '\n';
    for (const Mesh& mesh : module.meshes) {
      append(out_, "mesh @{} [", mesh.name);
      for (size_t i = 0; i < mesh.value.axes.size(); ++i) {
        out_ += i > 0 ? ", " : "";
        append_quoted(out_, mesh.value.axes[i].name);
        append(out_, "={}", mesh.value.axes[i].size);
      }
      out_ += ']';
      if (!mesh.value.device_ids.empty()) {
        out_ += " devices ";
        append_integers(out_, mesh.value.device_ids, options_.max_elements);
      }
      if (!mesh.attributes.empty()) {
        out_ += ' ';
        entries(mesh.attributes);
      }
      out_ += '\n';
    }
    for (const auto& each : module.functions) function(*each);
  }

 private:
  void optional_entries(const std::vector<AttributeMap>& maps, size_t i) {
    if (i >= maps.size() || maps[i].empty()) return;
    out_ += ' ';
    entries(maps[i]);
  }

  void location(const LocationRef& location) {
    if (options_.with_locations && location != nullptr) {
      append(out_, "  at {}", location_string(location));
    }
  }

  // A value that is used before its definition is printed gets its number at the first use.
  size_t number(const Value* value) {
    return numbers_.try_emplace(value, numbers_.size()).first->second;
  }

  void value(const Value* value) {
    if (value == nullptr) {
      out_ += "%null";
    } else {
      append(out_, "%{}", number(value));
    }
  }

  void operations(const Block& block, int depth) {
    for (const auto& op : block.operations()) operation(*op, depth);
  }

  void operation(const Operation& op, int depth) {
    out_.append(static_cast<size_t>(depth) * 2, ' ');
    for (size_t i = 0; i < op.result_count(); ++i) {
      out_ += i > 0 ? ", " : "";
      value(op.result(i));
    }
    append(out_, "{}{}", op.result_count() > 0 ? " = " : "", op.name());
    for (size_t i = 0; i < op.operand_count(); ++i) {
      out_ += i > 0 ? ", " : " ";
      value(op.operand(i));
    }
    if (!op.attributes().empty()) {
      out_ += ' ';
      entries(op.attributes());
    }
    if (op.operand_count() + op.result_count() > 0) {
      std::vector<Type> operand_types;
      for (const Value* operand : op.operands()) {
        operand_types.push_back(operand == nullptr ? Type() : operand->type());
      }
      append(out_, " : ({}) -> ({})", types_string(operand_types), types_string(op.result_types()));
    }
    location(op.location());
    out_ += '\n';
    for (size_t r = 0; r < op.region_count(); ++r) {
      for (size_t b = 0; b < op.region(r).blocks().size(); ++b) {
        const Block& block = *op.region(r).blocks()[b];
        out_.append(static_cast<size_t>(depth) * 2 + 2, ' ');
        append(out_, "region {}{}", r, b > 0 ? fmt::format(" block {}", b) : "");
        for (size_t i = 0; i < block.argument_count(); ++i) {
          out_ += i > 0 ? ", " : " (";
          value(block.argument(i));
          append(out_, ": {}", block.argument(i)->type().to_string());
        }
        out_ += block.argument_count() > 0 ? ")\n" : "\n";
        operations(block, depth + 2);
      }
    }
  }

  void print(const std::monostate&) { out_ += "absent"; }
  void print(const UnitValue&) { out_ += "unit"; }
  void print(const BoolValue& v) { out_ += v.value ? "true" : "false"; }
  void print(const IntegerValue& v) {
    if (v.type.is_scalar() && is_unsigned_integer(v.type.dtype())) {
      append(out_, "{}", static_cast<uint64_t>(v.value));
    } else {
      append(out_, "{}", v.value);
    }
    append(out_, " : {}", v.type.to_string());
  }
  void print(const FloatValue& v) {
    if (v.type.is_scalar() && is_float(v.type.dtype())) {
      append_float(out_, v.type.dtype(), v.bits);
    } else {
      append(out_, "0x{:X}", v.bits);
    }
    append(out_, " : {}", v.type.to_string());
  }
  void print(const StringValue& v) { append_quoted(out_, v.value); }
  void print(const ArrayValue& v) {
    out_ += '[';
    for (size_t i = 0; i < v.elements.size(); ++i) {
      out_ += i > 0 ? ", " : "";
      attribute(v.elements[i]);
    }
    out_ += ']';
  }
  void print(const DictionaryValue& v) { entries(v.entries); }
  void print(const TypeValue& v) { out_ += v.type.to_string(); }
  void print(const EnumValue& v) { append(out_, "{} {}", v.kind, v.value); }
  void print(const DenseValue& v) {
    const DType dtype = v.values.dtype();
    const int64_t bytes = dtype_bytes(dtype);
    const int64_t shown =
        std::min<int64_t>(v.values.size(), static_cast<int64_t>(options_.max_elements));
    out_ += v.is_splat ? "splat<" : "dense<";
    for (int64_t i = 0; i < shown; ++i) {
      out_ += i > 0 ? ", " : "";
      append_element(out_, dtype, v.values.data() + i * bytes);
    }
    if (shown < v.values.size()) append(out_, ", ... {} in all", v.values.size());
    append(out_, "> : {}", v.type.to_string());
  }
  void print(const IntArrayValue& v) {
    append(out_, "{}", dtype_name(v.dtype));
    append_integers(out_, v.values, options_.max_elements);
  }
  void print(const SymbolValue& v) {
    append(out_, "@{}", v.root);
    for (const std::string& part : v.nested) append(out_, "::@{}", part);
  }
  void field(std::string_view name, int64_t value) { append(out_, "{} {} ", name, value); }
  void field(std::string_view name, const std::vector<int64_t>& values) {
    append(out_, "{} ", name);
    append_integers(out_, values, values.size());
    out_ += ' ';
  }
  // Ends a list of fields, each of which left a blank behind it.
  void end_fields() { out_.back() = '>'; }
  void print(const ConvDimensionNumbers& v) {
    out_ += "conv<";
    field("input_batch", v.input_batch_dimension);
    field("input_feature", v.input_feature_dimension);
    field("input_spatial", v.input_spatial_dimensions);
    field("kernel_input_feature", v.kernel_input_feature_dimension);
    field("kernel_output_feature", v.kernel_output_feature_dimension);
    field("kernel_spatial", v.kernel_spatial_dimensions);
    field("output_batch", v.output_batch_dimension);
    field("output_feature", v.output_feature_dimension);
    field("output_spatial", v.output_spatial_dimensions);
    end_fields();
  }
  void print(const DotDimensionNumbers& v) {
    out_ += "dot<";
    field("lhs_batching", v.lhs_batching_dimensions);
    field("rhs_batching", v.rhs_batching_dimensions);
    field("lhs_contracting", v.lhs_contracting_dimensions);
    field("rhs_contracting", v.rhs_contracting_dimensions);
    end_fields();
  }
  void print(const DotAlgorithm& v) {
    append(out_, "dot_algorithm<lhs {} rhs {} accumulation {} ", v.lhs_precision_type.to_string(),
           v.rhs_precision_type.to_string(), v.accumulation_type.to_string());
    field("lhs_components", v.lhs_component_count);
    field("rhs_components", v.rhs_component_count);
    field("primitive_operations", v.num_primitive_operations);
    field("imprecise", static_cast<int64_t>(v.allow_imprecise_accumulation));
    end_fields();
  }
  void print(const GatherDimensionNumbers& v) {
    out_ += "gather<";
    field("offset", v.offset_dims);
    field("collapsed", v.collapsed_slice_dims);
    field("operand_batching", v.operand_batching_dims);
    field("start_indices_batching", v.start_indices_batching_dims);
    field("start_index_map", v.start_index_map);
    field("index_vector_dim", v.index_vector_dim);
    end_fields();
  }
  void print(const ScatterDimensionNumbers& v) {
    out_ += "scatter<";
    field("update_window", v.update_window_dims);
    field("inserted_window", v.inserted_window_dims);
    field("input_batching", v.input_batching_dims);
    field("scatter_indices_batching", v.scatter_indices_batching_dims);
    field("scatter_dims_to_operand_dims", v.scatter_dims_to_operand_dims);
    field("index_vector_dim", v.index_vector_dim);
    end_fields();
  }
  void print(const ChannelHandle& v) {
    append(out_, "channel<handle {} type {}>", v.handle, v.type);
  }
  void print(const OutputOperandAlias& v) {
    out_ += "alias<";
    field("output", v.output_tuple_indices);
    field("operand", v.operand_index);
    field("operand_tuple", v.operand_tuple_indices);
    end_fields();
  }
  void print(const ResultAccuracy& v) {
    append(out_, "accuracy<atol {} rtol {} ulps {} mode {}>", v.atol, v.rtol, v.ulps, v.mode);
  }
  void print(const ShardingValue& v) { out_ += sharding::attribute_text(v.value); }
  void print(const MeshAxesValue& v) { out_ += sharding::to_text(v.value); }
  void print(const OpaqueValue& v) { out_ += v.text; }

  const DumpOptions& options_;
  std::string out_;
  std::unordered_map<const Value*, size_t> numbers_;  // of the function at hand
};

}  // namespace

std::string dump(const Module& module, const DumpOptions& options) {
  Dumper dumper(options);
  dumper.module(module);
  return dumper.take();
}

std::string dump(const Function& function, const DumpOptions& options) {
  Dumper dumper(options);
  dumper.function(function);
  return dumper.take();
}

std::string dump(const Attribute& attribute, const DumpOptions& options) {
  Dumper dumper(options);
  dumper.attribute(attribute);
  return dumper.take();
}

std::string dump(const AttributeMap& attributes, const DumpOptions& options) {
  Dumper dumper(options);
  dumper.entries(attributes);
  return dumper.take();
}

}  // namespace hekla::ir
