// SPDX-License-Identifier: Apache-2.0
// Blocks, regions and the generic form of operations.
#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {

// Names that a region defines end with it; those that they hid come back.
class Parser::NameScope {
 public:
  explicit NameScope(Parser& parser) : parser_(parser), start_(parser.hidden_.size()) {}
  ~NameScope() {
    while (parser_.hidden_.size() > start_) {
      auto& [name, named] = parser_.hidden_.back();
      if (named.values.empty()) {
        parser_.values_.erase(name);
      } else {
        parser_.values_[name] = std::move(named);
      }
      parser_.hidden_.pop_back();
    }
  }

 private:
  Parser& parser_;
  size_t start_;
};

Status Parser::define(const std::string& name, Values values, size_t position) {
  if (name.empty()) return scan_.error_at(position, "a value's name is missing");
  if (values.empty()) return ok_status();
  const auto [it, is_new] = values_.try_emplace(name);
  if (!is_new && it->second.depth == region_depth_) {
    return scan_.error_at(position, fmt::format("%{} is defined twice", name));
  }
  hidden_.emplace_back(name, std::move(it->second));
  it->second = {std::move(values), region_depth_};
  return ok_status();
}

Result<Parser::RegionArgument> Parser::parse_argument_name() {
  HEKLA_RETURN_IF_ERROR(scan_.expect('%'));
  RegionArgument argument;
  argument.position = scan_.position();
  argument.name = std::string(scan_.suffix_name());
  return argument;
}

Result<ir::Value*> Parser::parse_operand() {
  HEKLA_RETURN_IF_ERROR(scan_.expect('%'));
  const size_t start = scan_.position();
  const std::string name(scan_.suffix_name());
  size_t index = 0;
  bool has_index = false;
  if (scan_.raw() == '#') {
    scan_.set_position(scan_.position() + 1);
    HEKLA_ASSIGN_OR_RETURN(int64_t number, scan_.integer());
    index = number < 0 ? ~size_t{0} : static_cast<size_t>(number);
    has_index = true;
  }
  auto it = values_.find(name);
  if (it == values_.end()) {
    return scan_.error_at(start, fmt::format("there is no value %{} before this", name));
  }
  const Values& values = it->second.values;
  if (index >= values.size() || (!has_index && values.size() != 1)) {
    return scan_.error_at(start, fmt::format("%{} stands for {} values; one is named %{}#k", name,
                                             values.size(), name));
  }
  return values[index];
}

Status Parser::parse_operand_list(OpState& op) {
  while (scan_.peek() == '%') {
    HEKLA_ASSIGN_OR_RETURN(ir::Value * value, parse_operand());
    op.operands.push_back(value);
    if (!scan_.accept(',')) break;
  }
  return ok_status();
}

