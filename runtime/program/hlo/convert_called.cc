// SPDX-License-Identifier: Apache-2.0
// Tuples, which are gone afterwards, and instructions that call computations.
#include <utility>

#include "runtime/program/hlo/attributes.h"
#include "runtime/program/hlo/converter.h"
#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;
using Regions = std::vector<std::unique_ptr<ir::Region>>;

Result<Leaves> convert_tuple(const Site& site) { return site.flat(); }

// The first operand as it is. What follows it only orders.
Result<Leaves> convert_identity(const Site& site) {
  if (site.operands.empty()) return site.error("has no operand");
  return site.operands[0];
}

Result<Leaves> convert_get_tuple_element(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  const Shape& tuple = site.operand_shape(0);
  const int64_t index = site.fields().integer(kTupleIndex);
  if (!tuple.is_tuple || index < 0 || index >= static_cast<int64_t>(tuple.elements.size())) {
    return site.error("{} has no element {}", shape_text(tuple), index);
  }
  const size_t element = static_cast<size_t>(index);
  const auto first =
      site.operands[0].begin() + static_cast<std::ptrdiff_t>(first_leaf(tuple, element));
  return Leaves(first, first + static_cast<std::ptrdiff_t>(tuple.elements[element].leaf_count));
}

Result<Leaves> convert_optimization_barrier(const Site& site) {
  return site.append(OpCode::kOptimizationBarrier, site.flat());
}

Result<Leaves> convert_after_all(const Site& site) {
  if (site.operands.empty()) return site.append(OpCode::kCreateToken, {});
  return site.append(OpCode::kAfterAll, site.flat());
}

// A composite says in its frontend attributes what it is.
Result<Leaves> convert_composite(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const ir::Attribute notes, frontend_attributes(site.fields()));
  const auto* dictionary = notes.get<ir::DictionaryValue>();
  const auto text = [&](std::string_view name) {
    const ir::Attribute* found = dictionary == nullptr ? nullptr : dictionary->find(name);
    const auto* value = found == nullptr ? nullptr : found->get<ir::StringValue>();
    return value == nullptr ? std::string() : value->value;
  };
  const std::string name = text("composite.name");
  if (name.empty()) return site.error("is a composite without a name");
  int64_t version = 0;
  for (char digit : text("composite.version")) {
    if (digit < '0' || digit > '9' || version > 1'000'000) {
      return site.error("has the composite version '{}'", text("composite.version"));
    }
    version = version * 10 + (digit - '0');
  }
  std::vector<ir::NamedAttribute> attributes = {
      {"name", ir::StringValue{name}},
      {"decomposition", ir::SymbolValue{site.converter.function_name(site.instruction.called[0])}},
      {"version", ir::IntegerValue{ir::Type::scalar(DType::kI32), version}}};
  if (const std::string given = text("composite.attributes"); !given.empty()) {
    Result<ir::Attribute> parsed = parse_dictionary(given);
    if (!parsed.ok()) return site.error("{}", parsed.status().message());
    attributes.emplace_back("composite_attributes", *std::move(parsed));
  }
  return site.append(OpCode::kComposite, site.flat(), std::move(attributes));
}

Result<Leaves> convert_call(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  if (site.fields().flag(kIsComposite)) return convert_composite(site);
  const size_t callee = site.instruction.called[0];
  const Computation& called = site.converter.program().computations[callee];
  return site.append_as(OpCode::kFuncCall, leaf_types(called.instructions[called.root].shape),
                        site.flat(),
                        {{"callee", ir::SymbolValue{site.converter.function_name(callee)}}});
}

Result<Leaves> convert_fusion(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  return site.converter.body_or_call(site.instruction.called[0], site.operands, site.block,
                                     site.depth + 1, site.instruction.location);
}

Result<Leaves> convert_while(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_RETURN_IF_ERROR(site.expect_called(2));
  Regions regions;
  // The body is called first, then the condition.
  for (size_t called : {site.instruction.called[1], site.instruction.called[0]}) {
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> region,
                           site.converter.region(called, site.depth + 1, /*may_call=*/true,
                                                 site.instruction.location));
    regions.push_back(std::move(region));
  }
  return site.append(OpCode::kWhile, site.flat(), {}, std::move(regions));
}

