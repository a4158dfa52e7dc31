// SPDX-License-Identifier: Apache-2.0
// The pretty forms with a structure of their own.
#include <fmt/format.h>

#include "runtime/program/stablehlo/text/module_printer.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {

using ir::OpCode;

namespace {

// "HIGHEST, DEFAULT"; empty where the list holds anything but precisions.
std::string precision_words(const ir::Attribute& attribute) {
  const auto* list = attribute.get<ir::ArrayValue>();
  if (list == nullptr) return "";
  std::string text;
  for (const ir::Attribute& element : list->elements) {
    const std::string* word = enum_word(element, "precision");
    if (word == nullptr) return "";
    text += (text.empty() ? "" : ", ") + *word;
  }
  return text;
}
}  // namespace

bool ModulePrinter::print_slice(const ir::Operation& op) {
  const std::vector<int64_t>* starts = i64_list(op.attribute("start_indices"));
  const std::vector<int64_t>* limits = i64_list(op.attribute("limit_indices"));
  const std::vector<int64_t>* strides = i64_list(op.attribute("strides"));
  if (op.operand_count() != 1 || starts == nullptr || limits == nullptr || strides == nullptr ||
      starts->size() != limits->size() || starts->size() != strides->size()) {
    return false;
  }
  std::string ranges;
  for (size_t i = 0; i < starts->size(); ++i) {
    ranges += fmt::format("{}{}:{}", i > 0 ? ", " : "", (*starts)[i], (*limits)[i]);
    if ((*strides)[i] != 1) ranges += fmt::format(":{}", (*strides)[i]);
  }
  out_ += fmt::format("{} {} [{}]{} : {}", op.name(), operand_list(op), ranges,
                      other_attributes(op, {"start_indices", "limit_indices", "strides"}),
                      function_type(op));
  return true;
}

bool ModulePrinter::print_dot_general(const ir::Operation& op) {
  const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  const ir::Attribute& precision = op.attribute("precision_config");
  const ir::Attribute& algorithm = op.attribute("algorithm");
  const std::string words = precision_words(precision);
  const auto* a = algorithm.get<ir::DotAlgorithm>();
  if (op.operand_count() != 2 || n == nullptr || (!precision.is_absent() && words.empty()) ||
      (!algorithm.is_absent() && a == nullptr)) {
    return false;
  }
  out_ += fmt::format("{} {}", op.name(), operand_list(op));
  if (!n->lhs_batching_dimensions.empty() || !n->rhs_batching_dimensions.empty()) {
    out_ += fmt::format(", batching_dims = {} x {}", list_text(n->lhs_batching_dimensions),
                        list_text(n->rhs_batching_dimensions));
  }
  out_ += fmt::format(", contracting_dims = {} x {}", list_text(n->lhs_contracting_dimensions),
                      list_text(n->rhs_contracting_dimensions));
  if (!words.empty()) out_ += fmt::format(", precision = [{}]", words);
  if (a != nullptr) out_ += ", algorithm = " + algorithm_text(*a);
  out_ += fmt::format(
      "{} : {}", other_attributes(op, {"dot_dimension_numbers", "precision_config", "algorithm"}),
      function_type(op));
  return true;
}

bool ModulePrinter::print_convolution(const ir::Operation& op) {
  const auto* numbers = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  const std::string lists = numbers == nullptr ? "" : conv_lists_text(*numbers);
  if (op.operand_count() != 2 || lists.empty()) return false;
  std::string window;
  const auto field = [&](std::string_view text) {
    window += (window.empty() ? "" : ", ") + std::string(text);
  };
  const auto list = [&](std::string_view keyword, std::string_view attribute) {
    if (op.attribute(attribute).is_absent()) return true;
    const std::vector<int64_t>* values = i64_list(op.attribute(attribute));
    if (values == nullptr) return false;
    field(fmt::format("{} = {}", keyword, list_text(*values)));
    return true;
  };
  if (!list("stride", "window_strides")) return false;
  if (const ir::Attribute& padding = op.attribute("padding"); !padding.is_absent()) {
    const auto* dense = padding.get<ir::DenseValue>();
    if (dense == nullptr || dense->type.rank() != 2 || dense->type.dims()[1] != 2 ||
        !(dense->type.element() == ir::Type::scalar(DType::kI64)) ||
        dense->type.dims()[0] > op.operand(0)->type().rank()) {
      return false;
    }
    const Result<HostArray> pairs = dense->expand();
    if (!pairs.ok()) return false;
    std::string text;
    for (int64_t i = 0; i < dense->type.dims()[0]; ++i) {
      text += fmt::format("{}[{}, {}]", i > 0 ? ", " : "", pairs->as<int64_t>()[2 * i],
                          pairs->as<int64_t>()[2 * i + 1]);
    }
    field(fmt::format("pad = [{}]", text));
  }
  if (!list("lhs_dilate", "lhs_dilation") || !list("rhs_dilate", "rhs_dilation")) return false;
  if (const ir::Attribute& reversal = op.attribute("window_reversal"); !reversal.is_absent()) {
    const auto* flags = reversal.get<ir::IntArrayValue>();
    if (flags == nullptr || flags->dtype != DType::kI1) return false;
    std::string text;
    for (int64_t flag : flags->values) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", flag != 0);
    }
    field(fmt::format("reverse = [{}]", text));
  }
  out_ += fmt::format("{}({}) dim_numbers = {}, window = {{{}}}{} : {}", op.name(),
                      operand_list(op), lists, window,
                      other_attributes(op, {"dimension_numbers", "window_strides", "padding",
                                            "lhs_dilation", "rhs_dilation", "window_reversal"}),
                      function_type(op));
  return true;
}

