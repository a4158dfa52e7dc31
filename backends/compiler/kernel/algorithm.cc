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
  return products >= 9 ? kF32Digits + 1 : std::min(kF32Digits, piece * pieces);
}

bool has_range(DType type, DType asked) {
  return float_format(type).exponent_bits >= float_format(asked).exponent_bits;
}

bool have_digits(const Algorithm& asked, DType pieces, int32_t products) {
  return asked.lhs == DType::kF32 && asked.rhs == DType::kF32 && asked.sum == DType::kF32 &&
         asked.products > 1 && digits(pieces, products) >= digits(asked.pieces, asked.products);
}

}  // namespace

bool allows_pieces(const Algorithm& asked, DType pieces, int32_t products) {
  // Narrower ranges than f32's lose what is large or small.
  return have_digits(asked, pieces, products) && has_range(pieces, asked.pieces);
}

Pieces fewest_pieces(const Algorithm& asked, DType type, bool are_in_range) {
  if (!are_in_range && !has_range(type, DType::kF32)) return {};
  // Two pieces hold the 11 digits of elements that are rounded to TF32.
  if (asked.lhs == DType::kTF32 && asked.rhs == DType::kTF32 && asked.sum == DType::kF32 &&
      asked.products == 1) {
    return {type, 4};
  }
  for (const int32_t products : {3, 6, 9}) {
    if (have_digits(asked, type, products)) return {type, products};
  }
  return {};
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
