// SPDX-License-Identifier: Apache-2.0
// cholesky and triangular_solve by LAPACK.
#include <algorithm>
#include <cstring>

#include "backends/lapack/library.h"
#include "backends/reference/lapack_call.h"
#include "backends/reference/lapack_calls.h"
#include "backends/reference/lapack_lanes.h"
#include "backends/reference/lapack_runner.h"
#include "backends/reference/matrix_order.h"

namespace hekla::reference {
namespace {

using lapack::Parallel;
using lapack::Table;
using lapack::Type;

char flipped(bool lower) { return lower ? 'U' : 'L'; }

}  // namespace

// Rows are the columns of the transpose: a^T = conj(a) has the factors conj(l) l^T, and what is the
// lower triangle in rows is the upper one in columns.
Result<HostArray> lapack_cholesky(const HostArray& a, bool lower, const EvaluateOptions& options) {
  const Table* lapack = lapack::table();
  if (lapack == nullptr) return internal_error("cholesky: {}", lapack::why_missing());
  const LapackRunner runner(options);
  const Type type = *lapack_type(a.dtype());
  const int64_t n = a.dims().back();
  const int64_t batch = element_count(std::span(a.dims()).first(a.dims().size() - 2));
  HEKLA_ASSIGN_OR_RETURN(HostArray result, runner.result(0, a.dtype(), a.dims()));
  std::byte* data = result.mutable_data();
  const int64_t width = dtype_bytes(a.dtype()), bytes = n * n * width;
  if (batch > 0 && fits_lane(n, n)) {
    const double work = lane_work(type, n * n, n * n * n / 3);
    for_lanes(*lapack, type, batch, work, runner, [&](int64_t first, int64_t count) {
      lapack->cholesky_lanes(type, flipped(lower), static_cast<int32_t>(n), count,
                             a.data() + first * bytes, data + first * bytes);
    });
    return result;
  }
  // One triangle of it, zeros in the other.
  for_ranges(runner.for_each(), batch * n, static_cast<double>(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* to = data + i * n * width;
      const int64_t row = i % n, first = lower ? 0 : row, last = lower ? row + 1 : n;
      std::memset(to, 0, static_cast<size_t>(first * width));
      std::memcpy(to + first * width, a.data() + (i * n + first) * width,
                  static_cast<size_t>((last - first) * width));
      std::memset(to + last * width, 0, static_cast<size_t>((n - last) * width));
    }
  });
  const int32_t error = for_matrices(batch, n, n, runner, [&](int64_t i, const Parallel* parallel) {
    std::byte* matrix = data + i * bytes;
    const int32_t info =
        lapack->potrf(parallel, type, flipped(lower), static_cast<int32_t>(n), matrix);
    // A pivot that is no number, of which LAPACK does not tell, makes all later ones so.
    if (info == 0 && (n == 0 || is_number(a.dtype(), matrix + (n * n - 1) * width))) return info;
    for (int64_t row = 0; row < n; ++row) {
      std::byte* begin = matrix + row * n * width;
      std::byte* diagonal = begin + row * width;
      if (lower) {
        fill_nan(a.dtype(), begin, diagonal + width);
      } else {
        fill_nan(a.dtype(), diagonal, begin + n * width);
      }
    }
    return info;
  });
  if (error != 0) return check_info(error, "cholesky");
  return result;
}

// op(a) x = b in rows is x^T op(a)^T = b^T in columns, where a is a^T already: the other side, the
// other triangle, the same op.
Result<HostArray> lapack_triangular_solve(const HostArray& a, const HostArray& b,
                                          const TriangularSolveConfig& config,
                                          const EvaluateOptions& options) {
  const Table* lapack = lapack::table();
  if (lapack == nullptr) return internal_error("triangular_solve: {}", lapack::why_missing());
  const LapackRunner runner(options);
  const Type type = *lapack_type(a.dtype());
  const int64_t rank = a.rank(), n = a.dims().back();
  const int64_t rows = b.dims()[rank - 2], columns = b.dims()[rank - 1];
  const int64_t batch = element_count(std::span(a.dims()).first(a.dims().size() - 2));
  HEKLA_ASSIGN_OR_RETURN(HostArray result, runner.result(0, b.dtype(), b.dims()));
  std::byte* data = result.mutable_data();
  const int64_t width = dtype_bytes(a.dtype());
  const int64_t a_bytes = n * n * width, bytes = rows * columns * width;
  const char trans = config.transpose_a == Transpose::kNoTranspose ? 'N'
                     : config.transpose_a == Transpose::kTranspose ? 'T'
                                                                   : 'C';
  const char side = config.left_side ? 'R' : 'L', diag = config.unit_diagonal ? 'U' : 'N';
  const auto m = static_cast<int32_t>(columns), k = static_cast<int32_t>(rows);
  if (batch > 0 && fits_lane(n, n) && fits_lane(rows, columns)) {
    const double work = lane_work(type, n * n + rows * columns, rows * columns * n / 2);
    for_lanes(*lapack, type, batch, work, runner, [&](int64_t first, int64_t count) {
      lapack->trsm_lanes(type, side, flipped(config.lower), trans, diag, m, k, count,
                         a.data() + first * a_bytes, b.data() + first * bytes,
                         data + first * bytes);
    });
    return result;
  }
  copy_by_tasks(data, b.data(), b.size_bytes(), runner.for_each());
  const int32_t error =
      for_matrices(batch, rows, columns, runner, [&](int64_t i, const Parallel* parallel) {
        return lapack->trsm(parallel, type, side, flipped(config.lower), trans, diag, m, k,
                            a.data() + i * a_bytes, data + i * bytes);
      });
  if (error != 0) return check_info(error, "triangular_solve");
  return result;
}

}  // namespace hekla::reference
