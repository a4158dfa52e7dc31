// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"

#include <algorithm>
#include <charconv>

#include "runtime/program/stablehlo/bytecode/attribute_conversion.h"
#include "runtime/program/stablehlo/bytecode/op_properties.h"

namespace hekla::stablehlo {
namespace {

using ir::Attribute;
using ir::AttributeMap;
using ir::OpCode;

// "vhlo.add_v1" -> "add"; names of other dialects stay.
std::string_view bare_name(std::string_view name) {
  if (!name.starts_with("vhlo.")) return name;
  name.remove_prefix(5);
  const size_t version = name.rfind("_v");
  return version == std::string_view::npos ? name : name.substr(0, version);
}

class Converter {
 public:
  Converter(const RawModule& raw, std::shared_ptr<const void> owner)
      : raw_(raw), attributes_(*raw.table, std::move(owner)) {}

  Result<std::unique_ptr<ir::Module>> run() {
    values_.resize(raw_.value_count);
    HEKLA_ASSIGN_OR_RETURN(AttributeMap attributes, convert_named(raw_.module.attributes));
    HEKLA_ASSIGN_OR_RETURN(AttributeMap properties, convert_named(raw_.module.properties));
    for (const auto* map : {&attributes, &properties}) {
      if (const auto* name = map->get("sym_name").get<ir::StringValue>()) {
        module_->name = name->value;
      }
    }
    attributes.erase("sym_name");
    attributes.erase("sym_visibility");
    module_->attributes = std::move(attributes);
    for (const RawRegion& region : raw_.module.regions) {
      for (const RawBlock& block : region.blocks) {
        for (const RawOp& op : block.operations) HEKLA_RETURN_IF_ERROR(convert_top(op));
      }
    }
    return std::move(module_);
  }

 private:
  Status error(const RawOp& op, std::string_view message) const {
    return invalid_argument("bytecode: {} at {}: {}", op.name,
                            ir::location_string(raw_.table->location(op.location)), message);
  }

  Result<AttributeMap> convert_named(const std::vector<RawNamed>& named) {
    std::vector<ir::NamedAttribute> entries;
    for (const auto& [name, index] : named) {
      HEKLA_ASSIGN_OR_RETURN(Attribute attribute, attributes_.convert(name, index));
      entries.emplace_back(name, std::move(attribute));
    }
    return AttributeMap(std::move(entries));
  }

  Status convert_top(const RawOp& op) {
    const std::string_view name = bare_name(op.name);
    if (op.name == "sdy.mesh") return convert_mesh(op);
    if (name == "func" || op.name == "func.func") return convert_function(op);
    return error(op, "only functions and meshes may stand in a module");
  }

  Status convert_mesh(const RawOp& op) {
    ir::Mesh mesh;
    HEKLA_ASSIGN_OR_RETURN(AttributeMap properties, convert_named(op.properties));
    HEKLA_ASSIGN_OR_RETURN(mesh.attributes, convert_named(op.attributes));
    const auto* name = properties.get("sym_name").get<ir::StringValue>();
    const auto* attribute = properties.get("mesh").get<ir::ShardingValue>();
    const auto* value =
        attribute != nullptr ? std::get_if<sharding::Mesh>(&attribute->value) : nullptr;
    if (name == nullptr || value == nullptr) return error(op, "has no name or no axes");
    mesh.name = name->value;
    mesh.value = *value;
    module_->meshes.push_back(std::move(mesh));
    return ok_status();
  }

