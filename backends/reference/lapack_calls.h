// SPDX-License-Identifier: Apache-2.0
// The custom calls that JAX sends for linear algebra on CPUs, "lapack_dsyevd_ffi" and its kin, on
// batches of matrices, through backends/lapack; and XLA's Eigh, which PyTorch/XLA sends.
//
// What they mean is jaxlib's: operands and results of the highest rank are matrices in the memory
// order that operand_layouts and result_layouts give, `info` of each matrix is a result, and where
// it reports a failure the matrix's other results are unspecified (JAX puts NaN in their place).
// Matrices with an infinity or NaN fail with info -4 in eigenvalue and singular value problems,
// whose iterations need not end on them.
//
// Deterministic: how a batch or a product is cut follows from the shapes.
#pragma once

#include <string_view>
#include <vector>

#include "backends/reference/datum.h"
#include "backends/reference/evaluator.h"
#include "backends/reference/kernels/linear_algebra.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

bool is_lapack_call(std::string_view target);

// UNIMPLEMENTED: a routine that is not known, operands, results or layouts that are not as JAX
// sends them, or no LAPACK library on this machine.
Status check_lapack_call(const ir::Operation& op);

// The call passed check_lapack_call. RESOURCE_EXHAUSTED: no memory for the workspace, or a matrix
// beyond LAPACK's 32-bit integers.
Result<std::vector<Datum>> execute_lapack_call(const ir::Operation& op,
                                               const std::vector<Datum>& operands,
                                               const EvaluateOptions& options);

// stablehlo.cholesky and triangular_solve of f32, f64 and complex types by LAPACK; as
// kernels/linear_algebra.h says, with other rounding. Only where lapack::table() is there.
Result<HostArray> lapack_cholesky(const HostArray& a, bool lower, const EvaluateOptions& options);
Result<HostArray> lapack_triangular_solve(const HostArray& a, const HostArray& b,
                                          const TriangularSolveConfig& config,
                                          const EvaluateOptions& options);
bool is_lapack_type(DType dtype);

}  // namespace hekla::reference
