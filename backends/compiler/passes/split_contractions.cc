// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "backends/compiler/passes/sum_parts.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/accumulator.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Value;

bool is_summed_in_parts(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16 || dtype == DType::kI32 || is_complex(dtype);
}

int64_t wanted_parts(int64_t points, int64_t depth, const SplitLimits& limits) {
  if (points == 0) return 1;
  if (points <= limits.few_points && depth < limits.long_depth_of_few) {
    return std::min(limits.most_few_points / points, depth / limits.least_depth_of_few);
  }
  if (depth < limits.long_depth) return 1;
  return std::min(limits.most_points / points, depth / limits.least_depth);
}

// The parts are one more batch dimension, the first one.
Value* split_dot(GraphBuilder& g, const ir::Operation& op, const SplitLimits& limits) {
  const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  if (n == nullptr || n->lhs_contracting_dimensions.empty()) return nullptr;
  const Dims& lhs = op.operand(0)->type().dims();
  int64_t depth = 1;
  for (int64_t d : n->lhs_contracting_dimensions) depth *= lhs[static_cast<size_t>(d)];
  const Dims& dims = op.result()->type().dims();
  const int64_t most = wanted_parts(element_count(dims), depth, limits);
  size_t which = 0;
  Parts parts;
  for (size_t k = 0; k < n->lhs_contracting_dimensions.size(); ++k) {
    const int64_t size = lhs[static_cast<size_t>(n->lhs_contracting_dimensions[k])];
    if (const Parts here = nearly_equal_parts(size, most); here.count > parts.count) {
      which = k;
      parts = here;
    }
  }
  if (parts.count < 2) return nullptr;
  const auto shifted = [](const std::vector<int64_t>& batch,
                          const std::vector<int64_t>& contracting, int64_t at) {
    std::pair numbers(behind_cut(batch, at), behind_cut(contracting, at));
    numbers.first.insert(numbers.first.begin(), at);
    return numbers;
  };
  const int64_t l = n->lhs_contracting_dimensions[which], r = n->rhs_contracting_dimensions[which];
  ir::DotDimensionNumbers numbers;
  std::tie(numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions) =
      shifted(n->lhs_batching_dimensions, n->lhs_contracting_dimensions, l);
  std::tie(numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions) =
      shifted(n->rhs_batching_dimensions, n->rhs_contracting_dimensions, r);
  Dims with_parts = dims;
  with_parts.insert(with_parts.begin(), parts.count);
  ir::AttributeMap attributes = op.attributes();
  attributes.set("dot_dimension_numbers", ir::Attribute(numbers));
  const DType dtype = ir::accumulator_dtype(op.result()->type().dtype());
  const int64_t cut = parts.count * parts.length;
  const auto in_parts = [&](Value* x, int64_t d) {
    const auto at = static_cast<size_t>(d);
    return cut_dimension(g, slice_dimension(g, x, at, 0, cut), at, parts.count);
  };
  Value* sum =
      add_up(g,
             g.make(OpCode::kDotGeneral, {in_parts(op.operand(0), l), in_parts(op.operand(1), r)},
                    std::move(attributes), ir::Type::tensor(dtype, with_parts)),
             0);
  if (parts.rest == 0) return sum;
  const auto rest_of = [&](Value* x, int64_t d) {
    return slice_dimension(g, x, static_cast<size_t>(d), cut, cut + parts.rest);
  };
  return g.add(sum,
               g.make(OpCode::kDotGeneral, {rest_of(op.operand(0), l), rest_of(op.operand(1), r)},
                      op.attributes(), ir::Type::tensor(dtype, dims)));
}

// The parts are groups of input features, each with output features of its own.
Value* split_convolution(GraphBuilder& g, const ir::Operation& op, const SplitLimits& limits) {
  const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  if (n == nullptr || ir::int_value(op, "feature_group_count", 1) != 1 ||
      ir::int_value(op, "batch_group_count", 1) != 1) {
    return nullptr;
  }
  const Dims& rhs = op.operand(1)->type().dims();
  const auto in = static_cast<size_t>(n->kernel_input_feature_dimension);
  const auto out = static_cast<size_t>(n->kernel_output_feature_dimension);
  const auto feature = static_cast<size_t>(n->output_feature_dimension);
  const Dims& dims = op.result()->type().dims();
  const int64_t outputs = rhs[out];
  if (outputs == 0) return nullptr;
  const int64_t depth = element_count(rhs) / outputs;
  const auto [parts, length, rest] =
      nearly_equal_parts(rhs[in], wanted_parts(element_count(dims), depth, limits));
  if (parts < 2) return nullptr;
  const int64_t cut = parts * length;
  const auto features = static_cast<size_t>(n->input_feature_dimension);
  Value* kernel = cut_dimension(g, slice_dimension(g, op.operand(1), in, 0, cut), in, parts);
  // The parts go in front of the output features.
  std::vector<int64_t> order(kernel->type().rank());
  std::iota(order.begin(), order.end(), int64_t{0});
  order.erase(order.begin() + static_cast<ptrdiff_t>(in));
  const auto moved_out = static_cast<int64_t>(out > in ? out + 1 : out);
  order.insert(std::find(order.begin(), order.end(), moved_out), static_cast<int64_t>(in));
  if (!std::is_sorted(order.begin(), order.end())) kernel = g.transpose(kernel, order);
  Dims grouped = rhs;
  grouped[in] = length;
  grouped[out] *= parts;
  kernel = g.reshape(kernel, grouped);
  Dims result = dims;
  result[feature] *= parts;
  ir::AttributeMap attributes = op.attributes();
  attributes.set("feature_group_count", ir::i64_attribute(parts));
  const DType dtype = ir::accumulator_dtype(op.result()->type().dtype());
  Value* all =
      g.make(OpCode::kConvolution, {slice_dimension(g, op.operand(0), features, 0, cut), kernel},
             std::move(attributes), ir::Type::tensor(dtype, result));
  Value* sum = add_up(g, cut_dimension(g, all, feature, parts), feature);
  if (rest == 0) return sum;
  return g.add(sum, g.make(OpCode::kConvolution,
                           {slice_dimension(g, op.operand(0), features, cut, cut + rest),
                            slice_dimension(g, op.operand(1), in, cut, cut + rest)},
                           op.attributes(), ir::Type::tensor(dtype, dims)));
}

bool may_be_split(const ir::Operation& op) {
  const bool is_one = op.code() == OpCode::kDotGeneral || op.code() == OpCode::kConvolution;
  return is_one && has_plain_types(op) && is_summed_in_parts(op.result()->type().dtype());
}

}  // namespace

Status split_contractions(ir::Module& module, const SplitLimits& limits,
                          const std::function<bool(const ir::Operation&)>& is_kept) {
  for (ir::Operation* op : operations_of(module, may_be_split)) {
    if (is_kept && is_kept(*op)) continue;
    GraphBuilder g(*op->block(), op, op->location());
    Value* whole = op->code() == OpCode::kDotGeneral ? split_dot(g, *op, limits)
                                                     : split_convolution(g, *op, limits);
    if (whole == nullptr) continue;
    const DType dtype = op->result()->type().dtype();
    if (whole->type().dtype() != dtype) whole = g.convert(whole, dtype);
    HEKLA_RETURN_IF_ERROR(g.status());
    op->result()->replace_all_uses_with(whole);
    op->block()->erase(op);
  }
  return ok_status();
}

}  // namespace hekla::passes
