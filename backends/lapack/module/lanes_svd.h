// SPDX-License-Identifier: Apache-2.0
// Singular values and vectors of small matrices by rotations of columns (Golub and Van Loan, Matrix
// Computations, 4th ed., 8.6.3), a matrix in each lane. Part of lanes_body.h.
#pragma once

#include "backends/lapack/module/lanes_eigen.h"
#include "backends/lapack/module/lanes_qr.h"

namespace hekla::lapack {
namespace {

// Columns of a [m, n] become orthogonal, those of v [n, n] turn with them; in lanes where they did
// not, bits.
template <typename R, int P>
Mask<R> turn_columns(Tile<R, P>& a, Tile<R, P>& v, int64_t m, int64_t n) {
  const R limit = kEpsilon<R> * kEpsilon<R> * static_cast<R>(m);
  // Squares of columns that are not there, next to others of about 1.
  const R nothing = kNegligible<R> * kNegligible<R>;
  Mask<R> done{}, turned{};
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    turned = Mask<R>{};
    for (int64_t q = 1; q < n; ++q) {
      for (int64_t p = 0; p < q; ++p) {
        Vec<R> low{}, high{};
        Number<R, P> beside{};
        for (int64_t i = 0; i < m; ++i) {
          low += square(a.at(i, p));
          high += square(a.at(i, q));
          add(beside, conjugate(a.at(i, q)), a.at(i, p));
        }
        Vec<R> length;
        if constexpr (P == 1) {
          length = magnitude(beside.part[0]);
        } else {
          length = root<R>(square(beside));
        }
        const Mask<R> needed = ~done & (low > nothing) & (high > nothing) &
                               (length > kNegligible<R>)&(length / low * (length / high) > limit);
        if (!any(needed)) continue;
        turned |= needed;
        const Angle<R, P> angle(low, high, beside, length, needed);
        for (int64_t i = 0; i < m; ++i) angle.turn.apply(a.at(i, p), a.at(i, q));
        for (int64_t i = 0; i < n; ++i) angle.turn.apply(v.at(i, p), v.at(i, q));
      }
    }
    done |= ~turned;
    if (!any(turned)) break;
  }
  return turned;
}

// The tall one of a and a^H is [m, n]: u of it [m, columns] in `tall`, v [n, n] with what is where
// in `order`; the other's are the adjoints.
template <typename R, int P>
void store_vectors(const Tile<R, P>& tile, const int64_t* order, int64_t rows, int64_t columns,
                   bool is_adjoint, bool by_rows, int lane, R* to) {
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t column = order == nullptr ? j : order[j];
    for (int64_t i = 0; i < rows; ++i) {
      const Number<R, P>& x = tile.first[i * tile.row + column * tile.column];
      // Element (i, j), or of the adjoint (j, i).
      const bool along = by_rows != is_adjoint;
      R* out = to + P * (along ? i * columns + j : i + j * rows);
      out[0] = x.part[0][lane] + R(0);
      if constexpr (P == 2) out[1] = (is_adjoint ? -x.part[1][lane] : x.part[1][lane]) + R(0);
    }
  }
}

template <typename R, int P>
void svd(bool wants_all, bool by_rows, int64_t rows, int64_t columns, int64_t count,
         const void* from, void* values, void* left, void* right, int32_t* infos) {
  const bool is_tall = rows >= columns;
  const int64_t m = is_tall ? rows : columns, n = is_tall ? columns : rows;
  const int64_t wide = wants_all ? m : n;  // columns of u
  Tile<R, P> a, u, v;
  // Read as a^H where that is the tall one.
  a.order(by_rows == is_tall, m, n);
  u.order(false, m, wide);
  v.order(false, n, n);
  for_groups<R>(count, [&](int64_t first, int width) {
    a.read(from, m * n, first, width);
    Vec<R> most{}, zeros{};
    for (int64_t i = 0; i < m * n; ++i) {
      if (!is_tall) a.numbers[i] = conjugate(a.numbers[i]);
      for (int p = 0; p < P; ++p) {
        most = larger(magnitude(a.numbers[i].part[p]), most);
        zeros += a.numbers[i].part[p] * R(0);
      }
    }
    const Mask<R> finite = zeros == 0;
    const Scale<R> scale(finite ? most : Vec<R>{});
    for (int64_t i = 0; i < m * n; ++i) {
      a.numbers[i] = where(finite, scaled(a.numbers[i], scale.down), {});
    }
    for (int64_t i = 0; i < n * n; ++i) v.numbers[i] = {};
    for (int64_t i = 0; i < n; ++i) v.at(i, i) = {{all(R(1))}};
    const Mask<R> left_over = turn_columns(a, v, m, n);
    // Columns by their length are u; of those that are not there, what is orthogonal to all others.
    Vec<R> found[kMostLaneRows], lengths[kMostLaneRows];
    int64_t order[kLanes<R>][kMostLaneRows];
    for (int64_t j = 0; j < n; ++j) {
      Vec<R> length{};
      for (int64_t i = 0; i < m; ++i) length += square(a.at(i, j));
      lengths[j] = root<R>(length);
      const Mask<R> is_there = lengths[j] > kNegligible<R>;
      const Vec<R> factor = is_there ? R(1) / lengths[j] : Vec<R>{};
      for (int64_t i = 0; i < m; ++i) a.at(i, j) = scaled(a.at(i, j), factor);
      found[j] = -lengths[j];
    }
    for (int l = 0; l < kLanes<R>; ++l) {
      ascending<R>(found, n, l, order[l]);
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
          for (int p = 0; p < P; ++p) {
            u.at(i, j).part[p][l] = a.at(i, order[l][j]).part[p][l];
          }
        }
      }
    }
    Number<R, P> taus[kMostLaneRows];
    Mask<R> is_turned[kMostLaneRows];
    for (int64_t j = 0; j < n; ++j) {
      taus[j] = make_reflector(u, m, j);
      const Number<R, P> adjoint = conjugate(taus[j]);
      for (int64_t c = j + 1; c < n; ++c) reflect(u, m, j, c, adjoint);
      is_turned[j] = u.at(j, j).part[0] < 0;
    }
    multiply_reflectors(u, m, wide, n, taus);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        Number<R, P>& x = u.at(i, j);
        for (int p = 0; p < P; ++p) x.part[p] = is_turned[j] ? -x.part[p] : x.part[p];
      }
    }
    for (int64_t j = 0; j < n; ++j) lengths[j] = lengths[j] * scale.up;
    for (int l = 0; l < width; ++l) {
      const int64_t index = first + l;
      for (int64_t j = 0; j < n; ++j) {
        static_cast<R*>(values)[index * n + j] = lengths[order[l][j]][l];
      }
      infos[index] = !finite[l] ? kNotFiniteInfo : left_over[l] ? 1 : 0;
      R* const tall = static_cast<R*>(is_tall ? left : right) + index * m * wide * P;
      R* const square = static_cast<R*>(is_tall ? right : left) + index * n * n * P;
      store_vectors<R, P>(u, nullptr, m, wide, !is_tall, by_rows, l, tall);
      store_vectors<R, P>(v, order[l], n, n, is_tall, by_rows, l, square);
    }
  });
}

}  // namespace
}  // namespace hekla::lapack
