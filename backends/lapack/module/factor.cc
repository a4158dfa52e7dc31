// SPDX-License-Identifier: Apache-2.0
#include "backends/lapack/module/factor.h"

#include <algorithm>

#include "backends/lapack/module/split.h"

namespace hekla::lapack {
namespace {

constexpr Int kBlock = 128;
constexpr Int kWholeBelow = 384;
// What OpenBLAS factors as a whole: above, its blocks wait for its own trsm (triangle.h).
constexpr Int kLeaf = 32;

// The first `w` rows and columns of a [n, n] are factored: what that says of the rest.
template <typename T>
void go_on_cholesky(char uplo, Int n, Int w, T* a, Int lda) {
  using F = Fortran<T>;
  const Int rest = n - w;
  const T one(1);
  const typename F::Real minus(-1), plus(1);
  const char* adjoint = kIsComplex<T> ? "C" : "T";
  T* next = at(a, lda, w, w);
  if (uplo == 'L') {
    T* under = at(a, lda, w, 0);
    F::trsm("R", "L", adjoint, "N", &rest, &w, &one, a, &lda, under, &lda, 1, 1, 1, 1);
    F::syrk("L", "N", &rest, &w, &minus, under, &lda, &plus, next, &lda, 1, 1);
  } else {
    T* beside = at(a, lda, 0, w);
    F::trsm("L", "U", adjoint, "N", &w, &rest, &one, a, &lda, beside, &lda, 1, 1, 1, 1);
    F::syrk("U", adjoint, &rest, &w, &minus, beside, &lda, &plus, next, &lda, 1, 1);
  }
}

// LAPACK's potrf by halves.
template <typename T>
Int halve_cholesky(char uplo, Int n, T* a, Int lda) {
  Int info = 0;
  if (n <= kLeaf) {
    Fortran<T>::potrf(&uplo, &n, a, &lda, &info, 1);
    return info;
  }
  const Int half = (n / kLeaf + 1) / 2 * kLeaf;
  info = halve_cholesky(uplo, half, a, lda);
  if (info != 0) return info;
  go_on_cholesky(uplo, n, half, a, lda);
  info = halve_cholesky(uplo, n - half, at(a, lda, half, half), lda);
  return info > 0 ? info + half : info;
}

// LAPACK's getrf by halves of the columns (Toledo, "Locality of reference in LU decomposition with
// partial pivoting", 1997).
template <typename T>
Int halve_lu(Int m, Int n, T* a, Int lda, Int* pivots) {
  using F = Fortran<T>;
  Int info = 0;
  const Int count = std::min(m, n);
  if (count <= kLeaf) {
    F::getrf(&m, &n, a, &lda, pivots, &info);
    return info;
  }
  const T plus(1), minus(-1);
  const Int one = 1, half = (count / kLeaf + 1) / 2 * kLeaf;
  const Int rest = n - half, below = m - half, rest_count = count - half;
  info = halve_lu(m, half, a, lda, pivots);
  T* beside = at(a, lda, 0, half);
  F::laswp(&rest, beside, &lda, &one, &half, pivots, &one);
  F::trsm("L", "L", "N", "U", &half, &rest, &plus, a, &lda, beside, &lda, 1, 1, 1, 1);
  T* under = at(a, lda, half, 0);
  T* next = at(a, lda, half, half);
  F::gemm("N", "N", &below, &rest, &half, &minus, under, &lda, beside, &lda, &plus, next, &lda, 1,
          1);
  const Int zero = halve_lu(below, rest, next, lda, pivots + half);
  F::laswp(&half, under, &lda, &one, &rest_count, pivots + half, &one);
  for (Int i = half; i < count; ++i) pivots[i] += half;
  return info == 0 && zero > 0 ? zero + half : info;
}

}  // namespace

// Blocks of which each waits for those on its left.
template <typename T>
Int factor_cholesky(char uplo, Int n, T* a) {
  const Int lda = std::max<Int>(n, 1);
  if (n < kWholeBelow) return halve_cholesky(uplo, n, a, lda);
  for (Int j = 0; j < n; j += kBlock) {
    const Int w = std::min(kBlock, n - j);
    T* corner = at(a, lda, j, j);
    const Int info = halve_cholesky(uplo, w, corner, lda);
    if (info != 0) return info > 0 ? info + j : info;
    if (w < n - j) go_on_cholesky(uplo, n - j, w, corner, lda);
  }
  return 0;
}

// Right-looking LU with partial pivoting (Golub and Van Loan, Matrix Computations, 4th ed., 3.4.5)
// with a look-ahead of one panel: once a panel is factored, all columns on its right are brought up
// to date in stripes that do not need each other, and whoever has the first stripe, the next panel,
// factors that one too.
template <typename T>
Int factor_lu(Int m, Int n, T* a, Int* pivots) {
  using F = Fortran<T>;
  const Int lda = std::max<Int>(m, 1), count = std::min(m, n), one = 1;
  if (count < kWholeBelow) return halve_lu(m, n, a, lda, pivots);
  const T plus(1), minus(-1);
  const Int block = count < 768 ? kBlock / 2 : kBlock;
  Int first_zero = 0;
  // Pivots are counted from the panel's first row until the end.
  const auto factor_panel = [&](Int j) {
    const Int zero = halve_lu(m - j, std::min(block, count - j), at(a, lda, j, j), lda, pivots + j);
    if (zero > 0 && first_zero == 0) first_zero = zero + j;
  };
  const auto swap_rows = [&](Int j, Int w, Int column, Int columns) {
    F::laswp(&columns, at(a, lda, j, column), &lda, &one, &w, pivots + j, &one);
  };
  factor_panel(0);
  for (Int j = 0; j < count; j += block) {
    const Int w = std::min(block, count - j), next = j + w, below = m - next;
    const auto update = [&](Int column, Int columns) {
      T* beside = at(a, lda, j, column);
      swap_rows(j, w, column, columns);
      F::trsm("L", "L", "N", "U", &w, &columns, &plus, at(a, lda, j, j), &lda, beside, &lda, 1, 1,
              1, 1);
      if (below > 0) {
        F::gemm("N", "N", &below, &columns, &w, &minus, at(a, lda, next, j), &lda, beside, &lda,
                &plus, at(a, lda, next, column), &lda, 1, 1);
      }
    };
    if (next >= n) break;
    const Int ahead = std::min(block, n - next), rest = n - next - ahead;
    const double work = kCost<T> * 2.0 * (below + w / 2) * rest * w;
    const Pieces pieces = cut(rest, work, kPieceWork, kLeastPiece, kPieceUnit);
    for_each(rest > 0 ? 1 + pieces.count : 1, [&](Int i) {
      if (i > 0) {
        update(next + ahead + pieces.begin(i - 1), pieces.length(i - 1));
        return;
      }
      update(next, ahead);
      if (next < count) factor_panel(next);
    });
  }
  // Rows of the columns on the left of a panel, whose numbers nobody needed until now.
  const Int panels = (count + block - 1) / block;
  for_each(panels - 1, [&](Int i) {
    for (Int j = (i + 1) * block; j < count; j += block) {
      swap_rows(j, std::min(block, count - j), i * block, block);
    }
  });
  for (Int i = 0; i < count; ++i) pivots[i] += i / block * block;
  return first_zero;
}

#define HEKLA_FACTOR(T)                           \
  template Int factor_cholesky<T>(char, Int, T*); \
  template Int factor_lu<T>(Int, Int, T*, Int*);
HEKLA_FACTOR(float)
HEKLA_FACTOR(double)
HEKLA_FACTOR(C64)
HEKLA_FACTOR(C128)

}  // namespace hekla::lapack
