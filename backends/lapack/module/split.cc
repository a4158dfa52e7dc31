// SPDX-License-Identifier: Apache-2.0
#include "backends/lapack/module/split.h"

#include <algorithm>

#include "backends/lapack/module/fortran.h"
#include "backends/lapack/module/triangle.h"

extern "C" {
void* __wrap_blas_memory_alloc(int position);
void __wrap_blas_memory_free(void* buffer);
}

namespace hekla::lapack {
namespace {

thread_local const Parallel* current = nullptr;
thread_local bool is_piece = false;

// Elements of a matrix that is multiplied by a vector, a piece: 10 us from the shared cache.
constexpr double kPieceElements = 32 * 1024;
// Rows of such a piece at least, of `rows`: with 64 instead of 256 its parts of columns take up to
// half as long again.
Int least_rows(Int rows) { return std::clamp<Int>(rows / 4, 128, 256); }
bool is(const char* letter, char upper) { return (*letter & ~0x20) == upper; }

template <typename T, typename Gemm>
void split_gemm(Gemm gemm, const char* ta, const char* tb, Int m, Int n, Int k, const T* alpha,
                const T* a, Int lda, const T* b, Int ldb, const T* beta, T* c, Int ldc) {
  const double work = kCost<T> * 2.0 * m * n * k;
  const bool by_columns = n >= m;
  const Pieces pieces = cut(by_columns ? n : m, work, kPieceWork, kLeastPiece, kPieceUnit);
  for_each(pieces.count, [&](Int i) {
    const Int begin = pieces.begin(i), length = pieces.length(i);
    if (by_columns) {
      const T* part = is(tb, 'N') ? at(b, ldb, 0, begin) : at(b, ldb, begin, 0);
      gemm(ta, tb, &m, &length, &k, alpha, a, &lda, part, &ldb, beta, at(c, ldc, 0, begin), &ldc, 1,
           1);
    } else {
      const T* part = is(ta, 'N') ? at(a, lda, begin, 0) : at(a, lda, 0, begin);
      gemm(ta, tb, &length, &n, &k, alpha, part, &lda, b, &ldb, beta, at(c, ldc, begin, 0), &ldc, 1,
           1);
    }
  });
}

template <typename T, typename Trmm>
void call_trmm(Trmm trmm, const char* side, const char* uplo, const char* trans, const char* diag,
               Int m, Int n, const T* alpha, const T* a, Int lda, T* b, Int ldb) {
  trmm(side, uplo, trans, diag, &m, &n, alpha, a, &lda, b, &ldb, 1, 1, 1, 1);
}

template <typename T, typename Trsm>
void call_trsm(Trsm trsm, const char* side, const char* uplo, const char* trans, const char* diag,
               Int m, Int n, const T* alpha, const T* a, Int lda, T* b, Int ldb) {
  const auto capital = [](const char* letter) { return static_cast<char>(*letter & ~0x20); };
  if (*alpha != T(1) || (is(side, 'L') ? n : m) < kLeastFastSides) {
    trsm(side, uplo, trans, diag, &m, &n, alpha, a, &lda, b, &ldb, 1, 1, 1, 1);
  } else {
    solve_triangular(capital(side), capital(uplo), capital(trans), capital(diag), m, n, a, lda, b,
                     ldb);
  }
}

// trmm and trsm: the columns of b (a on its left) or rows (on its right) do not need each other.
template <typename T, typename Function>
void split_triangular(const Function& function, const char* side, const char* uplo,
                      const char* trans, const char* diag, Int m, Int n, const T* alpha, const T* a,
                      Int lda, T* b, Int ldb) {
  const bool is_left = is(side, 'L');
  const double work = kCost<T> * m * n * (is_left ? m : n);
  const Int size = is_left ? n : m;
  // A few right-hand sides: narrow pieces rather than one.
  const Pieces pieces = size < 2 * kLeastPiece
                            ? cut(size, work, kPieceWork, 32, 16)
                            : cut(size, work, kPieceWork, kLeastPiece, kPieceUnit);
  for_each(pieces.count, [&](Int i) {
    const Int begin = pieces.begin(i), length = pieces.length(i);
    if (is_left) {
      function(side, uplo, trans, diag, m, length, alpha, a, lda, at(b, ldb, 0, begin), ldb);
    } else {
      function(side, uplo, trans, diag, length, n, alpha, a, lda, at(b, ldb, begin, 0), ldb);
    }
  });
}

// One triangle of c [n, n] by blocks of columns: for each the square on the diagonal by `square`,
// the rectangle under or above it by `rectangle(row, rows, column, columns)`.
template <typename Square, typename Rectangle>
void split_triangle(const char* uplo, Int n, double work, const Square& square,
                    const Rectangle& rectangle) {
  const Pieces pieces = cut(n, work, kPieceWork, kLeastPiece, kPieceUnit);
  const bool is_lower = is(uplo, 'L');
  for_each(pieces.count, [&](Int i) {
    // The largest first.
    const Int block = is_lower ? i : pieces.count - 1 - i;
    const Int begin = pieces.begin(block), length = pieces.length(block), end = begin + length;
    square(begin, length);
    if (is_lower && end < n) rectangle(end, n - end, begin, length);
    if (!is_lower && begin > 0) rectangle(0, begin, begin, length);
  });
}

// syrk and herk. R: the type of alpha and beta.
template <typename T, typename R, typename Syrk, typename Gemm>
void split_rank_k(Syrk syrk, Gemm gemm, const char* uplo, const char* trans, Int n, Int k,
                  const R* alpha, const T* a, Int lda, const R* beta, T* c, Int ldc) {
  const bool plain = is(trans, 'N');
  const char other = kIsComplex<T> ? 'C' : 'T';
  const T alpha_t(*alpha), beta_t(*beta);
  const auto part = [&](Int begin) { return plain ? at(a, lda, begin, 0) : at(a, lda, 0, begin); };
  split_triangle(
      uplo, n, kCost<T> * n * n * k,
      [&](Int begin, Int length) {
        syrk(uplo, trans, &length, &k, alpha, part(begin), &lda, beta, at(c, ldc, begin, begin),
             &ldc, 1, 1);
      },
      [&](Int row, Int rows, Int column, Int columns) {
        gemm(plain ? "N" : &other, plain ? &other : "N", &rows, &columns, &k, &alpha_t, part(row),
             &lda, part(column), &lda, &beta_t, at(c, ldc, row, column), &ldc, 1, 1);
      });
}

double conjugate(double x) { return x; }
float conjugate(float x) { return x; }
C64 conjugate(C64 x) { return std::conj(x); }
C128 conjugate(C128 x) { return std::conj(x); }

// syr2k and her2k: c = alpha a b^H + conj(alpha) b a^H + beta c, or with a^H b.
template <typename T, typename R, typename Syr2k, typename Gemm>
void split_rank_2k(Syr2k syr2k, Gemm gemm, const char* uplo, const char* trans, Int n, Int k,
                   const T* alpha, const T* a, Int lda, const T* b, Int ldb, const R* beta, T* c,
                   Int ldc) {
  const bool plain = is(trans, 'N');
  const char other = kIsComplex<T> ? 'C' : 'T';
  const T beta_t(*beta), one(1), second(conjugate(*alpha));
  const auto part = [&](const T* x, Int ldx, Int begin) {
    return plain ? at(x, ldx, begin, 0) : at(x, ldx, 0, begin);
  };
  split_triangle(
      uplo, n, kCost<T> * 2.0 * n * n * k,
      [&](Int begin, Int length) {
        syr2k(uplo, trans, &length, &k, alpha, part(a, lda, begin), &lda, part(b, ldb, begin), &ldb,
              beta, at(c, ldc, begin, begin), &ldc, 1, 1);
      },
      [&](Int row, Int rows, Int column, Int columns) {
        T* to = at(c, ldc, row, column);
        const char* left = plain ? "N" : &other;
        const char* right = plain ? &other : "N";
        gemm(left, right, &rows, &columns, &k, alpha, part(a, lda, row), &lda, part(b, ldb, column),
             &ldb, &beta_t, to, &ldc, 1, 1);
        gemm(left, right, &rows, &columns, &k, &second, part(b, ldb, row), &ldb,
             part(a, lda, column), &lda, &one, to, &ldc, 1, 1);
      });
}

// OpenBLAS 0.3.21's kernels read elements behind a vector, which need not be in mapped memory:
// complex gemv without transposition one behind x where m is 2 modulo 4, hemv behind x or y, as may
// symv, complex trsv of upper triangles behind x. So gemv is called with 1 and with m - 1 rows, and
// the vectors of the others are copied to a buffer with elements to spare on both sides. Their
// lengths fit by far: a matrix is in memory.
template <typename T, typename Gemv>
void call_gemv(Gemv gemv, const char* trans, Int m, Int n, const T* alpha, const T* a, Int lda,
               const T* x, Int incx, const T* beta, T* y, Int incy) {
  if (!kIsComplex<T> || !is(trans, 'N') || m % 4 != 2) {
    gemv(trans, &m, &n, alpha, a, &lda, x, &incx, beta, y, &incy, 1);
    return;
  }
  const Int first = m - 1, one = 1;
  const int64_t step = incy;
  // A vector that runs backwards has its last element at `y`.
  T* const y_first = step < 0 ? y - step : y;
  T* const y_last = step < 0 ? y : y + first * step;
  gemv(trans, &first, &n, alpha, a, &lda, x, &incx, beta, y_first, &incy, 1);
  gemv(trans, &one, &n, alpha, at(a, lda, first, 0), &lda, x, &incx, beta, y_last, &incy, 1);
}

template <typename T>
class PaddedVectors {
 public:
  explicit PaddedVectors(Int n) : n_(n), buffer_(static_cast<T*>(__wrap_blas_memory_alloc(0))) {}
  ~PaddedVectors() { __wrap_blas_memory_free(buffer_); }
  PaddedVectors(const PaddedVectors&) = delete;
  PaddedVectors& operator=(const PaddedVectors&) = delete;