  Result<std::vector<AttributeMap>> attribute_maps(const RawOp& op, std::string_view property,
                                                   size_t count) {
    std::vector<AttributeMap> maps(count);
    const int64_t index = op.find(property);
    if (index < 0) return maps;
    HEKLA_ASSIGN_OR_RETURN(Attribute attribute, attributes_.convert(static_cast<uint32_t>(index)));
    const auto* array = attribute.get<ir::ArrayValue>();
    if (array == nullptr || (!array->elements.empty() && array->elements.size() != count)) {
      return error(op, fmt::format("{} must have one dictionary for each of {}", property, count));
    }
    for (size_t i = 0; i < array->elements.size(); ++i) {
      const auto* dictionary = array->elements[i].get<ir::DictionaryValue>();
      if (dictionary == nullptr) return error(op, "argument attributes must be dictionaries");
      maps[i] = AttributeMap(dictionary->entries);
    }
    return maps;
  }

  Status convert_function(const RawOp& op) {
    const auto string = [&](std::string_view property) -> Result<std::string> {
      const int64_t index = op.find(property);
      if (index < 0) return std::string();
      HEKLA_ASSIGN_OR_RETURN(Attribute value, attributes_.convert(static_cast<uint32_t>(index)));
      const auto* text = value.get<ir::StringValue>();
      return text == nullptr ? std::string() : text->value;
    };
    HEKLA_ASSIGN_OR_RETURN(std::string name, string("sym_name"));
    HEKLA_ASSIGN_OR_RETURN(std::string visibility, string("sym_visibility"));
    auto function = std::make_unique<ir::Function>(name);
    if (visibility == "public") function->visibility = ir::Function::Visibility::kPublic;
    if (visibility == "private") function->visibility = ir::Function::Visibility::kPrivate;
    if (visibility == "nested") function->visibility = ir::Function::Visibility::kNested;
    const int64_t type_index = op.find("function_type");
    if (type_index < 0) return error(op, "has no type");
    HEKLA_ASSIGN_OR_RETURN(Attribute type, attributes_.convert(static_cast<uint32_t>(type_index)));
    const auto* type_value = type.get<ir::TypeValue>();
    if (type_value == nullptr || type_value->type.kind() != ir::Type::Kind::kFunction) {
      return error(op, "has no function type");
    }
    function->type = type_value->type;
    HEKLA_ASSIGN_OR_RETURN(function->argument_attributes,
                           attribute_maps(op, "arg_attrs", function->type.elements().size()));
    HEKLA_ASSIGN_OR_RETURN(function->result_attributes,
                           attribute_maps(op, "res_attrs", function->type.results().size()));
    HEKLA_ASSIGN_OR_RETURN(function->attributes, convert_named(op.attributes));
    function->location = raw_.table->location(op.location);
    if (op.regions.size() != 1) return error(op, "must have one region");
    if (!op.regions[0].blocks.empty()) {
      HEKLA_RETURN_IF_ERROR(convert_region(op.regions[0], function->body(), /*in_function=*/true));
    }
    module_->functions.push_back(std::move(function));
    return ok_status();
  }

  Status convert_region(const RawRegion& raw, ir::Region& region, bool in_function) {
    for (const RawBlock& raw_block : raw.blocks) {
      ir::Block& block = region.add_block();
      for (const auto& [number, type] : raw_block.arguments) {
        values_[number] = block.add_argument(type);
      }
      for (const RawOp& op : raw_block.operations) {
        HEKLA_RETURN_IF_ERROR(convert_operation(op, block, in_function));
      }
    }
    return ok_status();
  }

  static OpCode code_of(const RawOp& op, std::string_view name, bool in_function) {
    if (name == "return") return in_function ? OpCode::kFuncReturn : OpCode::kReturn;
    if (name == "call") return OpCode::kFuncCall;
    // "stablehlo.add" of native files, "sdy.return" and "func.call" are found as they are.
    const bool is_vhlo = op.name.starts_with("vhlo.");
    const auto code =
        ir::op_code_from_name(is_vhlo ? fmt::format("stablehlo.{}", name) : std::string(name));
    return code.value_or(OpCode::kUnknown);
  }

