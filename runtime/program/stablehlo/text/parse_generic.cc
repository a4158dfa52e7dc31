// SPDX-License-Identifier: Apache-2.0
// Modules, functions and meshes in the generic form, as tools print them that know no pretty form.
#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {
namespace {

const std::string* string_of(const ir::Attribute& attribute) {
  const auto* text = attribute.get<ir::StringValue>();
  return text == nullptr ? nullptr : &text->value;
}

}  // namespace

// Behind the name: () <{properties}> ({region}) {attributes} : () -> (). Both dictionaries as one;
// the region is passed over and its place given, 0 where there is none.
Result<ir::AttributeMap> Parser::parse_generic_parts(size_t& region) {
  region = 0;
  std::vector<ir::NamedAttribute> entries;
  HEKLA_RETURN_IF_ERROR(scan_.expect("("));
  HEKLA_RETURN_IF_ERROR(scan_.expect(")"));
  if (scan_.accept('<')) {
    HEKLA_ASSIGN_OR_RETURN(entries, parse_dictionary(0));
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  }
  if (scan_.accept('(')) {
    scan_.peek();
    region = scan_.position();
    if (scan_.raw() != '{') return scan_.error("a region");
    HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  }
  if (scan_.peek() == '{') {
    HEKLA_ASSIGN_OR_RETURN(auto more, parse_dictionary(0));
    for (auto& entry : more) entries.push_back(std::move(entry));
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_function_type(0));
  if (!type.elements().empty() || !type.results().empty())
    return scan_.error("() -> () before this");
  return ir::AttributeMap(std::move(entries));
}

Status Parser::parse_generic_module(ir::Module& module) {
  size_t region = 0;
  HEKLA_ASSIGN_OR_RETURN(module.attributes, parse_generic_parts(region));
  if (const std::string* name = string_of(module.attributes.get("sym_name"))) module.name = *name;
  module.attributes.erase("sym_name");
  module.attributes.erase("sym_visibility");
  if (region == 0) return scan_.error("a module's region before this");
  const size_t back = scan_.position();
  scan_.set_position(region);
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  if (scan_.accept('^')) {
    scan_.suffix_name();
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  }
  while (!scan_.accept('}')) HEKLA_RETURN_IF_ERROR(parse_top(module));
  scan_.set_position(back);
  return ok_status();
}

Status Parser::parse_generic_mesh(ir::Module& module) {
  const size_t start = scan_.position();
  size_t region = 0;
  ir::Mesh mesh;
  HEKLA_ASSIGN_OR_RETURN(mesh.attributes, parse_generic_parts(region));
  const std::string* name = string_of(mesh.attributes.get("sym_name"));
  const auto* attribute = mesh.attributes.get("mesh").get<ir::ShardingValue>();
  const auto* value =
      attribute != nullptr ? std::get_if<sharding::Mesh>(&attribute->value) : nullptr;
  if (name == nullptr || value == nullptr) {
    return scan_.error_at(start, "a mesh needs sym_name = \"...\" and mesh = #sdy.mesh<...>");
  }
  mesh.name = *name;
  mesh.value = *value;
  mesh.attributes.erase("sym_name");
  mesh.attributes.erase("mesh");
  module.meshes.push_back(std::move(mesh));
  return parse_optional_location().status();
}

Status Parser::parse_generic_function(ir::Module& module) {
  const size_t start = scan_.position();
  size_t region = 0;
  HEKLA_ASSIGN_OR_RETURN(ir::AttributeMap attributes, parse_generic_parts(region));
  const std::string* name = string_of(attributes.get("sym_name"));
  const auto* type = attributes.get("function_type").get<ir::TypeValue>();
  if (name == nullptr || type == nullptr || type->type.kind() != ir::Type::Kind::kFunction ||
      region == 0) {
    return scan_.error_at(start, "a function needs sym_name, function_type and a region");
  }
  auto function = std::make_unique<ir::Function>(*name);
  function->type = type->type;
  using Visibility = ir::Function::Visibility;
  if (const std::string* visibility = string_of(attributes.get("sym_visibility"))) {
    if (*visibility == "public") function->visibility = Visibility::kPublic;
    if (*visibility == "private") function->visibility = Visibility::kPrivate;
    if (*visibility == "nested") function->visibility = Visibility::kNested;
    if (function->visibility == Visibility::kUnset) {
      return scan_.error_at(start, fmt::format("'{}' is no visibility", *visibility));
    }
  }
  const auto read_maps = [&](std::string_view key, size_t count,
                             std::vector<ir::AttributeMap>& maps) -> Status {
    maps.resize(count);
    const ir::Attribute& given = attributes.get(key);
    if (given.is_absent()) return ok_status();
    const auto* list = given.get<ir::ArrayValue>();
    if (list == nullptr || list->elements.size() != count) {
      return scan_.error_at(start, fmt::format("{} needs {} dictionaries", key, count));
    }
    for (size_t i = 0; i < count; ++i) {
      const auto* entries = list->elements[i].get<ir::DictionaryValue>();
      if (entries == nullptr) {
        return scan_.error_at(start, fmt::format("{} needs {} dictionaries", key, count));
      }
      maps[i] = ir::AttributeMap(entries->entries);
    }
    return ok_status();
  };
  HEKLA_RETURN_IF_ERROR(
      read_maps("arg_attrs", type->type.elements().size(), function->argument_attributes));
  HEKLA_RETURN_IF_ERROR(
      read_maps("res_attrs", type->type.results().size(), function->result_attributes));
  for (std::string_view key :
       {"sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"}) {
    attributes.erase(key);
  }
  function->attributes = std::move(attributes);
  const size_t back = scan_.position();
  scan_.set_position(region);
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  values_.clear();
  hidden_.clear();
  HEKLA_RETURN_IF_ERROR(parse_blocks(function->body(), nullptr));
  HEKLA_RETURN_IF_ERROR(scan_.expect('}'));
  // The printer writes a function's arguments from its type.
  if (!function->is_declaration() &&
      function->body().front().argument_types() != function->type.elements()) {
    return scan_.error_at(start, fmt::format("the arguments of @{} differ from its type {}",
                                             function->name(), function->type.to_string()));
  }
  scan_.set_position(back);
  HEKLA_ASSIGN_OR_RETURN(function->location, parse_optional_location());
  module.functions.push_back(std::move(function));
  return ok_status();
}

}  // namespace hekla::stablehlo
