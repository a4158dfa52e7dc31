// SPDX-License-Identifier: Apache-2.0
// Cholesky and LU factorisations in blocks, for the threads of the caller's ParallelScope.
//
// OpenBLAS's own routines call no function that the linker could send to split.cc. Blocks and
// pieces follow from the sizes alone. Matrices are column-major without gaps; the result is
// LAPACK's info. Instantiated for all four types.
#pragma once

#include "backends/lapack/module/fortran.h"

namespace hekla::lapack {

// a [n, n]: the factor in the place of the named triangle; the other is not touched.
template <typename T>
Int factor_cholesky(char uplo, Int n, T* a);

// a [m, n]; pivots [min(m, n)], counted from 1.
template <typename T>
Int factor_lu(Int m, Int n, T* a, Int* pivots);

}  // namespace hekla::lapack
