// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/linear_algebra.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"

namespace hekla::reference {
namespace {

double conjugate(double x) { return x; }
std::complex<double> conjugate(std::complex<double> x) { return std::conj(x); }
double real_part(double x) { return x; }
double real_part(std::complex<double> x) { return x.real(); }
double imag_part(double) { return 0; }
double imag_part(std::complex<double> x) { return x.imag(); }

DType wide(DType dtype) { return is_complex(dtype) ? DType::kC128 : DType::kF64; }

// Calls f with a null pointer of the wide type.
template <typename F>
void visit_wide(DType dtype, F&& f) {
  if (is_complex(dtype)) {
    f(static_cast<std::complex<double>*>(nullptr));
  } else {
    f(static_cast<double*>(nullptr));
  }
}

Status check_matrix(const char* op, const HostArray& a, bool square) {
  if (a.rank() < 2 || (!is_float(a.dtype()) && !is_complex(a.dtype())) ||
      (square && a.dims()[a.rank() - 1] != a.dims()[a.rank() - 2])) {
    return invalid_argument("{} needs {}matrices of floats or complex numbers, not {}", op,
                            square ? "square " : "", a.shape());
  }
  return ok_status();
}

int64_t batch_count(const HostArray& a) {
  return element_count(std::span(a.dims()).first(a.dims().size() - 2));
}

// Row by row (Cholesky-Banachiewicz). False: not positive
// definite.
template <typename T>
bool cholesky_lower(int64_t n, const T* a, bool lower, T* l) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      T sum = lower ? a[i * n + j] : conjugate(a[j * n + i]);
      for (int64_t k = 0; k < j; ++k) sum -= l[i * n + k] * conjugate(l[j * n + k]);
      if (i == j) {
        const double square = real_part(sum);
        if (!(square > 0)) return false;
        l[i * n + i] = std::sqrt(square);
      } else {
        l[i * n + j] = sum / real_part(l[j * n + j]);
      }
    }
  }
  return true;
}

// Solves op(a) x = b in place for one matrix; `is_lower` says which triangle op(a) has.
template <typename T, typename At>
void substitute(int64_t n, int64_t columns, bool is_lower, bool unit, At at, T* x) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = is_lower ? step : n - 1 - step;
    for (int64_t c = 0; c < columns; ++c) {
      T& value = x[i * columns + c];
      if (!unit) value /= at(i, i);
    }
    const int64_t first = is_lower ? i + 1 : 0;
    const int64_t last = is_lower ? n : i;
    for (int64_t r = first; r < last; ++r) {
      const T factor = at(r, i);
      for (int64_t c = 0; c < columns; ++c) x[r * columns + c] -= factor * x[i * columns + c];
    }
  }
}

// One Householder step of LAPACK's larfg on column `j` from row `j` on; returns tau.
template <typename T>
T make_reflector(int64_t m, int64_t n, int64_t j, T* a) {
  const auto at = [&](int64_t i) -> T& { return a[i * n + j]; };
  // Scaled, so that squares neither overflow nor vanish.
  double scale = 0;
  for (int64_t i = j; i < m; ++i) {
    scale = std::max({scale, std::abs(real_part(at(i))), std::abs(imag_part(at(i)))});
  }
  double below = 0;
  for (int64_t i = j + 1; i < m; ++i) below += scale > 0 ? std::norm(at(i) / scale) : 0;
  const T alpha = at(j);
  if (below == 0 && imag_part(alpha) == 0) return T(0);
  const double norm = scale * std::sqrt(below + std::norm(alpha / scale));
  const double beta = real_part(alpha) > 0 ? -norm : norm;
  const T tau = (T(beta) - alpha) / beta;
  for (int64_t i = j + 1; i < m; ++i) at(i) /= alpha - T(beta);
  at(j) = beta;
  return tau;
}

// Columns [first, last) of c (m x width) = (I - factor v v^H) c, v = (1, a[j + 1 ..., j]).
template <typename T>
void apply_reflector(int64_t m, int64_t n, int64_t j, const T* a, T factor, int64_t width,
                     int64_t first, T* c) {
  for (int64_t column = first; column < width; ++column) {
    T dot = c[j * width + column];
    for (int64_t i = j + 1; i < m; ++i) dot += conjugate(a[i * n + j]) * c[i * width + column];
    dot *= factor;
    c[j * width + column] -= dot;
    for (int64_t i = j + 1; i < m; ++i) c[i * width + column] -= a[i * n + j] * dot;
  }
}

Dims exchange_last_two(int64_t rank) {
  Dims order(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; ++d) order[d] = d;
  std::swap(order[rank - 1], order[rank - 2]);
  return order;
}

}  // namespace

Result<HostArray> cholesky(const HostArray& a, bool lower) {
  HEKLA_RETURN_IF_ERROR(check_matrix("cholesky", a, true));
  HEKLA_ASSIGN_OR_RETURN(HostArray input, convert_elements(a, wide(a.dtype())));
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(input.dtype(), a.dims()));
  const int64_t n = a.dims().back();
  visit_wide(a.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* l = result.mutable_as<T>();
    const T* in = input.as<T>();
    for (int64_t b = 0; b < batch_count(a); ++b, l += n * n, in += n * n) {
      const bool is_definite = cholesky_lower(n, in, lower, l);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          if (!is_definite) l[i * n + j] = std::numeric_limits<double>::quiet_NaN();
          if (!lower && i != j) {
            l[j * n + i] = conjugate(l[i * n + j]);
            l[i * n + j] = T(0);
          }
        }
      }
    }
  });
  return convert_elements(result, a.dtype());
}

