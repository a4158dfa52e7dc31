// SPDX-License-Identifier: Apache-2.0
// custom-call, and opcodes that this house knows as calls of a name.
#include <numeric>
#include <utility>

#include "runtime/program/hlo/attributes.h"
#include "runtime/program/hlo/converter.h"
#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;

// A layout, the fastest dimension first, as a list of indices.
ir::Attribute layout_list(const Shape& shape) {
  std::vector<int64_t> order = shape.minor_to_major;
  if (order.empty()) {
    order.resize(shape.type.dims().size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
  }
  const Dims dims = {static_cast<int64_t>(order.size())};
  return ir::make_dense(ir::Type::tensor(ir::Type::index(), dims),
                        HostArray::from<int64_t>(DType::kI64, dims, order));
}

ir::Attribute layout_lists(const std::vector<const Shape*>& shapes) {
  ir::ArrayValue lists;
  for (const Shape* shape : shapes) lists.elements.push_back(layout_list(*shape));
  return lists;
}

Status add_layouts(const Site& site, std::vector<ir::NamedAttribute>& attributes) {
  if (!site.fields().flag(kConstrainLayout)) return ok_status();
  std::vector<Shape> given;
  for (std::string_view bytes : site.fields().list(kOperandShapesWithLayout)) {
    HEKLA_ASSIGN_OR_RETURN(Shape shape, read_shape(bytes));
    given.push_back(std::move(shape));
  }
  std::vector<const Shape*> operands;
  for (const Shape& shape : given) {
    const std::vector<const Shape*> parts = leaves(shape);
    operands.insert(operands.end(), parts.begin(), parts.end());
  }
  const std::vector<const Shape*> results = leaves(site.shape());
  const auto are_arrays = [](const std::vector<const Shape*>& shapes) {
    for (const Shape* shape : shapes) {
      if (!shape->is_array()) return false;
    }
    return true;
  };
  if (operands.size() != site.flat().size()) {
    return site.error("has layouts for {} operands of {}", operands.size(), site.flat().size());
  }
  if (!are_arrays(operands) || !are_arrays(results)) return ok_status();
  attributes.emplace_back("operand_layouts", layout_lists(operands));
  attributes.emplace_back("result_layouts", layout_lists(results));
  return ok_status();
}

Status add_configuration(const Site& site, std::vector<ir::NamedAttribute>& attributes) {
  constexpr const char* kVersions[] = {
      "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
      "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
  const int64_t version = site.fields().integer(kCustomCallApiVersion);
  if (version < 0 || version >= static_cast<int64_t>(std::size(kVersions))) {
    return site.error("the API version number {}", version);
  }
  if (version > 0) {
    attributes.emplace_back("api_version",
                            ir::enum_attribute("custom_call_api_version", kVersions[version]));
  }
  const std::string config = site.fields().text(kBackendConfig);
  if (config.empty()) return ok_status();
  // Calls of typed handlers have a dictionary, which HLO keeps as its text.
  Result<ir::Attribute> dictionary =
      config.front() == '{' ? parse_dictionary(config) : Result<ir::Attribute>(ir::Attribute());
  if (version == 4 && !dictionary.ok()) {
    return site.error("{}", dictionary.status().message());
  }
  const bool is_dictionary = dictionary.ok() && !dictionary->is_absent();
  if (is_dictionary && version == 4) {
    attributes.emplace_back("backend_config", *std::move(dictionary));
  } else {
    attributes.emplace_back("backend_config", ir::StringValue{config});
    if (is_dictionary) attributes.emplace_back("mhlo.backend_config", *std::move(dictionary));
  }
  return ok_status();
}

Status add_aliases(const Site& site, std::vector<ir::NamedAttribute>& attributes) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> aliases,
                         site.fields().messages(kOutputOperandAliasing, "an alias"));
  ir::ArrayValue list;
  for (const Message& alias : aliases) {
    ir::OutputOperandAlias one;
    HEKLA_ASSIGN_OR_RETURN(one.output_tuple_indices, alias.integers(1));
    one.operand_index = alias.integer(2);
    HEKLA_ASSIGN_OR_RETURN(one.operand_tuple_indices, alias.integers(3));
    list.elements.push_back(std::move(one));
  }
  attributes.emplace_back("output_operand_aliases", std::move(list));
  return ok_status();
}

Result<Leaves> convert_custom_call(const Site& site) {
  std::vector<ir::NamedAttribute> attributes = {
      {"call_target_name", ir::StringValue{site.fields().text(kCustomCallTarget)}},
      {"has_side_effect", ir::BoolValue{site.fields().flag(kHasSideEffect)}}};
  HEKLA_RETURN_IF_ERROR(add_configuration(site, attributes));
  HEKLA_RETURN_IF_ERROR(add_layouts(site, attributes));
  HEKLA_RETURN_IF_ERROR(add_aliases(site, attributes));
  ir::ArrayValue called;
  for (size_t computation : site.instruction.called) {
    called.elements.push_back(ir::SymbolValue{site.converter.function_name(computation)});
  }
  attributes.emplace_back("called_computations", std::move(called));
  return site.append(OpCode::kCustomCall, site.flat(), std::move(attributes));
}

// A call that stands for an operation of the MHLO dialect: XLA takes it back where it has both
// attributes.
std::vector<ir::NamedAttribute> of_mhlo(const char* name, ir::Attribute attributes) {
  return {{"call_target_name", ir::StringValue{name}},
          {"mhlo.attributes", std::move(attributes)},
          {"mhlo.version", ir::i64_attribute(1)}};
}

// A function of one array that StableHLO has no operation for.
Result<Leaves> named_function(const Site& site, const char* name) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  return site.append(OpCode::kCustomCall, {x}, of_mhlo(name, ir::make_dictionary({})));
}

Result<Leaves> convert_erf(const Site& site) { return named_function(site, "mhlo.erf"); }
Result<Leaves> convert_acos(const Site& site) { return named_function(site, "mhlo.acos"); }
Result<Leaves> convert_acosh(const Site& site) { return named_function(site, "mhlo.acosh"); }
Result<Leaves> convert_asin(const Site& site) { return named_function(site, "mhlo.asin"); }
Result<Leaves> convert_asinh(const Site& site) { return named_function(site, "mhlo.asinh"); }
Result<Leaves> convert_atanh(const Site& site) { return named_function(site, "mhlo.atanh"); }
Result<Leaves> convert_cosh(const Site& site) { return named_function(site, "mhlo.cosh"); }
Result<Leaves> convert_sinh(const Site& site) { return named_function(site, "mhlo.sinh"); }

Result<Leaves> convert_top_k(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  const ir::Attribute config =
      ir::make_dictionary({{"k", ir::i64_attribute(site.fields().integer(kTopKCount))},
                           {"largest", ir::BoolValue{site.fields().flag(kTopKLargest)}}});
  return site.append(OpCode::kCustomCall, {x}, of_mhlo("mhlo.topk", config));
}

constexpr Handler kCustomCalls[] = {
    {"acos", convert_acos},
    {"acosh", convert_acosh},
    {"asin", convert_asin},
    {"asinh", convert_asinh},
    {"atanh", convert_atanh},
    {"cosh", convert_cosh},
    {"custom-call", convert_custom_call},
    {"erf", convert_erf},
    {"sinh", convert_sinh},
    {"topk", convert_top_k},
};

}  // namespace

std::span<const Handler> custom_call_handlers() { return kCustomCalls; }

}  // namespace hekla::hlo
