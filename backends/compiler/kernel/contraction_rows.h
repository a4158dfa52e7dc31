// SPDX-License-Identifier: Apache-2.0
// Rows of contractions: which rows of its operands a contraction touches, a few rows at a time.
//
// The batch and one side of it, its rows or its columns, number the rows; the sums of a row need
// that row of the side's operand and all of the other one. An operand is row-wise as in
// row_access.h: cut into as many pieces of S bytes, row r touches piece r alone. No sum is cut, so
// no bit depends on it. Pure; nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backends/compiler/kernel/contraction.h"

namespace hekla::kernel {

// By which operand rows are numbered, and by which side of it.
enum class RowsOf : uint8_t { kNone, kOutByRows, kOutByColumns, kLhs, kRhs };
inline constexpr RowsOf kAllRowsOf[] = {RowsOf::kOutByRows, RowsOf::kOutByColumns, RowsOf::kLhs,
                                        RowsOf::kRhs};
// Whether it is the rows of the contraction that number rows, not its columns.
constexpr bool is_by_rows(RowsOf of) { return of == RowsOf::kOutByRows || of == RowsOf::kLhs; }

struct ContractionRows {
  int64_t rows = 0;
  // Bytes of a row of lhs, rhs and out; 0 where they are not row-wise.
  std::array<int64_t, 3> bytes{};
};

// nullopt: the operand that `of` names is not row-wise, or the contraction has windows, partial
// sums or no elements.
std::optional<ContractionRows> contraction_rows(const Contraction& contraction, RowsOf of);

}  // namespace hekla::kernel
