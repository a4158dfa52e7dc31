// SPDX-License-Identifier: Apache-2.0
// Modules, functions, meshes, locations, aliases.
#include <algorithm>

#include "backends/compiler/stablehlo/text/parser.h"
#include "backends/compiler/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {

Result<std::unique_ptr<ir::Module>> read_text(std::string_view text) { return Parser(text).run(); }

std::vector<std::string_view> split_modules(std::string_view text) {
  constexpr std::string_view kSeparator = "// -----";
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(kSeparator);
    const std::string_view part = text.substr(0, at);
    if (part.find_first_not_of(" \n\t\r") != std::string_view::npos) parts.push_back(part);
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(std::min(text.find('\n', at), text.size()));
  }
}

// Aliases may be used before they are defined, so their places are found first: they stand at the
// start of a line. The resource block at the end is read here too.
void Parser::find_aliases() {
  const std::string_view text = scan_.text();
  for (size_t line = 0; line < text.size();) {
    size_t at = line;
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    if (at < text.size() && (text[at] == '#' || text[at] == '!')) {
      Scanner scan(text);
      scan.set_position(at + 1);
      const std::string_view name = scan.suffix_name();
      if (!name.empty() && scan.peek() == '=' && !scan.peek_text("==")) {
        scan.accept('=');
        scan.peek();
        aliases_.emplace(text.substr(at, name.size() + 1), scan.position());
      }
    }
    const size_t end = text.find('\n', line);
    line = end == std::string_view::npos ? text.size() : end + 1;
  }
  const size_t block = text.find("{-#");
  if (block == std::string_view::npos) return;
  Scanner scan(text);
  scan.set_position(block + 3);
  // dialect: { key: "0x..." } at any depth: every key with a string is a resource.
  while (!scan.at_end() && !scan.peek_text("#-}")) {
    std::string key;
    if (scan.peek() == '"') {
      Result<std::string> quoted = scan.string();
      if (!quoted.ok()) return;
      key = *quoted;
    } else {
      key = std::string(scan.word());
    }
    if (key.empty()) {
      scan.set_position(scan.position() + 1);
      continue;
    }
    if (!scan.accept(':') || scan.peek() != '"') continue;
    const size_t start = scan.position() + 1;
    const size_t end = text.find('"', start);
    if (end == std::string_view::npos) return;
    resources_[key] = text.substr(start, end - start);
    scan.set_position(end + 1);
  }
}

Result<std::unique_ptr<ir::Module>> Parser::run() {
  find_aliases();
  auto module = std::make_unique<ir::Module>();
  bool has_module = false;
  while (!scan_.at_end() && !scan_.peek_text("{-#")) {
    const char c = scan_.peek();
    if (c == '#' || c == '!') {
      // An alias: its value is read where it is used.
      scan_.set_position(scan_.position() + 1);
      scan_.suffix_name();
      HEKLA_RETURN_IF_ERROR(scan_.expect('='));
      if (c == '!') {
        HEKLA_RETURN_IF_ERROR(parse_type().status());
      } else if (scan_.peek_text("loc(")) {
        scan_.accept("loc");
        HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
      } else {
        HEKLA_RETURN_IF_ERROR(parse_attribute().status());
      }
      continue;
    }
    const size_t start = scan_.position();
    if (scan_.accept_word("builtin.module") || scan_.accept_word("module")) {
      if (has_module) return scan_.error_at(start, "a second module in one program");
      has_module = true;
      if (scan_.accept('@')) {
        if (scan_.raw() == '"') {
          HEKLA_ASSIGN_OR_RETURN(module->name, scan_.string());
        } else {
          module->name = std::string(scan_.suffix_name());
        }
      }
      if (scan_.accept_word("attributes")) {
        HEKLA_ASSIGN_OR_RETURN(auto attributes, parse_dictionary(0));
        module->attributes = ir::AttributeMap(std::move(attributes));
      }
      HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
      while (!scan_.accept('}')) HEKLA_RETURN_IF_ERROR(parse_top(*module));
      HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
      continue;
    }
    if (has_module) return scan_.error("the end of the program");
    HEKLA_RETURN_IF_ERROR(parse_top(*module));
  }
  return module;
}

Result<ir::Attribute> Parser::run_attribute() {
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, parse_attribute());
  if (!scan_.at_end()) return scan_.error("the end of the attribute");
  return attribute;
}

