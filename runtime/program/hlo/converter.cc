// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/converter.h"

#include <algorithm>
#include <utility>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::hlo {
namespace {

// Instructions and leaves that may be converted: those that there are, and copies of callees.
constexpr int64_t kBudgetFactor = 64;
constexpr int64_t kBudgetBase = 10'000;

const Handler* find_handler(std::string_view opcode) {
  static const std::unordered_map<std::string_view, const Handler*> kHandlers = [] {
    std::unordered_map<std::string_view, const Handler*> handlers;
    for (std::span<const Handler> family :
         {elementwise_handlers(), movement_handlers(), called_handlers(), contraction_handlers(),
          algebra_handlers(), collective_handlers(), custom_call_handlers(), expanded_handlers()}) {
      for (const Handler& handler : family) handlers.emplace(handler.opcode, &handler);
    }
    return handlers;
  }();
  auto found = kHandlers.find(opcode);
  return found == kHandlers.end() ? nullptr : found->second;
}

std::vector<ir::Type> types_of(const Leaves& values) {
  std::vector<ir::Type> types;
  for (const ir::Value* value : values) types.push_back(value->type());
  return types;
}

bool agree(const std::vector<ir::Type>& actual, const std::vector<ir::Type>& declared) {
  return std::equal(actual.begin(), actual.end(), declared.begin(), declared.end(),
                    ir::are_compatible);
}

// What inlining a computation costs of the budget.
int64_t cost_of(const Computation& computation) {
  size_t cost = computation.instructions.size();
  for (const Instruction& one : computation.instructions) cost += one.shape.leaf_count;
  return static_cast<int64_t>(cost);
}

// What an instruction carries beside its meaning: its sharding and the frontend's notes.
Status annotate(const Site& site, ir::Operation& op) {
  if (site.fields().has(kSharding)) {
    Result<sharding::HloSharding> sharding =
        sharding::decode_op_sharding(site.fields().bytes(kSharding));
    if (!sharding.ok()) {
      return sharding.status().with_context(describe(site.instruction, site.computation));
    }
    op.attributes().set("mhlo.sharding", ir::hlo_sharding_attribute(*sharding));
  }
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute notes, frontend_attributes(site.fields()));
  op.attributes().set("mhlo.frontend_attributes", std::move(notes));
  return ok_status();
}

}  // namespace

Result<ir::Attribute> frontend_attributes(const Message& fields) {
  HEKLA_ASSIGN_OR_RETURN(const Message attributes,
                         fields.message(kFrontendAttributes, "frontend attributes"));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> entries,
                         attributes.messages(1, "a frontend attribute"));
  if (entries.empty()) return ir::Attribute();
  std::vector<ir::NamedAttribute> named;
  for (const Message& entry : entries) {
    // Attributes have names; one without could not be written.
    if (entry.text(1).empty()) {
      return invalid_argument("a frontend attribute has no name; its value is \"{}\"",
                              entry.text(2));
    }
    named.emplace_back(entry.text(1), ir::StringValue{entry.text(2)});
  }
  return ir::make_dictionary(std::move(named));
}

const Shape& Site::operand_shape(size_t i) const {
  return computation.instructions[instruction.operands[i]].shape;
}

Status Site::expect_operands(size_t count) const {
  if (operands.size() == count) return ok_status();
  return error("takes {} operands, has {}", count, operands.size());
}

Status Site::expect_called(size_t count) const {
  if (instruction.called.size() == count) return ok_status();
  return error("calls {} computations, names {}", count, instruction.called.size());
}

Result<ir::Value*> Site::tensor(size_t i) const {
  if (i >= operands.size()) return error("has no operand {}", i);
  if (operand_shape(i).is_tuple || !operands[i][0]->type().is_tensor()) {
    return error("operand {} must be an array, is {}", i, shape_text(operand_shape(i)));
  }
  return operands[i][0];
}

Result<Leaves> Site::tensors(size_t first) const {
  Leaves values;
  for (size_t i = first; i < operands.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(ir::Value * value, tensor(i));
    values.push_back(value);
  }
  return values;
}

Result<ir::Type> Site::array_type() const {
  if (!shape().is_array()) return error("must give an array, not {}", shape_text(shape()));
  return shape().type;
}

Leaves Site::flat(size_t first) const {
  Leaves values;
  for (size_t i = first; i < operands.size(); ++i) {
    values.insert(values.end(), operands[i].begin(), operands[i].end());
  }
  return values;
}

