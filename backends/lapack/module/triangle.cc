// SPDX-License-Identifier: Apache-2.0
#include "backends/lapack/module/triangle.h"

#include <cmath>

#include "backends/lapack/module/level.h"
#include "backends/lapack/module/triangle_kernels.h"

namespace hekla::lapack {
namespace {

const TriangleKernels& kernels() {
#ifdef HEKLA_X86_LEVELS
  if (level() == Level::kAvx512) return kAvx512Triangles;
  if (level() == Level::kAvx2) return kAvx2Triangles;
#endif
  return kPortableTriangles;
}

// Smith's (1962), as OpenBLAS's: nothing overflows that the result does not.
template <typename R>
std::complex<R> inverse(std::complex<R> x) {
  const R re = x.real(), im = x.imag();
  if (std::abs(re) >= std::abs(im)) {
    const R ratio = im / re, scale = 1 / (re + im * ratio);
    return {scale, -ratio * scale};
  }
  const R ratio = re / im, scale = 1 / (im + re * ratio);
  return {ratio * scale, -scale};
}
float inverse(float x) { return 1 / x; }
double inverse(double x) { return 1 / x; }

template <typename R>
void put(SmallTriangle<R>& to, int i, int j, R x) {
  to.factors[0][i][j] = x;
}
template <typename R>
void put(SmallTriangle<R>& to, int i, int j, std::complex<R> x) {
  to.factors[0][i][j] = x.real();
  to.factors[1][i][j] = x.imag();
}

void run(const SmallTriangle<float>& t, const RightHandSides<float>& b, bool is_complex) {
  (is_complex ? kernels().c64 : kernels().f32)(t, b);
}
void run(const SmallTriangle<double>& t, const RightHandSides<double>& b, bool is_complex) {
  (is_complex ? kernels().c128 : kernels().f64)(t, b);
}

// One call as l x = b for a lower triangle l, whose rows are numbered from the end where they are
// those of an upper one.
template <typename T>
class Solver {
  using F = Fortran<T>;
  using R = typename F::Real;

 public:
  Solver(char side, char uplo, char trans, char diag, const T* a, Int lda, T* b, Int ldb, Int count)
      : is_left_(side == 'L'),
        trans_(trans),
        is_unit_(diag == 'U'),
        // x op(a) = b is op(a)^T x^T = b^T.
        reads_across_(is_left_ == (trans != 'N')),
        is_lower_((uplo == 'L') != reads_across_),
        a_(a),
        lda_(lda),
        b_(b),
        ldb_(ldb),
        count_(count) {}

  // Unknowns [first, first + size).
  void solve(Int first, Int size) {
    if (size <= kMostUnknowns) return solve_small(first, static_cast<int>(size));
    const Int half = (size / kMostUnknowns + 1) / 2 * kMostUnknowns, rest = size - half;
    const Int low = is_lower_ ? half : rest;
    const Int middle = first + low, end = first + size;
    if (is_lower_) {
      solve(first, low);
      eliminate(middle, end - middle, first, low);
      solve(middle, end - middle);
    } else {
      solve(middle, end - middle);
      eliminate(first, low, middle, end - middle);
      solve(first, low);
    }
  }

 private:
  // Element (i, j) of the triangle that stands on the left of x.
  T element(Int i, Int j) const {
    const T x = reads_across_ ? *at(a_, lda_, j, i) : *at(a_, lda_, i, j);
    if constexpr (kIsComplex<T>) {
      return trans_ == 'C' ? std::conj(x) : x;
    } else {
      return x;
    }
  }
  T* unknown(Int i) const { return is_left_ ? at(b_, ldb_, i, 0) : at(b_, ldb_, 0, i); }

  void solve_small(Int first, int size) {
    small_.size = size;
    small_.is_unit = is_unit_;
    const auto place = [&](int i) { return is_lower_ ? first + i : first + size - 1 - i; };
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < i; ++j) put(small_, i, j, -element(place(i), place(j)));
      if (!is_unit_) put(small_, i, i, inverse(element(place(i), place(i))));
    }
    RightHandSides<R> sides;
    sides.at = reinterpret_cast<R*>(unknown(place(0)));
    sides.step = (is_left_ ? 1 : ldb_) * (is_lower_ ? 1 : -1);
    sides.line = is_left_ ? ldb_ : 1;
    sides.count = count_;
    run(small_, sides, kIsComplex<T>);
  }

  // Takes what the known ones do to others from their right-hand sides.
  void eliminate(Int to, Int to_size, Int known, Int known_size) {
    const T minus(-1), one(1);
    const T* factors = reads_across_ ? at(a_, lda_, known, to) : at(a_, lda_, to, known);
    if (is_left_) {
      F::gemm(&trans_, "N", &to_size, &count_, &known_size, &minus, factors, &lda_, unknown(known),
              &ldb_, &one, unknown(to), &ldb_, 1, 1);
    } else {
      F::gemm("N", &trans_, &count_, &to_size, &known_size, &minus, unknown(known), &ldb_, factors,
              &lda_, &one, unknown(to), &ldb_, 1, 1);
    }
  }

  const bool is_left_;
  const char trans_;
  const bool is_unit_, reads_across_, is_lower_;
  const T* const a_;
  const Int lda_;
  T* const b_;
  const Int ldb_, count_;
  SmallTriangle<R> small_;
};

}  // namespace

template <typename T>
void solve_triangular(char side, char uplo, char trans, char diag, Int m, Int n, const T* a,
                      Int lda, T* b, Int ldb) {
  if (m == 0 || n == 0) return;
  const bool is_left = side == 'L';
  Solver<T>(side, uplo, trans, diag, a, lda, b, ldb, is_left ? n : m).solve(0, is_left ? m : n);
}

#define HEKLA_TRIANGLE(T) \
  template void solve_triangular<T>(char, char, char, char, Int, Int, const T*, Int, T*, Int);
HEKLA_TRIANGLE(float)
HEKLA_TRIANGLE(double)
HEKLA_TRIANGLE(C64)
HEKLA_TRIANGLE(C128)

}  // namespace hekla::lapack