  // The copy with the number `index`, in order and without gaps.
  T* copy(int index, const T* x, Int inc) {
    T* const to = buffer_ + kPad + index * (static_cast<int64_t>(n_) + kPad);
    for (Int i = 0; i < n_; ++i) to[i] = x[index_of(i, inc)];
    std::fill(to + n_, to + n_ + kPad, T(0));
    return to;
  }
  void copy_back(const T* from, T* x, Int inc) const {
    for (Int i = 0; i < n_; ++i) x[index_of(i, inc)] = from[i];
  }

 private:
  static constexpr int64_t kPad = 16;
  int64_t index_of(Int i, Int inc) const {
    return static_cast<int64_t>(inc) * (inc < 0 ? i - (n_ - 1) : i);
  }
  Int n_;
  T* buffer_;
};

template <typename T, typename Symv>
void call_symv(Symv symv, const char* uplo, Int n, const T* alpha, const T* a, Int lda, const T* x,
               Int incx, const T* beta, T* y, Int incy) {
  if (n <= 0 || lda < n || incx == 0 || incy == 0) {
    symv(uplo, &n, alpha, a, &lda, x, &incx, beta, y, &incy, 1);
    return;
  }
  PaddedVectors<T> vectors(n);
  const Int step = 1;
  const T* const from = vectors.copy(0, x, incx);
  T* const to = vectors.copy(1, y, incy);
  symv(uplo, &n, alpha, a, &lda, from, &step, beta, to, &step, 1);
  vectors.copy_back(to, y, incy);
}

template <typename T, typename Trsv>
void call_trsv(Trsv trsv, const char* uplo, const char* trans, const char* diag, Int n, const T* a,
               Int lda, T* x, Int incx) {
  if (n <= 0 || lda < n || incx == 0) {
    trsv(uplo, trans, diag, &n, a, &lda, x, &incx, 1, 1, 1);
    return;
  }
  PaddedVectors<T> vectors(n);
  const Int step = 1;
  T* const in_place = vectors.copy(0, x, incx);
  trsv(uplo, trans, diag, &n, a, &lda, in_place, &step, 1, 1, 1);
  vectors.copy_back(in_place, x, incx);
}

template <typename T, typename Gemv>
void split_gemv(Gemv gemv, const char* trans, Int m, Int n, const T* alpha, const T* a, Int lda,
                const T* x, Int incx, const T* beta, T* y, Int incy) {
  const bool plain = is(trans, 'N');
  const double work = 1.0 * m * n * sizeof(T) / sizeof(double);
  // Vectors that run backwards begin at their other end.
  const Pieces pieces =
      incy > 0 ? cut(plain ? m : n, work, kPieceElements, plain ? least_rows(m) : 64, 16)
               : Pieces{plain ? m : n, plain ? m : n, 1};
  for_each(pieces.count, [&](Int i) {
    const Int begin = pieces.begin(i), length = pieces.length(i);
    T* to = y + static_cast<int64_t>(begin) * incy;
    if (plain) {
      call_gemv(gemv, trans, length, n, alpha, at(a, lda, begin, 0), lda, x, incx, beta, to, incy);
    } else {
      call_gemv(gemv, trans, m, length, alpha, at(a, lda, 0, begin), lda, x, incx, beta, to, incy);
    }
  });
}

// symv and hemv: blocks of columns of the stored triangle, each of which adds to the whole of y,
// hence to a vector of its own; these are added up in order. A block's rectangle is read once from
// memory and a second time from the cache, for its mirror image.
template <typename T, typename Symv, typename Gemv>
void split_symv(Symv symv, Gemv gemv, const char* uplo, Int n, const T* alpha, const T* a, Int lda,
                const T* x, Int incx, const T* beta, T* y, Int incy) {
  constexpr Int kRows = 256;
  const double work = 0.5 * n * n * sizeof(T) / sizeof(double);
  const Pieces pieces =
      incx == 1 && incy == 1 ? cut(n, work, kPieceElements, 96, 32) : Pieces{n, n, 1};
  if (pieces.count == 1) {
    call_symv(symv, uplo, n, alpha, a, lda, x, incx, beta, y, incy);
    return;
  }
  // As with PaddedVectors they fit.
  T* const sums = static_cast<T*>(__wrap_blas_memory_alloc(0));
  const bool is_lower = is(uplo, 'L');
  const char mirror = kIsComplex<T> ? 'C' : 'T';
  const T zero(0), one(1);
  for_each(pieces.count, [&](Int i) {
    const Int block = is_lower ? i : pieces.count - 1 - i;
    const Int begin = pieces.begin(block), length = pieces.length(block), end = begin + length;
    T* sum = &sums[static_cast<size_t>(n) * block];
    std::fill(sum, sum + n, zero);
    call_symv(symv, uplo, length, alpha, at(a, lda, begin, begin), lda, x + begin, 1, &zero,
              sum + begin, 1);
    const Int first = is_lower ? end : 0, last = is_lower ? n : begin;
    for (Int row = first; row < last; row += kRows) {
      const Int rows = std::min(kRows, last - row);
      const T* part = at(a, lda, row, begin);
      call_gemv(gemv, "N", rows, length, alpha, part, lda, x + begin, 1, &one, sum + row, 1);
      call_gemv(gemv, &mirror, rows, length, alpha, part, lda, x + row, 1, &one, sum + begin, 1);
    }
  });
  const bool clears = *beta == zero;
  for (Int i = 0; i < n; ++i) {
    T total = clears ? zero : *beta * y[i];
    for (Int block = 0; block < pieces.count; ++block)
      total += sums[static_cast<size_t>(n) * block + i];
    y[i] = total;
  }
  __wrap_blas_memory_free(sums);
}

// larfb, the block reflector of QR, Hessenberg and bidiagonal factorisations: columns of c (from
// the left) or rows (from the right) do not need each other. Its own loops between the products are
// cut with them.
template <typename T, typename Larfb>
void split_larfb(Larfb larfb, const char* side, const char* trans, const char* direct,
                 const char* storev, Int m, Int n, Int k, const T* v, const Int* ldv, const T* t,
                 const Int* ldt, T* c, Int ldc, T* work, const Int* ldwork) {
  const bool is_left = is(side, 'L');
  const Pieces pieces =
      cut(is_left ? n : m, kCost<T> * 4.0 * m * n * k, kPieceWork, kLeastPiece, kPieceUnit);
  for_each(pieces.count, [&](Int i) {
    const Int begin = pieces.begin(i), length = pieces.length(i);
    const Int rows = is_left ? m : length, columns = is_left ? length : n;
    T* const part = is_left ? at(c, ldc, 0, begin) : at(c, ldc, begin, 0);
    larfb(side, trans, direct, storev, &rows, &columns, &k, v, ldv, t, ldt, part, &ldc,
          work + begin, ldwork, 1, 1, 1, 1);
  });
}

}  // namespace

const Parallel* lender() { return current; }

Pieces cut(Int size, double work, double piece_work, Int least, Int unit) {
  constexpr Int kMostPieces = 32;
  if (is_piece) return {size, size, 1};
  const Int most = std::max<Int>(1, std::min<Int>(kMostPieces, size / least));
  const Int wanted = static_cast<Int>(std::min<double>(most, work / piece_work));
  if (wanted < 2) return {size, size, 1};
  const Int width = ((size + wanted - 1) / wanted + unit - 1) / unit * unit;
  return {size, width, (size + width - 1) / width};
}

PieceScope::PieceScope() : before_(is_piece) { is_piece = true; }
PieceScope::~PieceScope() { is_piece = before_; }

ParallelScope::ParallelScope(const Parallel* parallel) : before_(current) { current = parallel; }
ParallelScope::~ParallelScope() { current = before_; }

}  // namespace hekla::lapack