  Status convert_operation(const RawOp& op, ir::Block& block, bool in_function) {
    std::vector<ir::Value*> operands;
    for (uint32_t number : op.operands) {
      if (values_[number] == nullptr) {
        return error(op, "an operand is used before its definition");
      }
      operands.push_back(values_[number]);
    }
    if (op.has_successors) return error(op, "branches between blocks are not part of StableHLO");
    if (op.name == "builtin.unrealized_conversion_cast") return fold_cast(op, operands);

    const std::string_view name = bare_name(op.name);
    // A version that we do not know may mean something else than the ones that we do.
    const bool is_known = !op.name.starts_with("vhlo.") || !op_properties(op.name).empty();
    const OpCode code = is_known ? code_of(op, name, in_function) : OpCode::kUnknown;
    std::vector<ir::Type> types;
    for (const auto& result : op.results) types.push_back(result.second);
    HEKLA_ASSIGN_OR_RETURN(AttributeMap attributes, convert_named(op.attributes));
    HEKLA_RETURN_IF_ERROR(convert_properties(op, code, attributes));
    ir::LocationRef location = raw_.table->location(op.location);
    ir::Operation* converted = nullptr;
    if (code == OpCode::kUnknown) {
      converted =
          block.append(ir::Operation::unknown(op.name, std::move(operands), std::move(types),
                                              std::move(attributes), std::move(location)));
    } else {
      converted = block.append(code, std::move(operands), std::move(types), std::move(attributes),
                               std::move(location));
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      values_[op.results[i].first] = converted->result(i);
    }
    for (const RawRegion& region : op.regions) {
      HEKLA_RETURN_IF_ERROR(convert_region(region, converted->add_region(), false));
    }
    return ok_status();
  }

  Status fold_cast(const RawOp& op, const std::vector<ir::Value*>& operands) {
    if (operands.size() != op.results.size()) return error(op, "casts n values to n values");
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto& [number, type] = op.results[i];
      if (!(operands[i]->type() == type)) {
        return error(
            op, fmt::format("turns {} into {}", operands[i]->type().to_string(), type.to_string()));
      }
      values_[number] = operands[i];
    }
    return ok_status();
  }

  Status convert_properties(const RawOp& op, OpCode code, AttributeMap& out) {
    AttributeMap properties;
    for (const auto& [name, index] : op.properties) {
      const bool is_data = code == OpCode::kConstant && name == "value";
      Result<Attribute> attribute =
          is_data ? attributes_.convert_dense(index) : attributes_.convert(index);
      if (!attribute.ok()) return attribute.status().with_context(op.name);
      properties.set(name, *std::move(attribute));
    }
    HEKLA_RETURN_IF_ERROR(regroup(op, code, properties));
    drop_unset_layouts(code, properties);
    for (const auto& [name, attribute] : properties) {
      if (!ir::is_default_attribute(code, name, attribute)) out.set(name, attribute);
    }
    return ok_status();
  }

  // The two layout lists count as set as soon as one of them has entries.
  static void drop_unset_layouts(OpCode code, AttributeMap& properties) {
    if (code != OpCode::kCustomCall) return;
    for (std::string_view name : {"operand_layouts", "result_layouts"}) {
      const auto* array = properties.get(name).get<ir::ArrayValue>();
      if (array != nullptr && !array->elements.empty()) return;
    }
    properties.erase("operand_layouts");
    properties.erase("result_layouts");
  }

  static std::vector<int64_t> take_list(AttributeMap& map, std::string_view name) {
    const auto* list = map.get(name).get<ir::IntArrayValue>();
    std::vector<int64_t> values = list == nullptr ? std::vector<int64_t>() : list->values;
    map.erase(name);
    return values;
  }

  static int64_t take_integer(AttributeMap& map, std::string_view name) {
    const auto* integer = map.get(name).get<ir::IntegerValue>();
    const int64_t value = integer == nullptr ? 0 : integer->value;
    map.erase(name);
    return value;
  }

