// SPDX-License-Identifier: Apache-2.0
// LAPACK and BLAS as Fortran programs offer them, one name for all four types: Fortran<T>::potrf.
//
// Arguments are passed by address, the lengths of letters follow all others.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hekla::lapack {

using Int = int32_t;
using Length = size_t;
using C64 = std::complex<float>;
using C128 = std::complex<double>;

}  // namespace hekla::lapack

// NOLINTBEGIN: names are Fortran's.
#define HEKLA_FORTRAN_COMMON(p, q, T)                                                              \
  void p##potrf_(const char*, const hekla::lapack::Int*, T*, const hekla::lapack::Int*,            \
                 hekla::lapack::Int*, size_t);                                                     \
  void p##getrf_(const hekla::lapack::Int*, const hekla::lapack::Int*, T*,                         \
                 const hekla::lapack::Int*, hekla::lapack::Int*, hekla::lapack::Int*);             \
  void p##laswp_(const hekla::lapack::Int*, T*, const hekla::lapack::Int*,                         \
                 const hekla::lapack::Int*, const hekla::lapack::Int*, const hekla::lapack::Int*,  \
                 const hekla::lapack::Int*);                                                       \
  void p##geqrf_(const hekla::lapack::Int*, const hekla::lapack::Int*, T*,                         \
                 const hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*,                     \
                 hekla::lapack::Int*);                                                             \
  void p##q##gqr_(const hekla::lapack::Int*, const hekla::lapack::Int*, const hekla::lapack::Int*, \
                  T*, const hekla::lapack::Int*, const T*, T*, const hekla::lapack::Int*,          \
                  hekla::lapack::Int*);                                                            \
  void p##q##mqr_(const char*, const char*, const hekla::lapack::Int*, const hekla::lapack::Int*,  \
                  const hekla::lapack::Int*, const T*, const hekla::lapack::Int*, const T*, T*,    \
                  const hekla::lapack::Int*, T*, const hekla::lapack::Int*, hekla::lapack::Int*,   \
                  size_t, size_t);                                                                 \
  void p##gehrd_(const hekla::lapack::Int*, const hekla::lapack::Int*, const hekla::lapack::Int*,  \
                 T*, const hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*,                 \
                 hekla::lapack::Int*);                                                             \
  void p##gtsv_(const hekla::lapack::Int*, const hekla::lapack::Int*, T*, T*, T*, T*,              \
                const hekla::lapack::Int*, hekla::lapack::Int*);                                   \
  void p##gemm_(const char*, const char*, const hekla::lapack::Int*, const hekla::lapack::Int*,    \
                const hekla::lapack::Int*, const T*, const T*, const hekla::lapack::Int*,          \
                const T*, const hekla::lapack::Int*, const T*, T*, const hekla::lapack::Int*,      \
                size_t, size_t);                                                                   \
  void p##trsm_(const char*, const char*, const char*, const char*, const hekla::lapack::Int*,     \
                const hekla::lapack::Int*, const T*, const T*, const hekla::lapack::Int*, T*,      \
                const hekla::lapack::Int*, size_t, size_t, size_t, size_t);

// syrk and herk, whose factors are real.
#define HEKLA_FORTRAN_RANK_K(name, T, R)                                                    \
  void name(const char*, const char*, const hekla::lapack::Int*, const hekla::lapack::Int*, \
            const R*, const T*, const hekla::lapack::Int*, const R*, T*,                    \
            const hekla::lapack::Int*, size_t, size_t);

#define HEKLA_FORTRAN_REAL(p, T)                                                                 \
  HEKLA_FORTRAN_COMMON(p, or, T)                                                                 \
  HEKLA_FORTRAN_RANK_K(p##syrk_, T, T)                                                           \
  void p##geqp3_(const hekla::lapack::Int*, const hekla::lapack::Int*, T*,                       \
                 const hekla::lapack::Int*, hekla::lapack::Int*, T*, T*,                         \
                 const hekla::lapack::Int*, hekla::lapack::Int*);                                \
  void p##syevd_(const char*, const char*, const hekla::lapack::Int*, T*,                        \
                 const hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*,                   \
                 hekla::lapack::Int*, const hekla::lapack::Int*, hekla::lapack::Int*, size_t,    \
                 size_t);                                                                        \
  void p##sytrd_(const char*, const hekla::lapack::Int*, T*, const hekla::lapack::Int*, T*, T*,  \
                 T*, T*, const hekla::lapack::Int*, hekla::lapack::Int*, size_t);                \
  void p##gesdd_(const char*, const hekla::lapack::Int*, const hekla::lapack::Int*, T*,          \
                 const hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*, T*,               \
                 const hekla::lapack::Int*, T*, const hekla::lapack::Int*, hekla::lapack::Int*,  \
                 hekla::lapack::Int*, size_t);                                                   \
  void p##gesvd_(const char*, const char*, const hekla::lapack::Int*, const hekla::lapack::Int*, \
                 T*, const hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*, T*,           \
                 const hekla::lapack::Int*, T*, const hekla::lapack::Int*, hekla::lapack::Int*,  \
                 size_t, size_t);                                                                \
  void p##geev_(const char*, const char*, const hekla::lapack::Int*, T*,                         \
                const hekla::lapack::Int*, T*, T*, T*, const hekla::lapack::Int*, T*,            \
                const hekla::lapack::Int*, T*, const hekla::lapack::Int*, hekla::lapack::Int*,   \
                size_t, size_t);                                                                 \
  void p##gees_(const char*, const char*, void*, const hekla::lapack::Int*, T*,                  \
                const hekla::lapack::Int*, hekla::lapack::Int*, T*, T*, T*,                      \
                const hekla::lapack::Int*, T*, const hekla::lapack::Int*, hekla::lapack::Int*,   \
                hekla::lapack::Int*, size_t, size_t);