// What the linker puts in the place of BLAS's own functions, which have the name __real_ there.
#define HEKLA_SPLIT_COMMON(p, T)                                                                   \
  using GemmOf_##p =                                                                               \
      void(const char*, const char*, const Int*, const Int*, const Int*, const T*, const T*,       \
           const Int*, const T*, const Int*, const T*, T*, const Int*, Length, Length);            \
  using TriangularOf_##p =                                                                         \
      void(const char*, const char*, const char*, const char*, const Int*, const Int*, const T*,   \
           const T*, const Int*, T*, const Int*, Length, Length, Length, Length);                  \
  using GemvOf_##p = void(const char*, const Int*, const Int*, const T*, const T*, const Int*,     \
                          const T*, const Int*, const T*, T*, const Int*, Length);                 \
  GemmOf_##p __real_##p##gemm_, __wrap_##p##gemm_;                                                 \
  TriangularOf_##p __real_##p##trmm_, __real_##p##trsm_, __wrap_##p##trmm_, __wrap_##p##trsm_;     \
  GemvOf_##p __real_##p##gemv_, __wrap_##p##gemv_;                                                 \
  using LarfbOf_##p = void(const char*, const char*, const char*, const char*, const Int*,         \
                           const Int*, const Int*, const T*, const Int*, const T*, const Int*, T*, \
                           const Int*, T*, const Int*, Length, Length, Length, Length);            \
  LarfbOf_##p __real_##p##larfb_, __wrap_##p##larfb_;                                              \
  void __wrap_##p##larfb_(                                                                         \
      const char* side, const char* trans, const char* direct, const char* storev, const Int* m,   \
      const Int* n, const Int* k, const T* v, const Int* ldv, const T* t, const Int* ldt, T* c,    \
      const Int* ldc, T* work, const Int* ldwork, Length, Length, Length, Length) {                \
    split_larfb<T>(&__real_##p##larfb_, side, trans, direct, storev, *m, *n, *k, v, ldv, t, ldt,   \
                   c, *ldc, work, ldwork);                                                         \
  }                                                                                                \
  void __wrap_##p##gemm_(const char* ta, const char* tb, const Int* m, const Int* n, const Int* k, \
                         const T* alpha, const T* a, const Int* lda, const T* b, const Int* ldb,   \
                         const T* beta, T* c, const Int* ldc, Length, Length) {                    \
    split_gemm<T>(&__real_##p##gemm_, ta, tb, *m, *n, *k, alpha, a, *lda, b, *ldb, beta, c, *ldc); \
  }                                                                                                \
  void __wrap_##p##trmm_(const char* side, const char* uplo, const char* trans, const char* diag,  \
                         const Int* m, const Int* n, const T* alpha, const T* a, const Int* lda,   \
                         T* b, const Int* ldb, Length, Length, Length, Length) {                   \
    const auto call = [](auto... of) { call_trmm<T>(&__real_##p##trmm_, of...); };                 \
    split_triangular<T>(call, side, uplo, trans, diag, *m, *n, alpha, a, *lda, b, *ldb);           \
  }                                                                                                \
  void __wrap_##p##trsm_(const char* side, const char* uplo, const char* trans, const char* diag,  \
                         const Int* m, const Int* n, const T* alpha, const T* a, const Int* lda,   \
                         T* b, const Int* ldb, Length, Length, Length, Length) {                   \
    const auto call = [](auto... of) { call_trsm<T>(&__real_##p##trsm_, of...); };                 \
    split_triangular<T>(call, side, uplo, trans, diag, *m, *n, alpha, a, *lda, b, *ldb);           \
  }                                                                                                \
  void __wrap_##p##gemv_(const char* trans, const Int* m, const Int* n, const T* alpha,            \
                         const T* a, const Int* lda, const T* x, const Int* incx, const T* beta,   \
                         T* y, const Int* incy, Length) {                                          \
    split_gemv<T>(&__real_##p##gemv_, trans, *m, *n, alpha, a, *lda, x, *incx, beta, y, *incy);    \
  }

#define HEKLA_SPLIT_SYMMETRIC(p, rank_k, rank_2k, mv, T, R)                                       \
  using RankKOf_##p = void(const char*, const char*, const Int*, const Int*, const R*, const T*,  \
                           const Int*, const R*, T*, const Int*, Length, Length);                 \
  using Rank2kOf_##p =                                                                            \
      void(const char*, const char*, const Int*, const Int*, const T*, const T*, const Int*,      \
           const T*, const Int*, const R*, T*, const Int*, Length, Length);                       \
  using SymvOf_##p = void(const char*, const Int*, const T*, const T*, const Int*, const T*,      \
                          const Int*, const T*, T*, const Int*, Length);                          \
  RankKOf_##p __real_##p##rank_k##_, __wrap_##p##rank_k##_;                                       \
  Rank2kOf_##p __real_##p##rank_2k##_, __wrap_##p##rank_2k##_;                                    \
  SymvOf_##p __real_##p##mv##_, __wrap_##p##mv##_;                                                \
  void __wrap_##p##rank_k##_(const char* uplo, const char* trans, const Int* n, const Int* k,     \
                             const R* alpha, const T* a, const Int* lda, const R* beta, T* c,     \
                             const Int* ldc, Length, Length) {                                    \
    split_rank_k<T, R>(&__real_##p##rank_k##_, &__real_##p##gemm_, uplo, trans, *n, *k, alpha, a, \
                       *lda, beta, c, *ldc);                                                      \
  }                                                                                               \
  void __wrap_##p##rank_2k##_(const char* uplo, const char* trans, const Int* n, const Int* k,    \
                              const T* alpha, const T* a, const Int* lda, const T* b,             \
                              const Int* ldb, const R* beta, T* c, const Int* ldc, Length,        \
                              Length) {                                                           \
    split_rank_2k<T, R>(&__real_##p##rank_2k##_, &__real_##p##gemm_, uplo, trans, *n, *k, alpha,  \
                        a, *lda, b, *ldb, beta, c, *ldc);                                         \
  }                                                                                               \
  void __wrap_##p##mv##_(const char* uplo, const Int* n, const T* alpha, const T* a,              \
                         const Int* lda, const T* x, const Int* incx, const T* beta, T* y,        \
                         const Int* incy, Length) {                                               \
    split_symv<T>(&__real_##p##mv##_, &__real_##p##gemv_, uplo, *n, alpha, a, *lda, x, *incx,     \
                  beta, y, *incy);                                                                \
  }

