// SPDX-License-Identifier: Apache-2.0
// ModulePrinter: what the files print*.cc share. Internal.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {

// In quotes, with escapes that read back to the same bytes.
using sharding::quoted;
// "@name", in quotes where it is no bare name.
std::string symbol_text(std::string_view name);
std::string dictionary_text(const std::vector<ir::NamedAttribute>& entries,
                            const PrintOptions& options);
// "[1, 2]".
std::string list_text(const std::vector<int64_t>& values);
// "<lhs_precision_type = tf32, ...>".
std::string algorithm_text(const ir::DotAlgorithm& algorithm);
// "[b, 0, f]x[0, i, o]->[b, 0, f]"; empty where the numbers are no permutation.
std::string conv_lists_text(const ir::ConvDimensionNumbers& numbers);

std::vector<ir::Type> operand_types(const ir::Operation& op);
// "(t, t) -> t".
std::string function_type(const ir::Operation& op);
// What an attribute holds; null where it holds anything else. The integer is of that plain type.
const std::vector<int64_t>* i64_list(const ir::Attribute& attribute);
const int64_t* integer(const ir::Attribute& attribute, DType dtype);
const std::string* enum_word(const ir::Attribute& attribute, std::string_view kind);

class ModulePrinter {
 public:
  explicit ModulePrinter(const PrintOptions& options) : options_(options) {}
  std::string run(const ir::Module& module);

 private:
  // print.cc
  void print_mesh(const ir::Mesh& mesh);
  void print_function(const ir::Function& function);
  void print_operations(const ir::Block& block, int depth);
  void print_operation(const ir::Operation& op, int depth);
  // The blocks of a region without its braces. The first block's label is left out where something
  // else names its arguments.
  void print_blocks(const ir::Region& region, int depth, bool has_named_arguments);
  void print_region(const ir::Region& region, int depth, bool has_named_arguments = false);
  void indent(int depth) { out_.append(static_cast<size_t>(depth) * 2, ' '); }
  const std::string& name_argument(const ir::Value* value);
  const std::string& name(const ir::Value* value) const;
  std::string operand_list(const ir::Operation& op) const;
  std::string map_text(const ir::AttributeMap& map) const;
  // " {...}" of all attributes but those that a form writes elsewhere; empty where none is left.
  std::string other_attributes(const ir::Operation& op,
                               const std::vector<std::string_view>& written = {}) const;

  // print_pretty.cc. Each is false, and nothing is written, where the form cannot say all of the
  // operation: the generic form serves then.
  bool print_pretty(const ir::Operation& op, int depth);
  bool print_elementwise(const ir::Operation& op);
  bool print_plain(const ir::Operation& op);

  // print_structured.cc, the same.
  bool print_slice(const ir::Operation& op);
  bool print_dot_general(const ir::Operation& op);
  bool print_convolution(const ir::Operation& op);
  bool print_reduce(const ir::Operation& op, int depth);
  bool print_while(const ir::Operation& op, int depth);

  const PrintOptions options_;
  std::string out_;
  std::unordered_map<const ir::Value*, std::string> names_;
  int next_value_ = 0;
  int next_argument_ = 0;
  int next_block_ = 0;
};

}  // namespace hekla::stablehlo
