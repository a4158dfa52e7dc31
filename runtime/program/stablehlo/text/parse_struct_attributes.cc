// SPDX-License-Identifier: Apache-2.0
// StableHLO's attributes that are structs: dimension numbers, channels, accuracies, algorithms.
#include <algorithm>
#include <bit>

#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {

// The struct attributes; absent (and nothing consumed) for those that stay text.
Result<ir::Attribute> Parser::parse_stablehlo_struct(std::string_view name, int depth) {
  if (name == "conv") return parse_conv_numbers();
  if (name == "dot_algorithm") return parse_algorithm();
  if (name == "result_accuracy_mode") {
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute mode, parse_enum("result_accuracy_mode"));
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return mode;
  }
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
  const bool is_struct = name == "gather" || name == "scatter" || name == "dot" ||
                         name == "channel_handle" || name == "output_operand_alias" ||
                         name == "result_accuracy";
  if (!is_struct) return ir::Attribute();
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  if (name == "gather") {
    ir::GatherDimensionNumbers n;
    HEKLA_RETURN_IF_ERROR(
        parse_fields({{"offset_dims", &n.offset_dims},
                      {"collapsed_slice_dims", &n.collapsed_slice_dims},
                      {"operand_batching_dims", &n.operand_batching_dims},
                      {"start_indices_batching_dims", &n.start_indices_batching_dims},
                      {"start_index_map", &n.start_index_map},
                      {"index_vector_dim", &n.index_vector_dim}}));
    return ir::Attribute(std::move(n));
  }
  if (name == "scatter") {
    ir::ScatterDimensionNumbers n;
    HEKLA_RETURN_IF_ERROR(
        parse_fields({{"update_window_dims", &n.update_window_dims},
                      {"inserted_window_dims", &n.inserted_window_dims},
                      {"input_batching_dims", &n.input_batching_dims},
                      {"scatter_indices_batching_dims", &n.scatter_indices_batching_dims},
                      {"scatter_dims_to_operand_dims", &n.scatter_dims_to_operand_dims},
                      {"index_vector_dim", &n.index_vector_dim}}));
    return ir::Attribute(std::move(n));
  }
  if (name == "dot") {
    ir::DotDimensionNumbers n;
    HEKLA_RETURN_IF_ERROR(
        parse_fields({{"lhs_batching_dimensions", &n.lhs_batching_dimensions},
                      {"rhs_batching_dimensions", &n.rhs_batching_dimensions},
                      {"lhs_contracting_dimensions", &n.lhs_contracting_dimensions},
                      {"rhs_contracting_dimensions", &n.rhs_contracting_dimensions}}));
    return ir::Attribute(std::move(n));
  }
  if (name == "channel_handle") {
    ir::ChannelHandle channel;
    HEKLA_RETURN_IF_ERROR(parse_fields({{"handle", &channel.handle}, {"type", &channel.type}}));
    return ir::Attribute(channel);
  }
  if (name == "output_operand_alias") {
    ir::OutputOperandAlias alias;
    HEKLA_RETURN_IF_ERROR(parse_fields({{"output_tuple_indices", &alias.output_tuple_indices},
                                        {"operand_index", &alias.operand_index},
                                        {"operand_tuple_indices", &alias.operand_tuple_indices}}));
    return ir::Attribute(std::move(alias));
  }
  ir::ResultAccuracy accuracy;
  ir::Attribute mode;
  HEKLA_RETURN_IF_ERROR(parse_fields({{"atol", &accuracy.atol},
                                      {"rtol", &accuracy.rtol},
                                      {"ulps", &accuracy.ulps},
                                      {"mode", &mode}},
                                     depth));
  if (mode.is_absent()) return ir::Attribute(std::move(accuracy));
  const auto* word = mode.get<ir::EnumValue>();
  if (word == nullptr || word->kind != "result_accuracy_mode") {
    return scan_.error("a result_accuracy_mode before this");
  }
  accuracy.mode = word->value;
  return ir::Attribute(std::move(accuracy));
}