#define HEKLA_FORTRAN_COMPLEX(p, T, R)                                                             \
  HEKLA_FORTRAN_COMMON(p, un, T)                                                                   \
  HEKLA_FORTRAN_RANK_K(p##herk_, T, R)                                                             \
  void p##geqp3_(const hekla::lapack::Int*, const hekla::lapack::Int*, T*,                         \
                 const hekla::lapack::Int*, hekla::lapack::Int*, T*, T*,                           \
                 const hekla::lapack::Int*, R*, hekla::lapack::Int*);                              \
  void p##heevd_(const char*, const char*, const hekla::lapack::Int*, T*,                          \
                 const hekla::lapack::Int*, R*, T*, const hekla::lapack::Int*, R*,                 \
                 const hekla::lapack::Int*, hekla::lapack::Int*, const hekla::lapack::Int*,        \
                 hekla::lapack::Int*, size_t, size_t);                                             \
  void p##hetrd_(const char*, const hekla::lapack::Int*, T*, const hekla::lapack::Int*, R*, R*,    \
                 T*, T*, const hekla::lapack::Int*, hekla::lapack::Int*, size_t);                  \
  void p##gesdd_(const char*, const hekla::lapack::Int*, const hekla::lapack::Int*, T*,            \
                 const hekla::lapack::Int*, R*, T*, const hekla::lapack::Int*, T*,                 \
                 const hekla::lapack::Int*, T*, const hekla::lapack::Int*, R*,                     \
                 hekla::lapack::Int*, hekla::lapack::Int*, size_t);                                \
  void p##gesvd_(const char*, const char*, const hekla::lapack::Int*, const hekla::lapack::Int*,   \
                 T*, const hekla::lapack::Int*, R*, T*, const hekla::lapack::Int*, T*,             \
                 const hekla::lapack::Int*, T*, const hekla::lapack::Int*, R*,                     \
                 hekla::lapack::Int*, size_t, size_t);                                             \
  void p##geev_(const char*, const char*, const hekla::lapack::Int*, T*,                           \
                const hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*, T*,                  \
                const hekla::lapack::Int*, T*, const hekla::lapack::Int*, R*, hekla::lapack::Int*, \
                size_t, size_t);                                                                   \
  void p##gees_(const char*, const char*, void*, const hekla::lapack::Int*, T*,                    \
                const hekla::lapack::Int*, hekla::lapack::Int*, T*, T*, const hekla::lapack::Int*, \
                T*, const hekla::lapack::Int*, R*, hekla::lapack::Int*, hekla::lapack::Int*,       \
                size_t, size_t);

extern "C" {
HEKLA_FORTRAN_REAL(s, float)
HEKLA_FORTRAN_REAL(d, double)
HEKLA_FORTRAN_COMPLEX(c, hekla::lapack::C64, float)
HEKLA_FORTRAN_COMPLEX(z, hekla::lapack::C128, double)
char* openblas_get_config();
char* openblas_get_corename();
}

namespace hekla::lapack {

template <typename T>
struct Fortran;

#define HEKLA_FORTRAN_TABLE(p, q, h, T, R)     \
  template <>                                  \
  struct Fortran<T> {                          \
    using Real = R;                            \
    static constexpr auto potrf = &p##potrf_;  \
    static constexpr auto getrf = &p##getrf_;  \
    static constexpr auto laswp = &p##laswp_;  \
    static constexpr auto geqrf = &p##geqrf_;  \
    static constexpr auto geqp3 = &p##geqp3_;  \
    static constexpr auto orgqr = &p##q##gqr_; \
    static constexpr auto ormqr = &p##q##mqr_; \
    static constexpr auto syevd = &p##h##evd_; \
    static constexpr auto sytrd = &p##h##trd_; \
    static constexpr auto gesdd = &p##gesdd_;  \
    static constexpr auto gesvd = &p##gesvd_;  \
    static constexpr auto geev = &p##geev_;    \
    static constexpr auto gees = &p##gees_;    \
    static constexpr auto gehrd = &p##gehrd_;  \
    static constexpr auto gtsv = &p##gtsv_;    \
    static constexpr auto gemm = &p##gemm_;    \
    static constexpr auto trsm = &p##trsm_;    \
    static constexpr auto syrk = &p##h##rk_;   \
  };
HEKLA_FORTRAN_TABLE(s, or, sy, float, float)
HEKLA_FORTRAN_TABLE(d, or, sy, double, double)
HEKLA_FORTRAN_TABLE(c, un, he, C64, float)
HEKLA_FORTRAN_TABLE(z, un, he, C128, double)
// NOLINTEND

template <typename T>
inline constexpr bool kIsComplex = !std::is_floating_point_v<T>;

template <typename T>
T* at(T* a, Int lda, Int row, Int column) {
  return a + row + static_cast<int64_t>(column) * lda;
}

}  // namespace hekla::lapack
