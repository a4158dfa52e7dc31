// SPDX-License-Identifier: Apache-2.0
// Algorithm: how exact the products and sums of a contraction are asked to be, as plain data.
//
// StableHLO says it in three ways: by the types alone, by a precision for each operand, and by an
// algorithm that is named. lower/algorithm.h makes one form of them; devices ask this one. What it
// asks for is a floor: more digits are never wrong, fewer are. Nothing fails.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/dtype.h"

namespace hekla::kernel {

struct Algorithm {
  // Elements are rounded to these types before they are multiplied; mostly the operands' own.
  DType lhs = DType::kF32;
  DType rhs = DType::kF32;
  // What sums are taken in.
  DType sum = DType::kF32;
  // More than 1: a product may be formed as so many products of pieces of that type, which together
  // hold most of the digits of `lhs` and `rhs`.
  DType pieces = DType::kF32;
  int32_t products = 1;
  // Sums may keep fewer digits than their type has, until they are done.
  bool has_imprecise_sums = false;

  bool operator==(const Algorithm&) const = default;
};

// Whether `asked` lets a device multiply elements of f32 as `products` products of pieces of this
// type, with sums in f32: "bf16, 3" is the sum of the greatest three products of bf16 pieces.
bool allows_pieces(const Algorithm& asked, DType pieces, int32_t products);

// How a device forms each product of elements of f32: each is the sum of count() pieces, the first
// one the element rounded to `type`, the next one what is left, rounded, and so on; piece i of one
// times piece j of the other is left out where i + j is too great.
struct Pieces {
  DType type = DType::kF32;
  // 1: as a whole; 3 or 4 (all) of two pieces, 6 or 9 (all) of three.
  int32_t products = 1;

  int32_t count() const { return products == 1 ? 1 : products <= 4 ? 2 : 3; }
  // The greatest i + j that there is.
  int32_t most_left() const { return products == 4 || products == 6 ? 2 : products == 9 ? 4 : 1; }
  bool operator==(const Pieces&) const = default;
};
// The fewest products of pieces of this type that are what `asked` wants or better; as a whole
// where it wants that. `are_in_range`: the caller answers for it that operands fit the type's
// range.
Pieces fewest_pieces(const Algorithm& asked, DType type, bool are_in_range = false);

// As StableHLO's presets are called: "f32_f32_f32", "bf16_bf16_f32_x3".
std::string to_string(const Algorithm& algorithm);

}  // namespace hekla::kernel