Leaves Site::append_as(ir::OpCode code, std::vector<ir::Type> types, Leaves values,
                       std::vector<ir::NamedAttribute> attributes,
                       std::vector<std::unique_ptr<ir::Region>> regions) const {
  std::erase_if(attributes, [&](const ir::NamedAttribute& attribute) {
    return ir::is_default_attribute(code, attribute.first, attribute.second);
  });
  ir::Operation* op = block.append(code, std::move(values), std::move(types),
                                   ir::AttributeMap(std::move(attributes)), instruction.location);
  for (std::unique_ptr<ir::Region>& region : regions) op->adopt_region(std::move(region));
  Leaves results;
  for (size_t i = 0; i < op->result_count(); ++i) results.push_back(op->result(i));
  return results;
}

Leaves Site::append(ir::OpCode code, Leaves values, std::vector<ir::NamedAttribute> attributes,
                    std::vector<std::unique_ptr<ir::Region>> regions) const {
  return append_as(code, leaf_types(shape()), std::move(values), std::move(attributes),
                   std::move(regions));
}

Result<std::vector<int64_t>> Site::integers(InstructionField field) const {
  Result<std::vector<int64_t>> values = fields().integers(field);
  if (!values.ok()) return error("{}", values.status().message());
  return values;
}

Result<std::unique_ptr<ir::Region>> Site::region(size_t i) const {
  if (i >= instruction.called.size()) return error("names no computation {}", i);
  return converter.region(instruction.called[i], depth + 1, false, instruction.location);
}

Converter::Converter(const Program& program, ir::Module& module)
    : program_(program), module_(module), budget_(kBudgetBase) {
  for (const Computation& computation : program.computations) {
    budget_ += kBudgetFactor * cost_of(computation);
  }
  names_.insert("main");
}

Status Converter::run() {
  HEKLA_RETURN_IF_ERROR(convert_function(program_.entry, "main", /*is_public=*/true));
  while (!pending_.empty()) {
    const size_t next = pending_.back();
    pending_.pop_back();
    HEKLA_RETURN_IF_ERROR(convert_function(next, functions_[next], /*is_public=*/false));
  }
  return ok_status();
}

const std::string& Converter::function_name(size_t computation) {
  auto [place, is_new] = functions_.try_emplace(computation);
  if (is_new) {
    const std::string base(program_.computations[computation].name);
    std::string name = base.empty() ? "computation" : base;
    for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    place->second = name;
    pending_.push_back(computation);
  }
  return place->second;
}

Status Converter::convert_function(size_t computation, const std::string& name, bool is_public) {
  auto function = std::make_unique<ir::Function>(name);
  function->visibility =
      is_public ? ir::Function::Visibility::kPublic : ir::Function::Visibility::kPrivate;
  const Computation& from = program_.computations[computation];
  ir::Block& block = function->body().add_block();
  std::vector<Leaves> arguments;
  for (size_t parameter : from.parameters) {
    Leaves leaves;
    for (ir::Type& type : leaf_types(from.instructions[parameter].shape)) {
      leaves.push_back(block.add_argument(std::move(type)));
    }
    arguments.push_back(std::move(leaves));
  }
  HEKLA_ASSIGN_OR_RETURN(const Leaves results,
                         inline_body(computation, std::move(arguments), block, 0));
  block.append(ir::OpCode::kFuncReturn, results, {}, {}, from.instructions[from.root].location);
  function->type = ir::Type::function(block.argument_types(), types_of(results));
  function->argument_attributes.resize(block.argument_count());
  function->result_attributes.resize(results.size());
  module_.functions.push_back(std::move(function));
  return ok_status();
}