Status Parser::parse_fields(std::initializer_list<Field> fields, int depth) {
  std::vector<bool> is_given(fields.size());
  bool is_first = true;
  while (!scan_.accept('>')) {
    if (!is_first) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    is_first = false;
    scan_.peek();
    const size_t start = scan_.position();
    const std::string_view key = scan_.word();
    const auto* field = std::find_if(fields.begin(), fields.end(),
                                     [&](const Field& known) { return known.name == key; });
    if (field == fields.end()) {
      std::string names;
      for (const Field& known : fields) {
        names += (names.empty() ? "" : ", ") + std::string(known.name);
      }
      return scan_.error_at(start, fmt::format("'{}' is none of the fields {}", key, names));
    }
    const auto index = static_cast<size_t>(field - fields.begin());
    if (is_given[index]) return scan_.error_at(start, fmt::format("{} is given twice", key));
    is_given[index] = true;
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    if (auto* const* list = std::get_if<std::vector<int64_t>*>(&field->target)) {
      HEKLA_ASSIGN_OR_RETURN(**list, parse_int_list());
    } else if (auto* const* integer = std::get_if<int64_t*>(&field->target)) {
      HEKLA_ASSIGN_OR_RETURN(**integer, scan_.integer());
    } else if (auto* const* real = std::get_if<double*>(&field->target)) {
      HEKLA_ASSIGN_OR_RETURN(uint64_t bits, parse_scalar_bits(DType::kF64));
      **real = std::bit_cast<double>(bits);
    } else if (auto* const* flag = std::get_if<bool*>(&field->target)) {
      **flag = scan_.accept_word("true");
      if (!**flag && !scan_.accept_word("false")) return scan_.error("true or false");
    } else if (auto* const* type = std::get_if<ir::Type*>(&field->target)) {
      HEKLA_ASSIGN_OR_RETURN(**type, parse_type(depth + 1));
    } else {
      HEKLA_ASSIGN_OR_RETURN(*std::get<ir::Attribute*>(field->target), parse_attribute(depth + 1));
    }
  }
  return ok_status();
}

// Behind "#stablehlo.conv": <[b, 0, f]x[0, i, o]->[b, 0, f]> or <raw key = value, ...>.
Result<ir::Attribute> Parser::parse_conv_numbers() {
  ir::ConvDimensionNumbers n;
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  if (scan_.accept_word("raw")) {
    HEKLA_RETURN_IF_ERROR(
        parse_fields({{"input_batch_dimension", &n.input_batch_dimension},
                      {"input_feature_dimension", &n.input_feature_dimension},
                      {"input_spatial_dimensions", &n.input_spatial_dimensions},
                      {"kernel_input_feature_dimension", &n.kernel_input_feature_dimension},
                      {"kernel_output_feature_dimension", &n.kernel_output_feature_dimension},
                      {"kernel_spatial_dimensions", &n.kernel_spatial_dimensions},
                      {"output_batch_dimension", &n.output_batch_dimension},
                      {"output_feature_dimension", &n.output_feature_dimension},
                      {"output_spatial_dimensions", &n.output_spatial_dimensions}}));
    return ir::Attribute(std::move(n));
  }
  HEKLA_ASSIGN_OR_RETURN(n, parse_conv_lists());
  HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  return ir::Attribute(std::move(n));
}

// [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]: the place in a list is the tensor's dimension.
Result<ir::ConvDimensionNumbers> Parser::parse_conv_lists() {
  ir::ConvDimensionNumbers n;
  const auto parse_list = [&](char first, int64_t& first_dim, char second, int64_t& second_dim,
                              std::vector<int64_t>& spatial) -> Status {
    HEKLA_RETURN_IF_ERROR(scan_.expect('['));
    scan_.peek();
    const size_t start = scan_.position();
    std::vector<std::pair<int64_t, int64_t>> numbered;  // spatial number and dimension
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
        numbered.emplace_back(number, dim);
      }
    }
    spatial.resize(numbered.size(), -1);
    for (const auto& [number, dim] : numbered) {
      const bool fits = number >= 0 && number < static_cast<int64_t>(numbered.size());
      if (!fits || spatial[static_cast<size_t>(number)] >= 0) {
        return scan_.error_at(
            start, fmt::format("the spatial dimensions are not 0 to {}", numbered.size() - 1));
      }
      spatial[static_cast<size_t>(number)] = dim;
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
  HEKLA_RETURN_IF_ERROR(
      parse_fields({{"lhs_precision_type", &a.lhs_precision_type},
                    {"rhs_precision_type", &a.rhs_precision_type},
                    {"accumulation_type", &a.accumulation_type},
                    {"lhs_component_count", &a.lhs_component_count},
                    {"rhs_component_count", &a.rhs_component_count},
                    {"num_primitive_operations", &a.num_primitive_operations},
                    {"allow_imprecise_accumulation", &a.allow_imprecise_accumulation}}));
  return ir::Attribute(std::move(a));
}

}  // namespace hekla::stablehlo
