// SPDX-License-Identifier: Apache-2.0
// Modules, functions, regions and the generic form of operations.
#include "runtime/program/stablehlo/text/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/text/module_printer.h"

namespace hekla::stablehlo {
namespace {

// Behind an operation; names may have any bytes.
std::string location_comment(const ir::LocationRef& location) {
  std::string text = "  // " + ir::location_string(location);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

}  // namespace

std::string print_module(const ir::Module& module, const PrintOptions& options) {
  return ModulePrinter(options).run(module);
}

std::string ModulePrinter::map_text(const ir::AttributeMap& map) const {
  return dictionary_text({map.begin(), map.end()}, options_);
}

std::string ModulePrinter::run(const ir::Module& module) {
  out_ = "module";
  if (!module.name.empty()) out_ += " " + symbol_text(module.name);
  if (!module.attributes.empty()) out_ += " attributes " + map_text(module.attributes);
  out_ += " {\n";
  for (const ir::Mesh& mesh : module.meshes) print_mesh(mesh);
  for (const auto& function : module.functions) print_function(*function);
  out_ += "}\n";
  return std::move(out_);
}

void ModulePrinter::print_mesh(const ir::Mesh& mesh) {
  out_ += fmt::format("  sdy.mesh {} = {}", symbol_text(mesh.name), sharding::to_text(mesh.value));
  if (!mesh.attributes.empty()) out_ += " " + map_text(mesh.attributes);
  out_ += "\n";
}

void ModulePrinter::print_function(const ir::Function& function) {
  names_.clear();
  next_value_ = 0;
  next_argument_ = 0;
  next_block_ = 0;
  constexpr std::string_view kVisibilities[] = {"", "public ", "private ", "nested "};
  out_ += fmt::format("  func.func {}{}(", kVisibilities[static_cast<size_t>(function.visibility)],
                      symbol_text(function.name()));
  const std::vector<ir::Type>& inputs = function.type.elements();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i > 0) out_ += ", ";
    if (!function.is_declaration() && i < function.body().front().argument_count()) {
      out_ += name_argument(function.body().front().argument(i)) + ": ";
    }
    out_ += inputs[i].to_string();
    if (i < function.argument_attributes.size() && !function.argument_attributes[i].empty()) {
      out_ += " " + map_text(function.argument_attributes[i]);
    }
  }
  out_ += ")";
  const std::vector<ir::Type>& results = function.type.results();
  if (!results.empty()) {
    out_ += " -> (";
    for (size_t i = 0; i < results.size(); ++i) {
      out_ += (i > 0 ? ", " : "") + results[i].to_string();
      if (i < function.result_attributes.size() && !function.result_attributes[i].empty()) {
        out_ += " " + map_text(function.result_attributes[i]);
      }
    }
    out_ += ")";
  }
  if (!function.attributes.empty()) out_ += " attributes " + map_text(function.attributes);
  if (!function.is_declaration()) {
    out_ += " {\n";
    print_blocks(function.body(), 2, true);
    out_ += "  }";
  }
  out_ += "\n";
}

const std::string& ModulePrinter::name_argument(const ir::Value* value) {
  return names_[value] = fmt::format("%arg{}", next_argument_++);
}

const std::string& ModulePrinter::name(const ir::Value* value) const {
  // A value of elsewhere, which no reader gives; readers of the text say that it is unknown.
  static const std::string kUnknown = "%unknown";
  auto it = names_.find(value);
  return it == names_.end() ? kUnknown : it->second;
}

std::string ModulePrinter::operand_list(const ir::Operation& op) const {
  std::string text;
  for (const ir::Value* operand : op.operands()) text += (text.empty() ? "" : ", ") + name(operand);
  return text;
}

void ModulePrinter::print_operations(const ir::Block& block, int depth) {
  for (const auto& op : block.operations()) {
    indent(depth);
    print_operation(*op, depth);
    if (options_.with_locations && op->location() != nullptr) {
      out_ += location_comment(op->location());
    }
    out_ += "\n";
  }
}

void ModulePrinter::print_operation(const ir::Operation& op, int depth) {
  if (op.result_count() > 0) {
    const int number = next_value_++;
    out_ += fmt::format("%{}", number);
    if (op.result_count() > 1) out_ += fmt::format(":{}", op.result_count());
    out_ += " = ";
    for (size_t i = 0; i < op.result_count(); ++i) {
      names_[op.result(i)] =
          op.result_count() == 1 ? fmt::format("%{}", number) : fmt::format("%{}#{}", number, i);
    }
  }
  if (print_pretty(op, depth)) return;
  out_ += fmt::format("{}({})", quoted(op.name()), operand_list(op));
  for (size_t i = 0; i < op.region_count(); ++i) {
    out_ += i == 0 ? " (" : ", ";
    print_region(op.region(i), depth);
  }
  if (op.region_count() > 0) out_ += ")";
  out_ += other_attributes(op);
  std::vector<ir::Type> types;
  for (const ir::Value* operand : op.operands()) {
    types.push_back(operand == nullptr ? ir::Type() : operand->type());
  }
  out_ += " : " + ir::Type::function(std::move(types), op.result_types()).to_string();
}

void ModulePrinter::print_blocks(const ir::Region& region, int depth, bool has_named_arguments) {
  const auto& blocks = region.blocks();
  for (size_t b = 0; b < blocks.size(); ++b) {
    const ir::Block& block = *blocks[b];
    // Braces around nothing are a region without a block.
    const bool needs_label =
        b > 0 || (!has_named_arguments && (block.argument_count() > 0 || block.empty()));
    if (needs_label) {
      indent(depth - 1);
      out_ += fmt::format("^bb{}", next_block_++);
      for (size_t i = 0; i < block.argument_count(); ++i) {
        const ir::Value* argument = block.argument(i);
        out_ += i == 0 ? "(" : ", ";
        out_ += name_argument(argument) + ": " + argument->type().to_string();
      }
      out_ += block.argument_count() > 0 ? "):\n" : ":\n";
    }
    print_operations(block, depth);
  }
}

void ModulePrinter::print_region(const ir::Region& region, int depth, bool has_named_arguments) {
  out_ += "{\n";
  print_blocks(region, depth + 1, has_named_arguments);
  indent(depth);
  out_ += "}";
}

}  // namespace hekla::stablehlo
