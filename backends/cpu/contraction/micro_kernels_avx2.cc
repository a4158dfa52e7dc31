// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "backends/cpu/contraction/micro_kernels.h"

#define HEKLA_LEVEL avx2_micro_kernels

namespace hekla::cpu {
namespace {

constexpr int kBits = 256;
using Vector = __m256;
using DoubleVector = __m256d;

inline Vector splat(const float* from) { return _mm256_broadcast_ss(from); }
inline DoubleVector splat(const double* from) { return _mm256_broadcast_sd(from); }
inline Vector multiply_add(Vector a, Vector b, Vector sum) { return _mm256_fmadd_ps(a, b, sum); }
inline DoubleVector multiply_add(DoubleVector a, DoubleVector b, DoubleVector sum) {
  return _mm256_fmadd_pd(a, b, sum);
}
inline Vector multiply_add_pairs(Vector a, Vector b, Vector sum) {
  const __m256i product = _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), product));
}
inline float multiply_add_one(float a, float b, float sum) { return __builtin_fmaf(a, b, sum); }
inline double multiply_add_one(double a, double b, double sum) { return __builtin_fma(a, b, sum); }
// (-im, re) of each complex number (re, im).
inline Vector turn(Vector v) {
  const __m256 signs = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));
  return _mm256_xor_ps(_mm256_permute_ps(v, 0xb1), signs);
}
inline DoubleVector turn(DoubleVector v) {
  return _mm256_xor_pd(_mm256_permute_pd(v, 0x5), _mm256_set_pd(0, -0.0, 0, -0.0));
}
inline float load_f16(const uint16_t* from) { return _cvtsh_ss(*from); }
inline void load_eight_f16(const uint16_t* from, float* to) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

#include "backends/cpu/contraction/blocks_avx.h"
inline float sum_lanes(Vector v) { return sum_256(v); }

}  // namespace
}  // namespace hekla::cpu

#include "backends/cpu/contraction/micro_kernels_body.h"
