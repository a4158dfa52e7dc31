// SPDX-License-Identifier: Apache-2.0
// Triangular systems with many right-hand sides, in place: what trsm is for large products.
//
// The triangle is halved until its parts have at most `kMostUnknowns`; what lies beside them is
// gemm's. OpenBLAS 0.3.21 solves such parts one number after the other, which took half of its trsm
// at 1,024; here the right-hand sides of a vector are solved side by side (triangle_kernels.h).
#pragma once

#include "backends/lapack/module/fortran.h"

namespace hekla::lapack {

// With fewer right-hand sides OpenBLAS's trsm is faster.
inline constexpr Int kLeastFastSides = 8;

// Solves op(a) x = b (side L, a [m, m]) or x op(a) = b (side R, a [n, n]) in place of b [m, n].
// Letters are LAPACK's, in capitals; the other triangle of `a` is not read, nor its diagonal where
// `diag` is U.
template <typename T>
void solve_triangular(char side, char uplo, char trans, char diag, Int m, Int n, const T* a,
                      Int lda, T* b, Int ldb);

}  // namespace hekla::lapack
