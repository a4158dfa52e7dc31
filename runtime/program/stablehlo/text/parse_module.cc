// SPDX-License-Identifier: Apache-2.0
// Modules, functions, meshes, locations, aliases.
#include <algorithm>

#include "runtime/program/stablehlo/text/parser.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {

Result<std::unique_ptr<ir::Module>> read_text(std::string_view text) { return Parser(text).run(); }

Result<ir::Attribute> read_attribute(std::string_view text) { return Parser(text).run_attribute(); }

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

// Aliases may be used before they are defined, so their places are found first: they stand outside
// of all brackets. The resource block at the end is found on the way.
void Parser::find_aliases() {
  Scanner scan(scan_.text());
  int depth = 0;
  while (!scan.at_end()) {
    const char c = scan.raw();
    if (c == '"') {
      // What is wrong with it is said where it is read.
      if (!scan.string().ok()) return;
      continue;
    }
    if (depth == 0 && scan.peek_text("{-#")) return find_resources(scan);
    const size_t start = scan.position();
    scan.set_position(start + 1);
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') depth = std::max(depth - 1, 0);
    if (depth > 0 || (c != '#' && c != '!')) continue;
    const std::string_view name = scan.suffix_name();
    if (name.empty() || scan.peek() != '=' || scan.peek_text("==")) continue;
    scan.accept('=');
    scan.peek();
    aliases_.emplace(scan_.text().substr(start, name.size() + 1), scan.position());
  }
}

// {-# dialect: { key: "0x..." } #-}, at any depth: every key with a string is a resource.
void Parser::find_resources(Scanner scan) {
  const std::string_view text = scan.text();
  scan.accept("{-#");
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
    const bool is_generic = scan_.accept("\"builtin.module\"");
    if (is_generic || scan_.accept_word("builtin.module") || scan_.accept_word("module")) {
      if (has_module) return scan_.error_at(start, "a second module in one program");
      if (!module->functions.empty() || !module->meshes.empty()) {
        return scan_.error_at(start, "a module behind functions of an implicit one");
      }
      has_module = true;
      HEKLA_RETURN_IF_ERROR(is_generic ? parse_generic_module(*module) : parse_module(*module));
      HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
      continue;
    }
    if (has_module) return scan_.error("the end of the program");
    HEKLA_RETURN_IF_ERROR(parse_top(*module));
  }
  return module;
}

Status Parser::parse_module(ir::Module& module) {
  if (scan_.peek() == '@') {
    HEKLA_ASSIGN_OR_RETURN(module.name, parse_symbol_name());
  }
  if (scan_.accept_word("attributes")) {
    HEKLA_ASSIGN_OR_RETURN(auto attributes, parse_dictionary(0));
    module.attributes = ir::AttributeMap(std::move(attributes));
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  while (!scan_.accept('}')) HEKLA_RETURN_IF_ERROR(parse_top(module));
  return ok_status();
}

Result<ir::Attribute> Parser::run_attribute() {
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, parse_attribute());
  if (!scan_.at_end()) return scan_.error("the end of the attribute");
  return attribute;
}

Status Parser::parse_top(ir::Module& module) {
  if (scan_.accept("\"func.func\"")) return parse_generic_function(module);
  if (scan_.accept("\"sdy.mesh\"")) return parse_generic_mesh(module);
  if (scan_.accept_word("func.func") || scan_.accept_word("func")) return parse_function(module);
  if (scan_.accept_word("sdy.mesh")) return parse_mesh(module);
  return scan_.error("a function or a mesh");
}

Status Parser::parse_mesh(ir::Module& module) {
  ir::Mesh mesh;
  HEKLA_ASSIGN_OR_RETURN(mesh.name, parse_symbol_name());
  HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  HEKLA_ASSIGN_OR_RETURN(mesh.value, parse_shardy(sharding::parse_mesh));
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
  HEKLA_ASSIGN_OR_RETURN(std::string name, parse_symbol_name());
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
    HEKLA_RETURN_IF_ERROR(parse_blocks(function->body(), &block));
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
    const bool has_name = scan_.peek() == '%';
    RegionArgument argument;
    if (has_name) {
      HEKLA_ASSIGN_OR_RETURN(argument, parse_argument_name());
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
    if (has_name) HEKLA_RETURN_IF_ERROR(define(argument.name, {value}, argument.position));
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
  if (scan_.accept('#')) return parse_location_alias(depth);
  location_height_ = 0;
  if (scan_.accept_word("unknown")) return ir::LocationRef();
  auto location = std::make_shared<ir::Location>();
  using Kind = ir::Location::Kind;
  int height = 0;
  const auto parse_child = [&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(ir::LocationRef child, parse_location(depth + 1));
    height = std::max(height, location_height_ + 1);
    location->children.push_back(std::move(child));
    return ok_status();
  };
  if (scan_.accept_word("callsite")) {
    location->kind = Kind::kCallSite;
    HEKLA_RETURN_IF_ERROR(scan_.expect('('));
    HEKLA_RETURN_IF_ERROR(parse_child());
    if (!scan_.accept_word("at")) return scan_.error("'at'");
    HEKLA_RETURN_IF_ERROR(parse_child());
    HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  } else if (scan_.accept_word("fused")) {
    location->kind = Kind::kFused;
    if (scan_.peek() == '<') HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
    HEKLA_RETURN_IF_ERROR(scan_.expect('['));
    while (!scan_.accept(']')) {
      if (!location->children.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      HEKLA_RETURN_IF_ERROR(parse_child());
    }
  } else {
    HEKLA_ASSIGN_OR_RETURN(location->text, scan_.string());
    location->kind = Kind::kName;
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
    } else if (scan_.accept('(')) {
      HEKLA_RETURN_IF_ERROR(parse_child());
      HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
    }
  }
  // Chains of aliases reach any height, and whoever walks a location recurses.
  location_height_ = height > kMaxLocationHeight ? 0 : height;
  if (height > kMaxLocationHeight) return ir::LocationRef();
  return ir::LocationRef(location);
}

// Behind '#'. What is too deep or not there is unknown: a program runs without it.
Result<ir::LocationRef> Parser::parse_location_alias(int depth) {
  const std::string name = "#" + std::string(scan_.suffix_name());
  location_height_ = 0;
  if (auto it = location_aliases_.find(name); it != location_aliases_.end()) {
    location_height_ = it->second.height;
    return it->second.location;
  }
  auto alias = aliases_.find(name);
  if (alias == aliases_.end() || depth >= kMaxTextDepth) return ir::LocationRef();
  // Meanwhile a cycle sees an unknown location.
  location_aliases_[name] = {};
  const size_t back = scan_.position();
  scan_.set_position(alias->second);
  HEKLA_RETURN_IF_ERROR(scan_.expect("loc("));
  HEKLA_ASSIGN_OR_RETURN(ir::LocationRef location, parse_location(depth + 1));
  scan_.set_position(back);
  location_aliases_[name] = {location, location_height_};
  return location;
}

}  // namespace hekla::stablehlo
