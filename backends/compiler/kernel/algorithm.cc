// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/algorithm.h"

#include <fmt/format.h>

#include <algorithm>

namespace hekla::kernel {
namespace {

// Bits of a product that is formed so, by its greatest term that is left out: one piece has the
// type's digits, two pieces a side (three products) twice as many, three (six or nine) f32's own.
int digits(DType type, int32_t products) {
  const int piece = float_format(type).mantissa_bits + 1;
  constexpr int kF32Digits = 24;
  const int pieces = products >= 6 ? 3 : products >= 3 ? 2 : 1;
  // Nine products leave nothing out.
  return products >= 9 ? kF32Digits : std::min(kF32Digits, piece * pieces);
}

}  // namespace

bool allows_pieces(const Algorithm& asked, DType pieces, int32_t products) {
  if (asked.lhs != DType::kF32 || asked.rhs != DType::kF32 || asked.sum != DType::kF32) {
    return false;
  }
  if (asked.products == 1) return false;
  // Narrower ranges than f32's lose what is large or small.
  if (float_format(pieces).exponent_bits < float_format(asked.pieces).exponent_bits) return false;
  return digits(pieces, products) >= digits(asked.pieces, asked.products);
}

std::string to_string(const Algorithm& a) {
  const bool has_pieces = a.products > 1;
  std::string text = fmt::format("{}_{}_{}", dtype_name(has_pieces ? a.pieces : a.lhs),
                                 dtype_name(has_pieces ? a.pieces : a.rhs), dtype_name(a.sum));
  if (a.products > 1) text += fmt::format("_x{}", a.products);
  if (a.has_imprecise_sums) text += "_fast_accum";
  return text;
}

}  // namespace hekla::kernel
