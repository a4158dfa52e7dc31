// SPDX-License-Identifier: Apache-2.0
// The level that every processor has: vectors of four, through the compiler alone.
#include "backends/cpu/contraction/micro_kernels.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define HEKLA_LEVEL portable_micro_kernels

namespace hekla::cpu {
namespace {

constexpr int kBits = 128;
typedef float Vector __attribute__((vector_size(16)));
typedef double DoubleVector __attribute__((vector_size(16)));

inline Vector splat(const float* from) { return Vector{*from, *from, *from, *from}; }
inline DoubleVector splat(const double* from) { return DoubleVector{*from, *from}; }
// As the generated kernels of this level do: fused where every processor of the architecture can,
// and rounded twice otherwise (compiled without contraction).
#ifdef __FP_FAST_FMAF
inline float multiply_add_one(float a, float b, float sum) { return __builtin_fmaf(a, b, sum); }
inline double multiply_add_one(double a, double b, double sum) { return __builtin_fma(a, b, sum); }
inline Vector multiply_add(Vector a, Vector b, Vector sum) {
  for (int i = 0; i < 4; ++i) sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
  return sum;
}
inline DoubleVector multiply_add(DoubleVector a, DoubleVector b, DoubleVector sum) {
  for (int i = 0; i < 2; ++i) sum[i] = __builtin_fma(a[i], b[i], sum[i]);
  return sum;
}
#else
inline float multiply_add_one(float a, float b, float sum) { return a * b + sum; }
inline double multiply_add_one(double a, double b, double sum) { return a * b + sum; }
inline Vector multiply_add(Vector a, Vector b, Vector sum) { return a * b + sum; }
inline DoubleVector multiply_add(DoubleVector a, DoubleVector b, DoubleVector sum) {
  return a * b + sum;
}
#endif

// (-im, re) of each complex number (re, im).
inline Vector turn(Vector v) { return Vector{-v[1], v[0], -v[3], v[2]}; }
inline DoubleVector turn(DoubleVector v) { return DoubleVector{-v[1], v[0]}; }

#ifdef __SSE2__
inline Vector multiply_add_pairs(Vector a, Vector b, Vector sum) {
  const __m128i product = _mm_madd_epi16(_mm_castps_si128(a), _mm_castps_si128(b));
  return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(sum), product));
}
#else
inline Vector multiply_add_pairs(Vector a, Vector b, Vector sum) {
  int16_t x[8], y[8];
  uint32_t z[4];
  __builtin_memcpy(x, &a, sizeof(x));
  __builtin_memcpy(y, &b, sizeof(y));
  __builtin_memcpy(z, &sum, sizeof(z));
  for (int i = 0; i < 4; ++i) {
    z[i] += static_cast<uint32_t>(x[2 * i] * y[2 * i]);
    z[i] += static_cast<uint32_t>(x[2 * i + 1] * y[2 * i + 1]);
  }
  __builtin_memcpy(&sum, z, sizeof(z));
  return sum;
}
#endif

inline float sum_lanes(Vector v) { return (v[0] + v[2]) + (v[1] + v[3]); }

inline float load_f16(const uint16_t* from) {
  const uint32_t bits = *from;
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = bits & 0x7c00u;
  uint32_t wide = (bits & 0x7fffu) << 13;
  float value;
  if (exponent == 0x7c00u) {
    wide |= 0x7f800000u;
    if ((bits & 0x3ffu) != 0) wide |= 0x400000u;  // a quiet NaN
  } else if (exponent != 0) {
    wide += (127u - 15u) << 23;
  } else {
    value = static_cast<float>(bits & 0x3ffu) * 0x1p-24f;
    __builtin_memcpy(&wide, &value, sizeof(wide));
  }
  wide |= sign;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}

inline void load_eight_f16(const uint16_t* from, float* to) {
  for (int i = 0; i < 8; ++i) to[i] = load_f16(from + i);
}

template <typename Real>
constexpr int kBlockOf = 4;
template <typename Real>
inline void transpose_block(const Real* const* lanes, int64_t at, Real* to, int64_t width) {
  for (int i = 0; i < kBlockOf<Real>; ++i) {
    for (int l = 0; l < kBlockOf<Real>; ++l) to[i * width + l] = lanes[l][at + i];
  }
}

}  // namespace
}  // namespace hekla::cpu

#include "backends/cpu/contraction/micro_kernels_body.h"
