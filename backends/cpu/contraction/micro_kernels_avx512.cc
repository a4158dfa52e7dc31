// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "backends/cpu/contraction/micro_kernels.h"

#ifdef HEKLA_VNNI
#define HEKLA_LEVEL avx512_vnni_micro_kernels
#else
#define HEKLA_LEVEL avx512_micro_kernels
#endif

namespace hekla::cpu {
namespace {

constexpr int kBits = 512;
using Vector = __m512;
using DoubleVector = __m512d;

inline Vector splat(const float* from) { return _mm512_set1_ps(*from); }
inline DoubleVector splat(const double* from) { return _mm512_set1_pd(*from); }
inline Vector multiply_add(Vector a, Vector b, Vector sum) { return _mm512_fmadd_ps(a, b, sum); }
inline DoubleVector multiply_add(DoubleVector a, DoubleVector b, DoubleVector sum) {
  return _mm512_fmadd_pd(a, b, sum);
}
inline Vector multiply_add_pairs(Vector a, Vector b, Vector sum) {
  const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
  const __m512i z = _mm512_castps_si512(sum);
#ifdef HEKLA_VNNI
  return _mm512_castsi512_ps(_mm512_dpwssd_epi32(z, x, y));
#else
  return _mm512_castsi512_ps(_mm512_add_epi32(z, _mm512_madd_epi16(x, y)));
#endif
}
inline float multiply_add_one(float a, float b, float sum) { return __builtin_fmaf(a, b, sum); }
inline double multiply_add_one(double a, double b, double sum) { return __builtin_fma(a, b, sum); }
// (-im, re) of each complex number (re, im). Without intrinsics, see sum_lanes.
inline Vector turn(Vector v) {
  const __m512i signs = _mm512_set1_epi64(0x80000000);
  const Vector swapped =
      __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return _mm512_castsi512_ps(_mm512_castps_si512(swapped) ^ signs);
}
inline DoubleVector turn(DoubleVector v) {
  const __m512i signs{INT64_MIN, 0, INT64_MIN, 0, INT64_MIN, 0, INT64_MIN, 0};
  const DoubleVector swapped = __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
  return _mm512_castsi512_pd(_mm512_castpd_si512(swapped) ^ signs);
}
inline float load_f16(const uint16_t* from) { return _cvtsh_ss(*from); }
inline void load_eight_f16(const uint16_t* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

#include "backends/cpu/contraction/blocks_avx.h"
// Without intrinsics, as GCC 12 warns of what its header does for those that take halves.
inline float sum_lanes(Vector v) {
  const __m256 lower = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 upper = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return sum_256(lower + upper);
}

}  // namespace
}  // namespace hekla::cpu

#include "backends/cpu/contraction/micro_kernels_body.h"
