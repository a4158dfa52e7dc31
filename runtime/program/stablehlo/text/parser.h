// SPDX-License-Identifier: Apache-2.0
// Parser: recursive descent over MLIR text, split over the files parse_*.cc. Internal.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "runtime/program/ir/ir.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/text/scanner.h"

namespace hekla::stablehlo {

class Parser {
 public:
  explicit Parser(std::string_view text) : scan_(text) {}
  Result<std::unique_ptr<ir::Module>> run();
  // All of the text as one attribute.
  Result<ir::Attribute> run_attribute();

 private:
  using Types = std::vector<ir::Type>;
  using Values = std::vector<ir::Value*>;
  // What an operation's text gives before it is made.
  struct OpState {
    std::string name;
    ir::OpCode code = ir::OpCode::kUnknown;
    size_t position = 0;
    Values operands;
    Types result_types;
    std::vector<ir::NamedAttribute> attributes;
    std::vector<std::unique_ptr<ir::Region>> regions;
    ir::LocationRef location;
    void set(std::string_view name, ir::Attribute value) {
      attributes.emplace_back(name, std::move(value));
    }
  };
  struct Named {
    Values values;
    int depth = 0;  // of the region that defined them
  };
  struct AttributeAlias {
    ir::Attribute value;
    int64_t parts = 0;
    int height = 0;
  };
  struct TypeAlias {
    ir::Type type;
    int64_t parts = 0;
    int height = 0;
  };
  struct LocationAlias {
    ir::LocationRef location;
    int height = 0;
  };
  struct ResultName {
    std::string name;
    size_t position = 0;
    size_t count = 1;
  };
  // An argument that stands before its region.
  struct RegionArgument {
    std::string name;
    size_t position = 0;
    ir::Type type;
  };
  // Restores the names that a region defined.
  class NameScope;

  // parse_module.cc
  void find_aliases();
  void find_resources(Scanner scan);
  Status parse_module(ir::Module& module);
  Status parse_top(ir::Module& module);
  Status parse_mesh(ir::Module& module);
  // What stands in brackets here, read by one of sharding/text.h's functions.
  template <typename T>
  Result<T> parse_shardy(Result<T> (*parse)(std::string_view, sharding::TextError*)) {
    const char next = scan_.peek();
    if (next != '<' && next != '[' && next != '{') return scan_.error("a sharding");
    const size_t start = scan_.position();
    HEKLA_ASSIGN_OR_RETURN(std::string_view body, scan_.balanced());
    sharding::TextError error;
    Result<T> value = parse(body, &error);
    if (!value.ok()) return scan_.error_at(start + error.position, error.reason);
    return value;
  }
  Status parse_function(ir::Module& module);
  Status parse_arguments(ir::Function& function, ir::Block* block, Types& types);
  Status parse_results(ir::Function& function, Types& types);
  Result<ir::LocationRef> parse_optional_location();
  Result<ir::LocationRef> parse_location(int depth);
  Result<ir::LocationRef> parse_location_alias(int depth);

  // parse_generic.cc
  Status parse_generic_module(ir::Module& module);
  Status parse_generic_mesh(ir::Module& module);
  Status parse_generic_function(ir::Module& module);
  Result<ir::AttributeMap> parse_generic_parts(size_t& region);

  // parse_types.cc
  Result<ir::Type> parse_type(int depth = 0);
  Result<ir::Type> parse_scalar_type(int depth);
  Result<ir::Type> parse_shaped_type(bool is_memref, int depth);
  Result<ir::Type> parse_quantized_type(int depth);
  Result<ir::Type> parse_function_type(int depth);
  // "t, t" up to something that is no comma.
  Result<Types> parse_type_list(int depth = 0);
  // Results of "-> t" or "-> (t, t)".
  Result<Types> parse_result_types(int depth = 0);
  bool at_type();

  // parse_attributes.cc
  Result<ir::Attribute> parse_attribute(int depth = 0);
  Result<ir::Attribute> parse_number_attribute(int depth);
  Result<ir::Attribute> parse_hash_attribute(int depth);
  Result<ir::Attribute> parse_array_attribute();
  Result<std::vector<ir::NamedAttribute>> parse_dictionary(int depth);
  Result<ir::Attribute> parse_symbol();
  // "@name" or "@\"name\"" without nested ones; the quoted one may be empty.
  Result<std::string> parse_symbol_name();
  Result<std::vector<int64_t>> parse_int_list();

