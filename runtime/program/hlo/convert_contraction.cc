// SPDX-License-Identifier: Apache-2.0
// dot and convolution.
#include <utility>

#include "runtime/program/hlo/attributes.h"
#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;

Result<Leaves> convert_dot(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(2));
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  // Dense ones leave an empty message.
  if (!site.fields().bytes(kSparsityConfig).empty()) return site.refuse("has sparse operands");
  HEKLA_ASSIGN_OR_RETURN(const Message numbers, site.fields().message(kDotNumbers, "dot numbers"));
  HEKLA_ASSIGN_OR_RETURN(ir::DotDimensionNumbers dims, dot_numbers(numbers));
  HEKLA_ASSIGN_OR_RETURN(Precision precision, read_precision(site.fields()));
  return site.append(OpCode::kDotGeneral, std::move(operands),
                     {{"dot_dimension_numbers", std::move(dims)},
                      {"precision_config", std::move(precision.config)},
                      {"algorithm", std::move(precision.algorithm)}});
}

Result<Leaves> convert_convolution(const Site& site) {
  if (site.operands.size() != 2) {
    return site.refuse("has {} operands; sparse ones are not offered", site.operands.size());
  }
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  // Dense ones leave an empty message.
  if (!site.fields().bytes(kSparsityConfig).empty()) return site.refuse("has sparse operands");
  HEKLA_ASSIGN_OR_RETURN(Window window, read_window(site.fields()));
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute numbers, convolution_numbers(site.fields()));
  HEKLA_ASSIGN_OR_RETURN(Precision precision, read_precision(site.fields()));
  const auto count = [&](InstructionField field) {
    const int64_t value = site.fields().integer(field);
    return ir::i64_attribute(value == 0 ? 1 : value);
  };
  return site.append(OpCode::kConvolution, std::move(operands),
                     {{"dimension_numbers", std::move(numbers)},
                      {"feature_group_count", count(kFeatureGroupCount)},
                      {"batch_group_count", count(kBatchGroupCount)},
                      {"padding", window.padding()},
                      {"window_strides", ir::i64_array(std::move(window.stride))},
                      {"lhs_dilation", ir::i64_array(std::move(window.base_dilation))},
                      {"rhs_dilation", ir::i64_array(std::move(window.window_dilation))},
                      {"window_reversal", ir::bool_array(window.reversal)},
                      {"precision_config", std::move(precision.config)}});
}

constexpr Handler kContraction[] = {
    {"convolution", convert_convolution},
    {"dot", convert_dot},
};

}  // namespace

std::span<const Handler> contraction_handlers() { return kContraction; }

}  // namespace hekla::hlo