Result<HostArray> triangular_solve(const HostArray& a, const HostArray& b,
                                   const TriangularSolveConfig& config) {
  HEKLA_RETURN_IF_ERROR(check_matrix("triangular_solve", a, true));
  HEKLA_RETURN_IF_ERROR(check_matrix("triangular_solve", b, false));
  const int64_t rank = a.rank();
  const int64_t n = a.dims().back();
  Dims expected = b.dims();
  if (b.rank() == rank) {
    expected[rank - 2] = n;
    expected[rank - 1] = n;
  }
  if (a.dtype() != b.dtype() || a.dims() != expected ||
      b.dims()[rank - (config.left_side ? 2 : 1)] != n) {
    return invalid_argument("triangular_solve: {} on the {} side does not fit {}", a.shape(),
                            config.left_side ? "left" : "right", b.shape());
  }
  // x op(a) = b is op(a)^T x^T = b^T.
  HEKLA_ASSIGN_OR_RETURN(HostArray matrix, convert_elements(a, wide(a.dtype())));
  HEKLA_ASSIGN_OR_RETURN(HostArray x, convert_elements(b, wide(a.dtype())));
  if (!config.left_side) {
    HEKLA_ASSIGN_OR_RETURN(x, transpose(x, exchange_last_two(rank)));
  }
  const int64_t columns = x.dims().back();
  const bool is_transposed = (config.transpose_a != Transpose::kNoTranspose) != !config.left_side;
  const bool is_conjugated = config.transpose_a == Transpose::kAdjoint;
  const bool is_lower = config.lower != is_transposed;
  visit_wide(a.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* m = matrix.as<T>();
    T* values = x.mutable_as<T>();
    for (int64_t i = 0; i < batch_count(a); ++i, m += n * n, values += n * columns) {
      const auto at = [&](int64_t r, int64_t c) {
        const T value = is_transposed ? m[c * n + r] : m[r * n + c];
        return is_conjugated ? conjugate(value) : value;
      };
      substitute(n, columns, is_lower, config.unit_diagonal, at, values);
    }
  });
  if (!config.left_side) {
    HEKLA_ASSIGN_OR_RETURN(x, transpose(x, exchange_last_two(rank)));
  }
  return convert_elements(x, a.dtype());
}

Result<Qr> householder_qr(const HostArray& a) {
  HEKLA_RETURN_IF_ERROR(check_matrix("Qr", a, false));
  const int64_t m = a.dims()[a.rank() - 2];
  const int64_t n = a.dims()[a.rank() - 1];
  const int64_t count = std::min(m, n);
  Dims tau_dims(a.dims().begin(), a.dims().end() - 2);
  tau_dims.push_back(count);
  HEKLA_ASSIGN_OR_RETURN(HostArray packed, convert_elements(a, wide(a.dtype())));
  HEKLA_ASSIGN_OR_RETURN(HostArray taus, HostArray::allocate(packed.dtype(), tau_dims));
  visit_wide(a.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* matrix = packed.mutable_as<T>();
    T* tau = taus.mutable_as<T>();
    for (int64_t b = 0; b < batch_count(a); ++b, matrix += m * n, tau += count) {
      for (int64_t j = 0; j < count; ++j) {
        tau[j] = make_reflector(m, n, j, matrix);
        apply_reflector(m, n, j, matrix, conjugate(tau[j]), n, j + 1, matrix);
      }
    }
  });
  Qr result;
  HEKLA_ASSIGN_OR_RETURN(result.packed, convert_elements(packed, a.dtype()));
  HEKLA_ASSIGN_OR_RETURN(result.taus, convert_elements(taus, a.dtype()));
  return result;
}

Result<HostArray> householder_product(const HostArray& a, const HostArray& taus) {
  HEKLA_RETURN_IF_ERROR(check_matrix("ProductOfElementaryHouseholderReflectors", a, false));
  const int64_t m = a.dims()[a.rank() - 2];
  const int64_t n = a.dims()[a.rank() - 1];
  Dims expected(a.dims().begin(), a.dims().end() - 1);
  if (taus.rank() == a.rank() - 1) expected.back() = taus.dims().back();
  if (taus.dtype() != a.dtype() || taus.dims() != expected || n > m || taus.dims().back() > n) {
    return invalid_argument(
        "ProductOfElementaryHouseholderReflectors: {} factors do not fit {} (n <= m, k <= n)",
        taus.shape(), a.shape());
  }
  const int64_t count = taus.dims().back();
  HEKLA_ASSIGN_OR_RETURN(HostArray vectors, convert_elements(a, wide(a.dtype())));
  HEKLA_ASSIGN_OR_RETURN(HostArray factors, convert_elements(taus, wide(a.dtype())));
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(vectors.dtype(), a.dims()));
  visit_wide(a.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* q = result.mutable_as<T>();
    const T* v = vectors.as<T>();
    const T* tau = factors.as<T>();
    for (int64_t b = 0; b < batch_count(a); ++b, q += m * n, v += m * n, tau += count) {
      for (int64_t i = 0; i < n; ++i) q[i * n + i] = T(1);
      for (int64_t j = count; j-- > 0;) apply_reflector(m, n, j, v, tau[j], n, 0, q);
    }
  });
  return convert_elements(result, a.dtype());
}

}  // namespace hekla::reference