  static void string_to_symbol(AttributeMap& map, std::string_view name) {
    if (const auto* text = map.get(name).get<ir::StringValue>()) {
      map.set(name, ir::SymbolValue{text->value, {}});
    }
  }

  Status names_to_symbols(const RawOp& op, OpCode code, AttributeMap& map) const {
    if (code == OpCode::kFuncCall) string_to_symbol(map, "callee");
    if (code == OpCode::kComposite) string_to_symbol(map, "decomposition");
    if (code != OpCode::kCustomCall) return ok_status();
    const Attribute names = map.get("called_computations");
    const auto* called = names.get<ir::ArrayValue>();
    if (called == nullptr) return ok_status();
    ir::ArrayValue symbols;
    for (const Attribute& name : called->elements) {
      const auto* text = name.get<ir::StringValue>();
      if (text == nullptr) return error(op, "called_computations must be names");
      symbols.elements.push_back(ir::SymbolValue{text->value, {}});
    }
    map.set("called_computations", std::move(symbols));
    return ok_status();
  }

  Status regroup(const RawOp& op, OpCode code, AttributeMap& map) {
    HEKLA_RETURN_IF_ERROR(names_to_symbols(op, code, map));
    if (!op.name.starts_with("vhlo.")) return native_forms(op, code, map);
    switch (code) {
      case OpCode::kDynamicConv:
        if (op.name == "vhlo.dynamic_conv_v1") map.erase("padding");
        [[fallthrough]];
      case OpCode::kConvolution: {
        ir::ConvDimensionNumbers n;
        n.input_batch_dimension = take_integer(map, "input_batch_dimension");
        n.input_feature_dimension = take_integer(map, "input_feature_dimension");
        n.input_spatial_dimensions = take_list(map, "input_spatial_dimensions");
        n.kernel_input_feature_dimension = take_integer(map, "kernel_input_feature_dimension");
        n.kernel_output_feature_dimension = take_integer(map, "kernel_output_feature_dimension");
        n.kernel_spatial_dimensions = take_list(map, "kernel_spatial_dimensions");
        n.output_batch_dimension = take_integer(map, "output_batch_dimension");
        n.output_feature_dimension = take_integer(map, "output_feature_dimension");
        n.output_spatial_dimensions = take_list(map, "output_spatial_dimensions");
        map.set("dimension_numbers", std::move(n));
        return ok_status();
      }
      case OpCode::kDotGeneral: {
        ir::DotDimensionNumbers n;
        n.lhs_batching_dimensions = take_list(map, "lhs_batching_dimensions");
        n.rhs_batching_dimensions = take_list(map, "rhs_batching_dimensions");
        n.lhs_contracting_dimensions = take_list(map, "lhs_contracting_dimensions");
        n.rhs_contracting_dimensions = take_list(map, "rhs_contracting_dimensions");
        map.set("dot_dimension_numbers", std::move(n));
        return regroup_algorithm(map);
      }
      case OpCode::kGather:
      case OpCode::kDynamicGather: {
        ir::GatherDimensionNumbers n;
        n.offset_dims = take_list(map, "offset_dims");
        n.collapsed_slice_dims = take_list(map, "collapsed_slice_dims");
        n.operand_batching_dims = take_list(map, "operand_batching_dims");
        n.start_indices_batching_dims = take_list(map, "start_indices_batching_dims");
        n.start_index_map = take_list(map, "start_index_map");
        n.index_vector_dim = take_integer(map, "index_vector_dim");
        map.set("dimension_numbers", std::move(n));
        return ok_status();
      }
      case OpCode::kScatter: {
        ir::ScatterDimensionNumbers n;
        n.update_window_dims = take_list(map, "update_window_dims");
        n.inserted_window_dims = take_list(map, "inserted_window_dims");
        n.input_batching_dims = take_list(map, "input_batching_dims");
        n.scatter_indices_batching_dims = take_list(map, "scatter_indices_batching_dims");
        n.scatter_dims_to_operand_dims = take_list(map, "scatter_dims_to_operand_dims");
        n.index_vector_dim = take_integer(map, "index_vector_dim");
        map.set("scatter_dimension_numbers", std::move(n));
        return ok_status();
      }
      case OpCode::kSend:
      case OpCode::kRecv: {
        const int64_t handle = take_integer(map, "channel_id");
        map.set("channel_handle", ir::ChannelHandle{handle, take_integer(map, "channel_type")});
        return ok_status();
      }
      case OpCode::kAllGather:
      case OpCode::kAllReduce:
      case OpCode::kAllToAll:
      case OpCode::kCollectiveBroadcast:
      case OpCode::kCollectivePermute:
      case OpCode::kCollectiveReduce:
      case OpCode::kReduceScatter:
        map.set("channel_handle", ir::ChannelHandle{take_integer(map, "channel_id"), 0});
        return ok_status();
      default:
        return ok_status();
    }
  }

