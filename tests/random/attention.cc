// SPDX-License-Identifier: Apache-2.0
#include "tests/random/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "runtime/program/ir/clone.h"

namespace hekla::testing {

namespace {

double element_of(const HostArray& array, int64_t i) {
  const auto width = static_cast<size_t>(dtype_bytes(array.dtype()));
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + static_cast<ptrdiff_t>(width) * i, width);
  return float_from_bits(array.dtype(), bits);
}

// The greatest magnitude of the finite elements; those that are not are counted.
double greatest_of(const HostArray& array, bool& is_finite) {
  double greatest = 0;
  for (int64_t i = 0; i < array.size(); ++i) {
    const double value = std::fabs(element_of(array, i));
    if (std::isfinite(value)) {
      greatest = std::max(greatest, value);
    } else {
      is_finite = false;
    }
  }
  return greatest;
}

// Half a unit in the last place of 1.
double rounding(DType dtype) { return std::ldexp(0.5, -float_format(dtype).mantissa_bits); }

}  // namespace

namespace {

lower::LowerOptions all_options() {
  lower::LowerOptions options;
  options.attention_points = 256;
  options.attention_words = 12 * 1024;
  options.attention_always = options.small_limits = true;
  return options;
}

// The same program, with these results.
std::unique_ptr<ir::Module> with_results(const ir::Module& module,
                                         const std::vector<const ir::Operation*>& ops) {
  std::unique_ptr<ir::Module> alone = ir::clone_module(module);
  ir::Function& entry = *alone->entry();
  ir::Block& block = entry.body().front();
  const auto& from = module.entry()->body().front().operations();
  std::vector<ir::Value*> results;
  std::vector<ir::Type> types;
  for (const ir::Operation* op : ops) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i].get() != op) continue;
      results.push_back(block.operations()[i]->result());
      types.push_back(results.back()->type());
    }
  }
  block.terminator()->set_operands(results);
  entry.type = ir::Type::function(block.argument_types(), types);
  entry.result_attributes.resize(results.size());
  return alone;
}

std::vector<const ir::Operation*> products_of(const lower::RecomputedScores& scores) {
  std::vector<const ir::Operation*> products;
  for (const ir::Operation* op : scores.roots) {
    if (op->code() == ir::OpCode::kDotGeneral) products.push_back(op);
  }
  return products;
}

double depth_of(const ir::Operation& product) {
  const auto* n = product.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  double depth = 1;
  for (const int64_t d : n->lhs_contracting_dimensions) {
    depth *= static_cast<double>(product.operand(0)->type().dims()[static_cast<size_t>(d)]);
  }
  return depth;
}

}  // namespace

std::vector<lower::Attention> attentions_of(const ir::Module& module) {
  std::vector<lower::Attention> found;
  for (const auto& op : module.entry()->body().front().operations()) {
    kernel::Refusal why;
    if (auto one = lower::find_attention(*op, all_options(), why)) found.push_back(std::move(*one));
  }
  return found;
}

std::unique_ptr<ir::Module> attention_alone(const ir::Module& module,
                                            const lower::Attention& attention) {
  return with_results(module, {attention.product});
}

std::vector<lower::RecomputedScores> recomputed_scores_of(const ir::Module& module) {
  std::unordered_set<const ir::Operation*> taken;
  for (const lower::Attention& attention : attentions_of(module)) {
    taken.insert(attention.members.begin(), attention.members.end());
  }
  std::vector<lower::RecomputedScores> all = lower::find_recomputed_scores(
      module.entry()->body().front(), [&](const ir::Operation& op) { return taken.contains(&op); },
      all_options());
  std::erase_if(all, [](const lower::RecomputedScores& one) { return !one.why_not.empty(); });
  return all;
}

std::unique_ptr<ir::Module> gradients_alone(const ir::Module& module,
                                            const lower::RecomputedScores& scores) {
  return with_results(module, products_of(scores));
}

