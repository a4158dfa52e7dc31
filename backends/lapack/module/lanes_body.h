// SPDX-License-Identifier: Apache-2.0
// The body of lanes_LEVEL.cc, which define HEKLA_LANES and HEKLA_VECTOR_BYTES before. Those files
// are compiled for processors that the process may not run on, so all is in an unnamed namespace.
// NOLINTNEXTLINE: included once by each level.
#include "backends/lapack/module/lanes_tile.h"
// NOLINTNEXTLINE
#include "backends/lapack/module/lanes_qr.h"
// NOLINTNEXTLINE
#include "backends/lapack/module/lanes_eigen.h"
// NOLINTNEXTLINE
#include "backends/lapack/module/lanes_svd.h"

namespace hekla::lapack {
namespace {

// Rows [i, i + kCount) of column j of the factor. Inlined, GCC 12 warns of loops that have no end.
template <int kCount, typename R, int P>
__attribute__((noinline)) void cholesky_rows(Tile<R, P>& a, int64_t i, int64_t j, Vec<R> factor) {
  Number<R, P> sums[kCount];
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) sums[r] = a.at(i + r, j);
  for (int64_t k = 0; k < j; ++k) {
    const Number<R, P> x = conjugate(a.at(j, k));
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) take(sums[r], a.at(i + r, k), x);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) a.at(i + r, j) = scaled(sums[r], factor);
}

template <typename R, int P>
void cholesky(char uplo, int64_t n, int64_t count, const void* from, void* to) {
  Tile<R, P> a;
  // Of the conjugate of a matrix the factor is the conjugate.
  a.order(uplo == 'U', n, n);
  for_groups<R>(count, [&](int64_t first, int width) {
    a.read(from, n * n, first, width);
    Mask<R> failed{};
    for (int64_t j = 0; j < n; ++j) {
      Vec<R> rest = a.at(j, j).part[0];
      for (int64_t k = 0; k < j; ++k) rest -= square(a.at(j, k));
      const Mask<R> good = rest > 0;
      failed |= ~good;
      const Vec<R> pivot = root<R>(good ? rest : nan<R>()), factor = R(1) / pivot;
      a.at(j, j) = {{pivot}};
      int64_t i = j + 1;
      for (; i + 4 <= n; i += 4) cholesky_rows<4>(a, i, j, factor);
      for (; i < n; ++i) cholesky_rows<1>(a, i, j, factor);
    }
    const Number<R, P> no_number{{nan<R>()}}, zero{};
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < j; ++i) a.at(i, j) = zero;
      if (!any(failed)) continue;
      for (int64_t i = j; i < n; ++i) a.at(i, j) = where(failed, no_number, a.at(i, j));
    }
    a.write(to, n * n, first, width);
  });
}

// kCount right-hand sides from `side` on.
template <int kCount, typename R, int P>
void solve_sides(Tile<R, P>& a, Tile<R, P>& b, int64_t size, int64_t side,
                 const Number<R, P>* inverses, const Mask<R>* without) {
  for (int64_t i = 0; i < size; ++i) {
    Number<R, P> sums[kCount];
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) sums[c] = b.at(i, side + c);
    for (int64_t k = 0; k < i; ++k) {
      const Number<R, P> factor = a.at(i, k);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) take(sums[c], b.at(k, side + c), factor);
    }
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) {
      b.at(i, side + c) =
          inverses == nullptr ? sums[c] : divided(sums[c], a.at(i, i), inverses[i], without[i]);
    }
  }
}

