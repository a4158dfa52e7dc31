// SPDX-License-Identifier: Apache-2.0
// Dense factorisations and solves on the last two dimensions; all earlier ones are batch. Operands
// are floats or complex; everything is computed in f64 and rounded once to the operand's dtype.
#pragma once

#include <cstdint>

#include "runtime/base/host_array.h"

namespace hekla::reference {

// a = L L^H (lower) or U^H U. Only the named triangle of `a` is read; the other one of the result
// is zero. A matrix that is not positive definite gives NaN in the whole named triangle.
Result<HostArray> cholesky(const HostArray& a, bool lower);

enum class Transpose : uint8_t { kNoTranspose, kTranspose, kAdjoint };

struct TriangularSolveConfig {
  bool left_side = false;
  bool lower = false;
  bool unit_diagonal = false;
  Transpose transpose_a = Transpose::kNoTranspose;
};
// Solves op(a) x = b (left_side) or x op(a) = b. Only the named triangle of `a` is read, and not
// its diagonal when unit_diagonal is set. A singular `a` gives infinities or NaN.
Result<HostArray> triangular_solve(const HostArray& a, const HostArray& b,
                                   const TriangularSolveConfig& config);

// The custom call "Qr": LAPACK's geqrf. `packed` [..., m, n] holds R on and above the diagonal and
// the Householder vectors (with an implied leading 1) below it; `taus` [..., min(m, n)] their
// factors: Q = H(0) H(1) ..., H(i) = I - tau v v^H, and the diagonal of R is real.
struct Qr {
  HostArray packed;
  HostArray taus;
};
Result<Qr> householder_qr(const HostArray& a);

// The custom call "ProductOfElementaryHouseholderReflectors": LAPACK's orgqr and ungqr. The first n
// columns of H(0) H(1) ... H(k-1), from a [..., m, n] with n <= m and taus [..., k] with k <= n.
Result<HostArray> householder_product(const HostArray& a, const HostArray& taus);

}  // namespace hekla::reference
