// SPDX-License-Identifier: Apache-2.0
// Matrices from rows to columns and back: what LAPACK's memory order costs.
//
// Tiles of a cache line squared go through a contiguous buffer, so that matrices whose rows are a
// power of two apart do not evict their own lines. In parallel by `for_each`; nothing fails.
#pragma once

#include <cstdint>

#include "backends/reference/evaluator.h"

namespace hekla::reference {

// to [columns, rows] = the transpose of from [rows, columns], for each of `count` matrices that
// follow each other. Elements have `width` bytes: 4, 8 or 16. The arrays do not overlap.
void transpose_matrices(int64_t width, int64_t count, int64_t rows, int64_t columns,
                        const void* from, void* to, const ForEach& for_each);

// The same in place, for matrices [n, n].
void transpose_squares(int64_t width, int64_t count, int64_t n, void* data,
                       const ForEach& for_each);

}  // namespace hekla::reference