Status Parser::parse_top(ir::Module& module) {
  if (scan_.accept_word("func.func") || scan_.accept_word("func")) return parse_function(module);
  if (scan_.accept_word("sdy.mesh")) return parse_mesh(module);
  return scan_.error("a function or a mesh");
}

Status Parser::parse_mesh(ir::Module& module) {
  ir::Mesh mesh;
  HEKLA_RETURN_IF_ERROR(scan_.expect('@'));
  mesh.name = std::string(scan_.suffix_name());
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  HEKLA_RETURN_IF_ERROR(scan_.expect('['));
  while (!scan_.accept(']')) {
    if (!mesh.axes.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_ASSIGN_OR_RETURN(std::string axis, scan_.string());
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    HEKLA_ASSIGN_OR_RETURN(int64_t size, scan_.integer());
    mesh.axes.emplace_back(std::move(axis), size);
  }
  if (scan_.accept(',')) {
    if (!scan_.accept_word("device_ids")) return scan_.error("device_ids");
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
    HEKLA_ASSIGN_OR_RETURN(mesh.device_ids, parse_int_list());
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  if (scan_.peek() == '{') {
    HEKLA_ASSIGN_OR_RETURN(auto attributes, parse_dictionary(0));
    mesh.attributes = ir::AttributeMap(std::move(attributes));
  }
  module.meshes.push_back(std::move(mesh));
  return parse_optional_location().status();
}

Status Parser::parse_function(ir::Module& module) {
  auto visibility = ir::Function::Visibility::kUnset;
  if (scan_.accept_word("public")) visibility = ir::Function::Visibility::kPublic;
  if (scan_.accept_word("private")) visibility = ir::Function::Visibility::kPrivate;
  if (scan_.accept_word("nested")) visibility = ir::Function::Visibility::kNested;
  HEKLA_RETURN_IF_ERROR(scan_.expect('@'));
  std::string name;
  if (scan_.raw() == '"') {
    HEKLA_ASSIGN_OR_RETURN(name, scan_.string());
  } else {
    name = std::string(scan_.suffix_name());
  }
  if (name.empty()) return scan_.error("the function's name");
  auto function = std::make_unique<ir::Function>(name);
  function->visibility = visibility;
  values_.clear();
  hidden_.clear();
  ir::Block& block = function->body().add_block();
  Types inputs;
  Types results;
  HEKLA_RETURN_IF_ERROR(parse_arguments(*function, &block, inputs));
  if (scan_.accept("->")) HEKLA_RETURN_IF_ERROR(parse_results(*function, results));
  function->argument_attributes.resize(inputs.size());
  function->result_attributes.resize(results.size());
  function->type = ir::Type::function(std::move(inputs), std::move(results));
  if (scan_.accept_word("attributes")) {
    HEKLA_ASSIGN_OR_RETURN(auto attributes, parse_dictionary(0));
    function->attributes = ir::AttributeMap(std::move(attributes));
  }
  if (scan_.accept('{')) {
    HEKLA_RETURN_IF_ERROR(parse_block_body(block));
    HEKLA_RETURN_IF_ERROR(scan_.expect('}'));
    HEKLA_ASSIGN_OR_RETURN(function->location, parse_optional_location());
    module.functions.push_back(std::move(function));
    return ok_status();
  }
  // A declaration: the same function without a body.
  auto declaration = std::make_unique<ir::Function>(name);
  declaration->visibility = visibility;
  declaration->type = function->type;
  declaration->argument_attributes = function->argument_attributes;
  declaration->result_attributes = function->result_attributes;
  declaration->attributes = function->attributes;
  HEKLA_ASSIGN_OR_RETURN(declaration->location, parse_optional_location());
  module.functions.push_back(std::move(declaration));
  return ok_status();
}

Status Parser::parse_arguments(ir::Function& function, ir::Block* block, Types& types) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  while (!scan_.accept(')')) {
    if (!types.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    std::string name;
    if (scan_.accept('%')) {
      name = std::string(scan_.suffix_name());
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    }
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
    ir::AttributeMap attributes;
    if (scan_.peek() == '{') {
      HEKLA_ASSIGN_OR_RETURN(auto entries, parse_dictionary(0));
      attributes = ir::AttributeMap(std::move(entries));
    }
    HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
    function.argument_attributes.push_back(std::move(attributes));
    ir::Value* value = block->add_argument(type);
    if (!name.empty()) HEKLA_RETURN_IF_ERROR(define(name, {value}));
    types.push_back(std::move(type));
  }
  return ok_status();
}

Status Parser::parse_results(ir::Function& function, Types& types) {
  if (scan_.peek() != '(') {
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
    types.push_back(std::move(type));
    return ok_status();
  }
  scan_.accept('(');
  while (!scan_.accept(')')) {
    if (!types.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
    types.push_back(std::move(type));
    function.result_attributes.resize(types.size());
    if (scan_.peek() == '{') {
      HEKLA_ASSIGN_OR_RETURN(auto entries, parse_dictionary(0));
      function.result_attributes.back() = ir::AttributeMap(std::move(entries));
    }
  }
  return ok_status();
}

Result<ir::LocationRef> Parser::parse_optional_location() {
  if (!scan_.peek_text("loc(")) return ir::LocationRef();
  scan_.accept("loc(");
  HEKLA_ASSIGN_OR_RETURN(ir::LocationRef location, parse_location(0));
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  return location;
}

Result<ir::LocationRef> Parser::parse_location(int depth) {
  if (depth > kMaxTextDepth) return scan_.error_at(scan_.position(), "locations nest too deep");
  auto location = std::make_shared<ir::Location>();
  using Kind = ir::Location::Kind;
  if (scan_.accept_word("unknown")) return ir::LocationRef();
  if (scan_.accept('#')) {
    const std::string name = "#" + std::string(scan_.suffix_name());
    if (auto it = location_aliases_.find(name); it != location_aliases_.end()) return it->second;
    auto alias = aliases_.find(name);
    if (alias == aliases_.end()) return ir::LocationRef();
    // Meanwhile a cycle sees an unknown location.
    location_aliases_[name] = nullptr;
    const size_t back = scan_.position();
    scan_.set_position(alias->second);
    HEKLA_RETURN_IF_ERROR(scan_.expect("loc("));
    HEKLA_ASSIGN_OR_RETURN(ir::LocationRef named, parse_location(depth + 1));
    scan_.set_position(back);
    location_aliases_[name] = named;
    return named;
  }
  if (scan_.accept_word("callsite")) {
    location->kind = Kind::kCallSite;
    HEKLA_RETURN_IF_ERROR(scan_.expect('('));
    HEKLA_ASSIGN_OR_RETURN(ir::LocationRef callee, parse_location(depth + 1));
    if (!scan_.accept_word("at")) return scan_.error("'at'");
    HEKLA_ASSIGN_OR_RETURN(ir::LocationRef caller, parse_location(depth + 1));
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
    location->children = {callee, caller};
    return ir::LocationRef(location);
  }
  if (scan_.accept_word("fused")) {
    location->kind = Kind::kFused;
    if (scan_.peek() == '<') HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
    HEKLA_RETURN_IF_ERROR(scan_.expect('['));
    while (!scan_.accept(']')) {
      if (!location->children.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_ASSIGN_OR_RETURN(ir::LocationRef part, parse_location(depth + 1));
      location->children.push_back(std::move(part));
    }
    return ir::LocationRef(location);
  }
  HEKLA_ASSIGN_OR_RETURN(location->text, scan_.string());
  if (scan_.accept(':')) {
    location->kind = Kind::kFile;
    HEKLA_ASSIGN_OR_RETURN(location->line, scan_.integer());
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    HEKLA_ASSIGN_OR_RETURN(location->column, scan_.integer());
    if (scan_.accept_word("to")) {
      // A range; its end says nothing that messages use.
      if (scan_.peek() != ':') HEKLA_RETURN_IF_ERROR(scan_.integer().status());
      HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
      HEKLA_RETURN_IF_ERROR(scan_.integer().status());
    }
    return ir::LocationRef(location);
  }
  location->kind = Kind::kName;
  if (scan_.accept('(')) {
    HEKLA_ASSIGN_OR_RETURN(ir::LocationRef child, parse_location(depth + 1));
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
    location->children.push_back(std::move(child));
  }
  return ir::LocationRef(location);
}

}  // namespace hekla::stablehlo