Status Parser::check_operand_types(const OpState& op, const Types& types) {
  if (types.size() != op.operands.size()) {
    return scan_.error_at(op.position, fmt::format("{} has {} operands and {} operand types",
                                                   op.name, op.operands.size(), types.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (op.operands[i]->type() == types[i]) continue;
    return scan_.error_at(op.position,
                          fmt::format("operand {} of {} is {}, not {}", i, op.name,
                                      op.operands[i]->type().to_string(), types[i].to_string()));
  }
  return ok_status();
}

Status Parser::parse_optional_attributes(OpState& op) {
  if (scan_.peek() != '{') return ok_status();
  HEKLA_ASSIGN_OR_RETURN(auto entries, parse_dictionary(0));
  for (auto& entry : entries) op.attributes.push_back(std::move(entry));
  return ok_status();
}

Result<std::unique_ptr<ir::Region>> Parser::parse_region(
    const std::vector<RegionArgument>& arguments) {
  if (region_depth_ >= ir::kMaxRegionDepth) {
    return scan_.error_at(scan_.position(),
                          fmt::format("regions are nested deeper than {}", ir::kMaxRegionDepth));
  }
  ++region_depth_;
  NameScope scope(*this);
  auto region = std::make_unique<ir::Region>(nullptr);
  HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  ir::Block* entry = arguments.empty() ? nullptr : &region->add_block();
  for (const auto& [name, position, type] : arguments) {
    HEKLA_RETURN_IF_ERROR(define(name, {entry->add_argument(type)}, position));
  }
  HEKLA_RETURN_IF_ERROR(parse_blocks(*region, entry));
  HEKLA_RETURN_IF_ERROR(scan_.expect('}'));
  --region_depth_;
  return region;
}

Status Parser::parse_blocks(ir::Region& region, ir::Block* entry) {
  // Braces around nothing are a region without a block.
  if (scan_.peek() != '^' && scan_.peek() != '}') {
    HEKLA_RETURN_IF_ERROR(parse_block_body(entry != nullptr ? *entry : region.add_block()));
  }
  while (scan_.accept('^')) {
    scan_.suffix_name();
    ir::Block* block = &region.add_block();
    if (scan_.accept('(')) {
      while (!scan_.accept(')')) {
        if (block->argument_count() > 0) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
        HEKLA_ASSIGN_OR_RETURN(RegionArgument argument, parse_argument_name());
        HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
        HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
        HEKLA_RETURN_IF_ERROR(parse_optional_location().status());
        HEKLA_RETURN_IF_ERROR(
            define(argument.name, {block->add_argument(std::move(type))}, argument.position));
      }
    }
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    HEKLA_RETURN_IF_ERROR(parse_block_body(*block));
  }
  return ok_status();
}

Status Parser::parse_block_body(ir::Block& block) {
  while (!scan_.at_end() && scan_.peek() != '}' && scan_.peek() != '^') {
    HEKLA_RETURN_IF_ERROR(parse_operation(block));
  }
  return ok_status();
}

Status Parser::parse_operation(ir::Block& block) {
  std::vector<ResultName> names;
  if (scan_.peek() == '%') {
    do {
      HEKLA_ASSIGN_OR_RETURN(RegionArgument result, parse_argument_name());
      ResultName name{std::move(result.name), result.position};
      if (scan_.accept(':')) {
        HEKLA_ASSIGN_OR_RETURN(int64_t count, scan_.integer());
        constexpr int64_t kMaxResults = 1 << 20;
        if (count < 0 || count > kMaxResults) return scan_.error("a number of results before this");
        name.count = static_cast<size_t>(count);
      }
      names.push_back(std::move(name));
    } while (scan_.accept(','));
    HEKLA_RETURN_IF_ERROR(scan_.expect('='));
  }
  OpState op;
  scan_.peek();
  op.position = scan_.position();
  const bool is_generic = scan_.peek() == '"';
  if (is_generic) {
    HEKLA_ASSIGN_OR_RETURN(op.name, scan_.string());
  } else {
    // "stablehlo.cross-replica-sum" has hyphens.
    op.name = std::string(scan_.suffix_name());
  }
  if (op.name.empty()) return scan_.error("an operation");
  if (op.name == "return") op.name = "func.return";
  if (op.name == "call") op.name = "func.call";
  op.code = ir::op_code_from_name(op.name).value_or(ir::OpCode::kUnknown);
  HEKLA_RETURN_IF_ERROR(is_generic ? parse_generic(op) : parse_pretty(op));
  HEKLA_ASSIGN_OR_RETURN(op.location, parse_optional_location());
  return finish(op, names, block);
}

// (%a, %b) <{properties}> ({region}, ...) {attributes} : (t, t) -> t
Status Parser::parse_generic(OpState& op) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  HEKLA_RETURN_IF_ERROR(parse_operand_list(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  if (scan_.accept('[')) return scan_.error("no successors: StableHLO has none");
  if (scan_.accept('<')) {
    HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  }
  if (scan_.accept('(')) HEKLA_RETURN_IF_ERROR(parse_regions(op));
  HEKLA_RETURN_IF_ERROR(parse_optional_attributes(op));
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  return parse_operation_type(op);
}

Status Parser::parse_regions(OpState& op) {
  do {
    HEKLA_ASSIGN_OR_RETURN(auto region, parse_region());
    op.regions.push_back(std::move(region));
  } while (scan_.accept(','));
  return scan_.expect(')');
}

Status Parser::parse_operation_type(OpState& op) {
  HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_function_type(0));
  HEKLA_RETURN_IF_ERROR(check_operand_types(op, type.elements()));
  op.result_types = type.results();
  return ok_status();
}

Status Parser::finish(OpState& op, const std::vector<ResultName>& names, ir::Block& block) {
  size_t named = 0;
  for (const ResultName& name : names) named += name.count;
  if (!names.empty() && named != op.result_types.size()) {
    return scan_.error_at(op.position, fmt::format("{} has {} results, {} are named", op.name,
                                                   op.result_types.size(), named));
  }
  canonicalize(op);
  ir::AttributeMap attributes;
  for (auto& [name, value] : op.attributes) {
    if (!attributes.get(name).is_absent()) {
      return scan_.error_at(op.position,
                            fmt::format("{} has the attribute {} twice", op.name, name));
    }
    if (!ir::is_default_attribute(op.code, name, value)) attributes.set(name, std::move(value));
  }
  std::unique_ptr<ir::Operation> made;
  if (op.code == ir::OpCode::kUnknown) {
    made = ir::Operation::unknown(op.name, std::move(op.operands), std::move(op.result_types),
                                  std::move(attributes), std::move(op.location));
  } else {
    made =
        std::make_unique<ir::Operation>(op.code, std::move(op.operands), std::move(op.result_types),
                                        std::move(attributes), std::move(op.location));
  }
  for (auto& region : op.regions) made->adopt_region(std::move(region));
  ir::Operation* placed = block.append(std::move(made));
  size_t next = 0;
  for (const ResultName& name : names) {
    Values values;
    for (size_t i = 0; i < name.count; ++i) values.push_back(placed->result(next++));
    HEKLA_RETURN_IF_ERROR(define(name.name, std::move(values), name.position));
  }
  return ok_status();
}

}  // namespace hekla::stablehlo