// A weight e^(x - m) / l: x comes with the rounding of a sum of `depth` products, as both have it,
// so it is off by that much of itself; l by that of a sum of `columns` terms. Sums of values are,
// too.
std::string attention_difference(const lower::Attention& attention,
                                 const std::unordered_map<const ir::Value*, HostArray>& values,
                                 const HostArray& got) {
  const HostArray& want = values.at(attention.product->result());
  const ir::Value& weights = *attention.product->operand(attention.weights_operand);
  const ir::Value& right = *attention.product->operand(1 - attention.weights_operand);
  bool is_finite = true;
  const double value = greatest_of(values.at(&right), is_finite);
  if (!is_finite) return "";  // 0 * infinity, where a weight is or is not too small
  // Masks are far greater, and exact.
  const double score = greatest_of(values.at(attention.scores->result()), is_finite);
  const double depth = depth_of(*attention.scores);
  const double f32 = rounding(DType::kF32);
  const double each = (8 + score) * (depth + 4) * f32 + 2 * rounding(weights.type().dtype());
  const double sums = 2 * (static_cast<double>(attention.columns()) + 8) * f32;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = element_of(got, i), b = element_of(want, i);
    const double bound = value * (2 * each + sums) + 2 * rounding(got.dtype()) * std::fabs(b);
    const bool is_right = std::isfinite(b) ? std::fabs(a - b) <= bound : !std::isfinite(a);
    if (!is_right) {
      return fmt::format("element {} of {}: {} instead of {}, tolerance {}", i,
                         attention.product->result()->type().to_string(), a, b, bound);
    }
  }
  return "";
}

// A gradient is a sum of g_i x_i. Each g_i is made of a weight p, off as above, and of what is p
// times a product of cotangents and values, off by the rounding of that, so by no more than that
// much of the greatest of these. Weights of a row are 1 together; those of a column may be as many.
std::string gradient_difference(const lower::RecomputedScores& scores,
                                const std::unordered_map<const ir::Value*, HostArray>& values,
                                const std::vector<HostArray>& got) {
  const double f32 = rounding(DType::kF32);
  double each = 0, greatest = 1, terms = 0;
  bool is_finite = true;
  for (const ir::Operation* op : scores.members) {
    const HostArray& value = values.at(op->result());
    if (is_float(value.dtype()) && value.dtype() != DType::kF32)
      each += 2 * rounding(value.dtype());
    if (op->code() != ir::OpCode::kDotGeneral) continue;
    const double most = greatest_of(value, is_finite);
    greatest = std::max(greatest, most);
    each += (8 + most) * (depth_of(*op) + 4) * f32;
    terms = static_cast<double>(value.size());
  }
  for (const ir::Operation* op : scores.roots) {
    terms = std::max(terms, 1.0);
    if (op->code() == ir::OpCode::kReduce) {
      each += 2 * (terms / static_cast<double>(values.at(op->result()).size()) + 8) * f32;
    }
  }
  const std::vector<const ir::Operation*> products = products_of(scores);
  for (size_t k = 0; k < products.size(); ++k) {
    const HostArray& want = values.at(products[k]->result());
    double right = 0;
    for (const ir::Value* operand : products[k]->operands()) {
      const ir::Operation* made_by = operand->defining_op();
      const bool is_member =
          std::find(scores.members.begin(), scores.members.end(), made_by) != scores.members.end();
      if (!is_member) right = greatest_of(values.at(operand), is_finite);
    }
    const double summed = depth_of(*products[k]);
    for (int64_t i = 0; i < got[k].size(); ++i) {
      const double a = element_of(got[k], i), b = element_of(want, i);
      const double bound = summed * right * greatest * (4 * each + 2 * (summed + 8) * f32) +
                           2 * rounding(want.dtype()) * std::fabs(b);
      const bool is_right = std::isfinite(b) ? std::fabs(a - b) <= bound : !std::isfinite(a);
      if (!is_right) {
        return fmt::format("element {} of gradient {} {}: {} instead of {}, tolerance {}", i, k,
                           products[k]->result()->type().to_string(), a, b, bound);
      }
    }
  }
  return "";
}

}  // namespace hekla::testing