Result<Leaves> convert_conditional(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(ir::Value * selector, site.tensor(0));
  const size_t branches = site.instruction.called.size();
  if (branches == 0 || site.operands.size() != branches + 1) {
    return site.error("has {} branches and {} operands", branches, site.operands.size());
  }
  const bool is_if = selector->type().dtype() == DType::kI1;
  if (is_if && branches != 2) return site.error("chooses by a truth among {} branches", branches);
  Regions regions;
  for (size_t i = 0; i < branches; ++i) {
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> region,
                           site.converter.branch(site.instruction.called[i], {site.operands[i + 1]},
                                                 site.depth + 1, site.instruction.location));
    regions.push_back(std::move(region));
  }
  return site.append(is_if ? OpCode::kIf : OpCode::kCase, {selector}, {}, std::move(regions));
}

// All operands are arrays and the called computations are the regions.
Result<Leaves> with_regions(const Site& site, OpCode code, size_t count,
                            std::vector<ir::NamedAttribute> attributes) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.expect_called(count));
  Regions regions;
  for (size_t i = 0; i < count; ++i) {
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> region, site.region(i));
    regions.push_back(std::move(region));
  }
  return site.append(code, std::move(operands), std::move(attributes), std::move(regions));
}

Result<Leaves> convert_map(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, site.integers(kDimensionsField));
  return with_regions(site, OpCode::kMap, 1, {{"dimensions", ir::i64_array(std::move(dims))}});
}

Result<Leaves> convert_reduce(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, site.integers(kDimensionsField));
  return with_regions(site, OpCode::kReduce, 1, {{"dimensions", ir::i64_array(std::move(dims))}});
}

Result<Window> window_of(const Site& site) {
  Result<Window> window = read_window(site.fields());
  if (!window.ok()) return site.error("{}", window.status().message());
  if (window->is_reversed()) return site.refuse("reverses its window");
  return window;
}

Result<Leaves> convert_reduce_window(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Window window, window_of(site));
  return with_regions(site, OpCode::kReduceWindow, 1,
                      {{"padding", window.padding()},
                       {"window_dimensions", ir::i64_array(std::move(window.size))},
                       {"window_strides", ir::i64_array(std::move(window.stride))},
                       {"base_dilations", ir::i64_array(std::move(window.base_dilation))},
                       {"window_dilations", ir::i64_array(std::move(window.window_dilation))}});
}

Result<Leaves> convert_select_and_scatter(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Window window, window_of(site));
  if (window.is_dilated()) return site.refuse("has a dilated window");
  return with_regions(site, OpCode::kSelectAndScatter, 2,
                      {{"padding", window.padding()},
                       {"window_dimensions", ir::i64_array(std::move(window.size))},
                       {"window_strides", ir::i64_array(std::move(window.stride))}});
}

Result<Leaves> convert_sort(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, site.integers(kDimensionsField));
  if (dims.size() != 1) return site.error("sorts along one dimension, has {}", dims.size());
  return with_regions(site, OpCode::kSort, 1,
                      {{"dimension", ir::i64_attribute(dims[0])},
                       {"is_stable", ir::BoolValue{site.fields().flag(kIsStable)}}});
}

constexpr Handler kCalled[] = {
    {"add-dependency", convert_identity},
    {"after-all", convert_after_all},
    {"call", convert_call},
    {"conditional", convert_conditional},
    {"copy", convert_identity},
    {"domain", convert_identity},
    {"fusion", convert_fusion},
    {"get-tuple-element", convert_get_tuple_element},
    {"map", convert_map},
    {"opt-barrier", convert_optimization_barrier},
    {"reduce", convert_reduce},
    {"reduce-window", convert_reduce_window},
    {"select-and-scatter", convert_select_and_scatter},
    {"sort", convert_sort},
    {"tuple", convert_tuple},
    {"while", convert_while},
};

}  // namespace

std::span<const Handler> called_handlers() { return kCalled; }

}  // namespace hekla::hlo