// As l x = b for a lower triangle, of which an upper one is read from its end.
template <typename R, int P>
void solve(char side, char uplo, char trans, char diag, int64_t m, int64_t n, int64_t count,
           const void* triangle, const void* b, void* x) {
  const bool is_left = side == 'L', is_unit = diag == 'U';
  // x op(a) = b is op(a)^T x^T = b^T.
  const bool reads_across = is_left == (trans != 'N');
  const bool is_lower = (uplo == 'L') != reads_across;
  const int64_t size = is_left ? m : n, sides = is_left ? n : m;
  Tile<R, P> a, unknowns;
  a.order(reads_across, size, size);
  unknowns.order(!is_left, size, sides);
  if (!is_left) unknowns.row = sides;
  if (!is_lower) {
    a.first = a.numbers + (size * size - 1);
    a.row = -a.row;
    a.column = -a.column;
    unknowns.first = unknowns.numbers + (size - 1) * unknowns.row;
    unknowns.row = -unknowns.row;
  }
  Number<R, P> inverses[kMostLaneRows];
  Mask<R> without[kMostLaneRows];
  for_groups<R>(count, [&](int64_t first, int width) {
    a.read(triangle, size * size, first, width);
    unknowns.read(b, size * sides, first, width);
    if (trans == 'C') {
      for (int64_t i = 0; i < size * size; ++i) a.numbers[i] = conjugate(a.numbers[i]);
    }
    for (int64_t i = 0; i < size && !is_unit; ++i) {
      inverses[i] = inverse(a.at(i, i));
      without[i] = lacks_inverse(a.at(i, i));
    }
    int64_t c = 0;
    for (; c + 4 <= sides; c += 4) {
      solve_sides<4>(a, unknowns, size, c, is_unit ? nullptr : inverses, without);
    }
    for (; c < sides; ++c) {
      solve_sides<1>(a, unknowns, size, c, is_unit ? nullptr : inverses, without);
    }
    unknowns.write(x, size * sides, first, width);
  });
}

template <typename R, int P>
void swap_rows(Tile<R, P>& a, int64_t n, int64_t row, int64_t other, int lane) {
  for (int64_t c = 0; c < n; ++c) {
    for (int p = 0; p < P; ++p) {
      const R x = a.at(row, c).part[p][lane];
      a.at(row, c).part[p][lane] = a.at(other, c).part[p][lane];
      a.at(other, c).part[p][lane] = x;
    }
  }
}

// The first of the largest elements is the pivot.
template <typename R, int P>
void lu(bool by_rows, int64_t m, int64_t n, int64_t count, const void* from, void* to,
        int32_t* pivots, int32_t* infos) {
  using Places = Mask<R>;
  Tile<R, P> a;
  a.order(by_rows, m, n);
  const int64_t most = m < n ? m : n;
  for_groups<R>(count, [&](int64_t first, int width) {
    a.read(from, m * n, first, width);
    Places info{};
    for (int64_t j = 0; j < most; ++j) {
      Vec<R> largest = size_of(a.at(j, j));
      Places place = all_whole<R>(j);
      for (int64_t i = j + 1; i < m; ++i) {
        const Vec<R> size = size_of(a.at(i, j));
        const Mask<R> more = size > largest;
        largest = more ? size : largest;
        place = more ? all_whole<R>(i) : place;
      }
      if (any(place != all_whole<R>(j))) {
        for (int l = 0; l < width; ++l) {
          if (place[l] != j) swap_rows(a, n, j, place[l], l);
        }
      }
      for (int l = 0; l < width; ++l) {
        pivots[(first + l) * most + j] = static_cast<int32_t>(place[l]) + 1;
      }
      const Number<R, P> pivot = a.at(j, j);
      const Mask<R> is_zero = largest == 0;
      info = info == 0 ? (is_zero ? all_whole<R>(j + 1) : info) : info;
      // Zeros stay what they are.
      const Number<R, P> divisor = where(is_zero, Number<R, P>{{all(R(1))}}, pivot);
      const Number<R, P> factor = inverse(divisor);
      const Mask<R> without = lacks_inverse(divisor);
      for (int64_t i = j + 1; i < m; ++i) {
        const Number<R, P> x = divided(a.at(i, j), divisor, factor, without);
        a.at(i, j) = x;
        for (int64_t c = j + 1; c < n; ++c) {
          Number<R, P> rest = a.at(i, c);
          take(rest, x, a.at(j, c));
          a.at(i, c) = rest;
        }
      }
    }
    for (int l = 0; l < width; ++l) infos[first + l] = static_cast<int32_t>(info[l]);
    a.write(to, m * n, first, width);
  });
}

template <typename R, int P>
constexpr LaneKernels kOf = {kLanes<R>, cholesky<R, P>,   solve<R, P>, lu<R, P>,
                             qr<R, P>,  qr_vectors<R, P>, eigen<R, P>, svd<R, P>};

}  // namespace

constinit const LaneLevel HEKLA_LANES = {
    {kOf<float, 1>, kOf<double, 1>, kOf<float, 2>, kOf<double, 2>}};

}  // namespace hekla::lapack