namespace {

// The op that a reducer consists of, applied to its two arguments in order; null for any other
// body. StableHLO has the short form for commutative ops.
const ir::Operation* applied_op(const ir::Operation& reduce) {
  const ir::Block& block = reduce.region(0).front();
  if (block.argument_count() != 2 || block.operations().size() != 2) return nullptr;
  const ir::Operation& op = *block.operations()[0];
  const ir::Operation& end = *block.operations()[1];
  if (!ir::is_commutative_reducer(op.code())) return nullptr;
  const ir::Type& init = reduce.operand(1)->type();
  const bool fits = op.operand_count() == 2 && op.result_count() == 1 && op.region_count() == 0 &&
                    op.attributes().empty() && op.operand(0) == block.argument(0) &&
                    op.operand(1) == block.argument(1) && init.is_tensor() &&
                    end.code() == OpCode::kReturn && end.operand_count() == 1 &&
                    end.operand(0) == op.result() && end.attributes().empty() &&
                    end.result_count() == 0 && end.region_count() == 0;
  if (!fits) return nullptr;
  const ir::Type scalar = ir::Type::tensor(init.element(), {});
  const bool types_fit = block.argument(0)->type() == scalar &&
                         block.argument(1)->type() == scalar && op.result()->type() == scalar;
  return types_fit ? &op : nullptr;
}

}  // namespace

bool ModulePrinter::print_reduce(const ir::Operation& op, int depth) {
  const std::vector<int64_t>* dimensions = i64_list(op.attribute("dimensions"));
  const size_t count = op.operand_count() / 2;
  if (count == 0 || op.operand_count() % 2 != 0 || dimensions == nullptr ||
      op.region_count() != 1 || op.region(0).blocks().size() != 1 ||
      op.region(0).front().argument_count() != op.operand_count()) {
    return false;
  }
  out_ += op.name();
  for (size_t i = 0; i < count; ++i) {
    out_ += fmt::format("{}({} init: {})", i > 0 ? ", " : "", name(op.operand(i)),
                        name(op.operand(count + i)));
  }
  const ir::Operation* applied = count == 1 ? applied_op(op) : nullptr;
  if (applied != nullptr) out_ += fmt::format(" applies {}", applied->name());
  out_ += fmt::format(" across dimensions = {}{} : {}", list_text(*dimensions),
                      other_attributes(op, {"dimensions"}), function_type(op));
  if (applied != nullptr) return true;
  out_ += "\n";
  indent(depth);
  out_ += " reducer";
  const ir::Block& block = op.region(0).front();
  for (size_t i = 0; i < block.argument_count(); ++i) name_argument(block.argument(i));
  for (size_t i = 0; i < count; ++i) {
    const ir::Value* left = block.argument(i);
    const ir::Value* right = block.argument(count + i);
    out_ += fmt::format("({}: {}, {}: {}) ", name(left), left->type().to_string(), name(right),
                        right->type().to_string());
  }
  print_region(op.region(0), depth, true);
  return true;
}

bool ModulePrinter::print_while(const ir::Operation& op, int depth) {
  const std::vector<ir::Type> types = operand_types(op);
  if (types.empty() || op.result_types() != types || op.region_count() != 2) return false;
  for (size_t r = 0; r < 2; ++r) {
    if (op.region(r).blocks().size() != 1 || op.region(r).front().argument_types() != types) {
      return false;
    }
  }
  out_ += op.name();
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& argument = name_argument(op.region(0).front().argument(i));
    names_[op.region(1).front().argument(i)] = argument;
    out_ += fmt::format("{}{} = {}", i == 0 ? "(" : ", ", argument, name(op.operand(i)));
  }
  out_ += fmt::format(") : {}", ir::types_string(types));
  const std::string attributes = other_attributes(op, {});
  if (!attributes.empty()) out_ += " attributes" + attributes;
  out_ += "\n";
  indent(depth);
  out_ += " cond ";
  print_region(op.region(0), depth, true);
  out_ += " do ";
  print_region(op.region(1), depth, true);
  return true;
}

}  // namespace hekla::stablehlo