  // Native StableHLO has the regrouped form already, but flags as unit attributes and the version
  // of custom calls as a number.
  Status native_forms(const RawOp& op, OpCode code, AttributeMap& map) const {
    for (std::string_view name : {"use_global_device_ids", "has_dynamic_root"}) {
      if (map.get(name).get<ir::UnitValue>() != nullptr) map.set(name, ir::BoolValue{true});
    }
    if (code != OpCode::kSend && code != OpCode::kRecv) {
      if (const auto* channel = map.get("channel_handle").get<ir::ChannelHandle>()) {
        map.set("channel_handle", ir::ChannelHandle{channel->handle, 0});
      }
    }
    if (code != OpCode::kCustomCall) return ok_status();
    if (const auto* version = map.get("api_version").get<ir::IntegerValue>()) {
      constexpr std::string_view kVersions[] = {
          "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
          "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
      if (version->value < 0 || version->value >= static_cast<int64_t>(std::size(kVersions))) {
        return error(op, fmt::format("there is no API version {}", version->value));
      }
      map.set("api_version", ir::enum_attribute("custom_call_api_version",
                                                kVersions[static_cast<size_t>(version->value)]));
    }
    return ok_status();
  }

  // Seven fields, all of type none when there is no algorithm.
  static Status regroup_algorithm(AttributeMap& map) {
    const auto take_type = [&](std::string_view name) {
      const auto* value = map.get(name).get<ir::TypeValue>();
      ir::Type type = value == nullptr ? ir::Type() : value->type;
      map.erase(name);
      return type;
    };
    ir::DotAlgorithm algorithm;
    const bool is_set = map.get("lhs_component_count").get<ir::IntegerValue>() != nullptr;
    algorithm.lhs_precision_type = take_type("lhs_precision_type");
    algorithm.rhs_precision_type = take_type("rhs_precision_type");
    algorithm.accumulation_type = take_type("accumulation_type");
    const auto* allow = map.get("allow_imprecise_accumulation").get<ir::BoolValue>();
    algorithm.allow_imprecise_accumulation = allow != nullptr && allow->value;
    map.erase("allow_imprecise_accumulation");
    algorithm.lhs_component_count = take_integer(map, "lhs_component_count");
    algorithm.rhs_component_count = take_integer(map, "rhs_component_count");
    algorithm.num_primitive_operations = take_integer(map, "num_primitive_operations");
    if (is_set) map.set("algorithm", std::move(algorithm));
    return ok_status();
  }

  const RawModule& raw_;
  AttributeConverter attributes_;
  std::unique_ptr<ir::Module> module_ = std::make_unique<ir::Module>();
  std::vector<ir::Value*> values_;  // by number
};

}  // namespace

Result<std::unique_ptr<ir::Module>> vhlo_to_ir(const RawModule& raw,
                                               std::shared_ptr<const void> owner) {
  return Converter(raw, std::move(owner)).run();
}

}  // namespace hekla::stablehlo