  // parse_struct_attributes.cc
  Result<ir::Attribute> parse_stablehlo_struct(std::string_view name, int depth);
  // A field of a struct attribute and where its value goes.
  struct Field {
    std::string_view name;
    std::variant<std::vector<int64_t>*, int64_t*, double*, bool*, ir::Type*, ir::Attribute*> target;
  };
  // Behind "<": name = value, ... in any order, and ">".
  Status parse_fields(std::initializer_list<Field> fields, int depth = 0);
  Result<ir::Attribute> parse_conv_numbers();
  Result<ir::ConvDimensionNumbers> parse_conv_lists();
  Result<ir::Attribute> parse_algorithm();

  // parse_dense.cc
  Result<ir::Attribute> parse_dense(bool keep_dense);
  Result<ir::Attribute> parse_dense_resource(bool keep_dense);
  // A dense tensor in the form that the IR has for it.
  Result<ir::Attribute> list_or_dense(ir::Attribute dense, bool keep_dense, size_t position);
  Result<HostArray> parse_elements(const ir::Type& type, size_t begin, size_t end);
  Status parse_nested(const ir::Type& type, size_t dim, std::byte*& out, std::byte* end);
  Status parse_element(DType dtype, std::byte* out);
  Result<uint64_t> parse_scalar_bits(DType dtype);
  Result<HostArray> hex_elements(const ir::Type& type, std::string_view digits);

  // parse_operations.cc
  // "%name" without its sign, and where it stands.
  Result<RegionArgument> parse_argument_name();
  // Labels and operations up to the closing brace; `entry` is the block of what stands before the
  // first label, null where nothing names its arguments.
  Status parse_blocks(ir::Region& region, ir::Block* entry);
  Status parse_block_body(ir::Block& block);
  Result<std::unique_ptr<ir::Region>> parse_region(
      const std::vector<RegionArgument>& arguments = {});
  Status parse_operation(ir::Block& block);
  Status parse_generic(OpState& op);
  Status finish(OpState& op, const std::vector<ResultName>& names, ir::Block& block);
  Result<ir::Value*> parse_operand();
  Status parse_operand_list(OpState& op);
  Status parse_optional_attributes(OpState& op);
  // The types that the text gives the operands are those that they have.
  Status check_operand_types(const OpState& op, const Types& types);
  Status define(const std::string& name, Values values, size_t position);

  // parse_pretty.cc
  Status parse_pretty(OpState& op);
  Status parse_pretty_other(OpState& op);
  // "(t) -> t".
  // Behind the opening parenthesis, up to the closing one.
  Status parse_regions(OpState& op);
  Status parse_operation_type(OpState& op);
  // A word of an enumeration.
  Result<ir::Attribute> parse_enum(std::string_view kind);
  // ": t" or ": (t) -> t"; the last type alone is the result's.
  Status parse_same_type(OpState& op);
  Result<std::vector<int64_t>> parse_named_list(std::string_view name);
  Status parse_named_int(OpState& op, std::string_view keyword, std::string_view attribute);

  // parse_structured.cc
  Status parse_slice(OpState& op);
  Status parse_dot(OpState& op);
  Status parse_convolution(OpState& op);
  Status parse_reduce(OpState& op);
  Status parse_while(OpState& op);
  Status parse_custom_call(OpState& op);
  Status parse_composite(OpState& op);
  Status parse_manual_computation(OpState& op);
  Status parse_check(OpState& op);
  Status parse_precision(OpState& op);

  // canonical.cc
  static void canonicalize(OpState& op);

  // Time and memory beyond the text's size: what aliases repeat, what splats grow to.
  Status spend_parts(int64_t parts);
  Status spend_bytes(int64_t bytes, size_t position);

  Scanner scan_;
  int region_depth_ = 0;
  int64_t parts_ = 0;  // types and attributes read, those of aliases at each use
  int64_t bytes_ = 0;  // of expanded splats
  int deepest_ = 0;    // nesting of the attribute or type at hand
  // Where the text of an alias stands, by "#name" or "!name".
  std::unordered_map<std::string, size_t> aliases_;
  std::unordered_map<std::string, AttributeAlias> attribute_aliases_;
  ir::TypedAttributes typed_attributes_;
  std::unordered_map<std::string, TypeAlias> type_aliases_;
  std::unordered_map<std::string, LocationAlias> location_aliases_;
  int location_height_ = 0;                                      // of the location read last
  std::unordered_map<std::string, std::string_view> resources_;  // hexadecimal digits
  std::unordered_map<std::string, Named> values_;
  // Names defined since a scope began, with what they hid.
  std::vector<std::pair<std::string, Named>> hidden_;
};

// Deepest nesting of types and attributes.
inline constexpr int kMaxTextDepth = 100;
// Of locations; deeper ones are unknown.
inline constexpr int kMaxLocationHeight = 300;

}  // namespace hekla::stablehlo