Result<Leaves> Converter::inline_body(size_t computation, std::vector<Leaves> arguments,
                                      ir::Block& block, int depth) {
  const Computation& from = program_.computations[computation];
  if (depth >= ir::kMaxRegionDepth) {
    return invalid_argument("HLO computation %{}: computations nest deeper than {}", from.name,
                            ir::kMaxRegionDepth);
  }
  budget_ -= cost_of(from);
  if (budget_ < 0) {
    return invalid_argument(
        "HLO computation %{}: with a copy of each callee for each of its callers the program is "
        "more than {} times as large",
        from.name, kBudgetFactor);
  }
  if (arguments.size() != from.parameters.size()) {
    return invalid_argument("HLO computation %{} takes {} parameters, is called with {}", from.name,
                            from.parameters.size(), arguments.size());
  }
  std::vector<Leaves> values(from.instructions.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Instruction& parameter = from.instructions[from.parameters[i]];
    const std::vector<ir::Type> types = types_of(arguments[i]);
    if (!agree(types, leaf_types(parameter.shape))) {
      return invalid_argument("{} is {}, the call gives ({})", describe(parameter, from),
                              shape_text(parameter.shape), ir::types_string(types));
    }
    values[from.parameters[i]] = std::move(arguments[i]);
  }
  for (size_t i = 0; i < from.instructions.size(); ++i) {
    const Instruction& instruction = from.instructions[i];
    if (instruction.opcode == "parameter") continue;
    Site site{*this, from, instruction, {}, block, depth};
    for (size_t operand : instruction.operands) site.operands.push_back(values[operand]);
    HEKLA_ASSIGN_OR_RETURN(values[i], convert(site));
    if (!agree(types_of(values[i]), leaf_types(instruction.shape))) {
      return site.error("is ({}), declared as {}", ir::types_string(types_of(values[i])),
                        shape_text(instruction.shape));
    }
  }
  return std::move(values[from.root]);
}

Result<Leaves> Converter::body_or_call(size_t computation, std::vector<Leaves> arguments,
                                       ir::Block& block, int depth,
                                       const ir::LocationRef& location) {
  const Computation& callee = program_.computations[computation];
  if (callee.call_count <= 1) return inline_body(computation, std::move(arguments), block, depth);
  Leaves flat;
  for (const Leaves& argument : arguments)
    flat.insert(flat.end(), argument.begin(), argument.end());
  ir::Operation* call = block.append(
      ir::OpCode::kFuncCall, std::move(flat), leaf_types(callee.instructions[callee.root].shape),
      {{{"callee", ir::SymbolValue{function_name(computation)}}}}, location);
  Leaves results;
  for (size_t i = 0; i < call->result_count(); ++i) results.push_back(call->result(i));
  return results;
}

Result<std::unique_ptr<ir::Region>> Converter::region(size_t computation, int depth, bool may_call,
                                                      const ir::LocationRef& location) {
  const Computation& callee = program_.computations[computation];
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& block = region->add_block();
  std::vector<Leaves> arguments;
  for (size_t parameter : callee.parameters) {
    Leaves leaves;
    for (ir::Type& type : leaf_types(callee.instructions[parameter].shape)) {
      leaves.push_back(block.add_argument(std::move(type)));
    }
    arguments.push_back(std::move(leaves));
  }
  Result<Leaves> results =
      may_call ? body_or_call(computation, std::move(arguments), block, depth, location)
               : inline_body(computation, std::move(arguments), block, depth);
  HEKLA_RETURN_IF_ERROR(results.status());
  block.append(ir::OpCode::kReturn, *std::move(results), {}, {}, location);
  return region;
}

Result<std::unique_ptr<ir::Region>> Converter::branch(size_t computation,
                                                      std::vector<Leaves> arguments, int depth,
                                                      const ir::LocationRef& location) {
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& block = region->add_block();
  HEKLA_ASSIGN_OR_RETURN(Leaves results,
                         body_or_call(computation, std::move(arguments), block, depth, location));
  block.append(ir::OpCode::kReturn, std::move(results), {}, {}, location);
  return region;
}

Result<Leaves> Converter::convert(const Site& site) {
  const Handler* handler = find_handler(site.instruction.opcode);
  if (handler != nullptr) {
    const ir::Operation* const before = site.block.terminator();
    HEKLA_ASSIGN_OR_RETURN(Leaves values, handler->convert(site));
    ir::Operation* const made = site.block.terminator();
    const bool has_made = made != before && !values.empty() && values[0]->defining_op() == made;
    if (has_made) HEKLA_RETURN_IF_ERROR(annotate(site, *made));
    return values;
  }
  // Kept by its name, so that a device can say of everything at once that it lacks it.
  auto unknown = ir::Operation::unknown(fmt::format("hlo.{}", site.instruction.opcode), site.flat(),
                                        leaf_types(site.shape()), {}, site.instruction.location);
  ir::Operation* op = site.block.append(std::move(unknown));
  Leaves results;
  for (size_t i = 0; i < op->result_count(); ++i) results.push_back(op->result(i));
  return results;
}

}  // namespace hekla::hlo
