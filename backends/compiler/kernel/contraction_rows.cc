// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/contraction_rows.h"

#include <algorithm>

namespace hekla::kernel {
namespace {

using Axis = Contraction::Axis;
using Axes = std::vector<Axis>;

// Elements of a row of an operand with `elements`, in which `rest` lie within a row; 0: it is not
// row-wise. `stride`: of the operand.
int64_t row_elements(const Axes& numbering, const Axes& rest, int64_t Axis::*stride,
                     int64_t elements, int64_t offset, int64_t rows) {
  if (offset != 0 || elements % rows != 0) return 0;
  const int64_t row = elements / rows;
  int64_t expected = row;
  for (auto axis = numbering.rbegin(); axis != numbering.rend(); ++axis) {
    if (axis->size == 1) continue;
    if ((*axis).*stride != expected) return 0;
    expected *= axis->size;
  }
  int64_t last = 0;  // element of a row
  for (const Axis& axis : rest) {
    if (axis.*stride < 0 && axis.size > 1) return 0;
    last += (axis.size - 1) * (axis.*stride);
  }
  return last < row ? row : 0;
}

Axes joined(const Axes& a, const Axes& b) {
  Axes all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

}  // namespace

std::optional<ContractionRows> contraction_rows(const Contraction& c, RowsOf of) {
  if (of == RowsOf::kNone || !c.windows.empty() || c.chains > 1) return std::nullopt;
  Axes side = is_by_rows(of) ? c.rows : c.columns;
  std::stable_sort(side.begin(), side.end(),
                   [](const Axis& a, const Axis& b) { return a.out > b.out; });
  const Axes numbering = joined(c.batch, side);
  ContractionRows result;
  result.rows = axes_size(numbering);
  if (result.rows < 1 || c.out_elements < 1 || axes_size(c.depth) < 1) return std::nullopt;
  const Axes& across = is_by_rows(of) ? c.columns : c.rows;
  const int64_t lhs =
      row_elements(numbering, c.depth, &Axis::lhs, c.lhs_elements, c.lhs_offset, result.rows);
  const int64_t rhs =
      row_elements(numbering, c.depth, &Axis::rhs, c.rhs_elements, c.rhs_offset, result.rows);
  const int64_t out =
      row_elements(numbering, across, &Axis::out, c.out_elements, c.out_offset, result.rows);
  // Of the side that does not number rows, every row needs all.
  result.bytes = {is_by_rows(of) ? lhs * dtype_bytes(c.lhs_dtype) : 0,
                  is_by_rows(of) ? 0 : rhs * dtype_bytes(c.rhs_dtype),
                  out * dtype_bytes(c.out_dtype)};
  const int64_t named = of == RowsOf::kLhs   ? result.bytes[0]
                        : of == RowsOf::kRhs ? result.bytes[1]
                                             : result.bytes[2];
  if (named == 0) return std::nullopt;
  return result;
}

}  // namespace hekla::kernel