#define HEKLA_PADDED_TRSV(p, T)                                                                    \
  using TrsvOf_##p = void(const char*, const char*, const char*, const Int*, const T*, const Int*, \
                          T*, const Int*, Length, Length, Length);                                 \
  TrsvOf_##p __real_##p##trsv_, __wrap_##p##trsv_;                                                 \
  void __wrap_##p##trsv_(const char* uplo, const char* trans, const char* diag, const Int* n,      \
                         const T* a, const Int* lda, T* x, const Int* incx, Length, Length,        \
                         Length) {                                                                 \
    call_trsv<T>(&__real_##p##trsv_, uplo, trans, diag, *n, a, *lda, x, *incx);                    \
  }

extern "C" {
using namespace hekla::lapack;  // NOLINT: in the place of C functions
HEKLA_SPLIT_COMMON(s, float)
HEKLA_SPLIT_COMMON(d, double)
HEKLA_SPLIT_COMMON(c, C64)
HEKLA_SPLIT_COMMON(z, C128)
HEKLA_SPLIT_SYMMETRIC(s, syrk, syr2k, symv, float, float)
HEKLA_SPLIT_SYMMETRIC(d, syrk, syr2k, symv, double, double)
HEKLA_SPLIT_SYMMETRIC(c, herk, her2k, hemv, C64, float)
HEKLA_SPLIT_SYMMETRIC(z, herk, her2k, hemv, C128, double)
HEKLA_PADDED_TRSV(c, C64)
HEKLA_PADDED_TRSV(z, C128)
}
