// SPDX-License-Identifier: Apache-2.0
#include "tests/random/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

std::vector<lower::Attention> attentions_of(const ir::Module& module) {
  lower::LowerOptions options;
  options.attention_points = 256;
  options.attention_words = 12 * 1024;
  options.attention_always = options.small_limits = true;
  std::vector<lower::Attention> found;
  for (const auto& op : module.entry()->body().front().operations()) {
    kernel::Refusal why;
    if (auto one = lower::find_attention(*op, options, why)) found.push_back(std::move(*one));
  }
  return found;
}

std::unique_ptr<ir::Module> attention_alone(const ir::Module& module,
                                            const lower::Attention& attention) {
  std::unique_ptr<ir::Module> alone = ir::clone_module(module);
  ir::Function& entry = *alone->entry();
  ir::Block& block = entry.body().front();
  const auto& from = module.entry()->body().front().operations();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].get() != attention.product) continue;
    ir::Value* result = block.operations()[i]->result();
    block.terminator()->set_operands({result});
    entry.type = ir::Type::function(block.argument_types(), {result->type()});
  }
  entry.result_attributes.resize(1);
  return alone;
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
  const auto* n =
      attention.scores->attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  double depth = 1;
  for (const int64_t d : n->lhs_contracting_dimensions) {
    depth *=
        static_cast<double>(attention.scores->operand(0)->type().dims()[static_cast<size_t>(d)]);
  }
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

}  // namespace hekla::testing
