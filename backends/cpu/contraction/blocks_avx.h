// SPDX-License-Identifier: Apache-2.0
// Included inside the unnamed namespace of micro_kernels_avx2.cc and micro_kernels_avx512.cc.

// The lanes stay in registers: as an array they would drag the sums of a whole loop into memory.
inline float sum_256(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <typename Real>
constexpr int kBlockOf = 32 / static_cast<int>(sizeof(Real));

// to[i * width + l] = lanes[l][at + i], for i and l below kBlockOf.
inline void transpose_block(const double* const* lanes, int64_t at, double* to, int64_t width) {
  __m256d in[4], half[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) in[i] = _mm256_loadu_pd(lanes[i] + at);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    half[i] = _mm256_unpacklo_pd(in[i], in[i + 1]);
    half[i + 1] = _mm256_unpackhi_pd(in[i], in[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    _mm256_storeu_pd(to + i * width, _mm256_permute2f128_pd(half[i], half[i + 2], 0x20));
    _mm256_storeu_pd(to + (i + 2) * width, _mm256_permute2f128_pd(half[i], half[i + 2], 0x31));
  }
}
inline void transpose_block(const float* const* lanes, int64_t at, float* to, int64_t width) {
  __m256 in[8], half[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) in[i] = _mm256_loadu_ps(lanes[i] + at);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    half[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
    half[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    in[i] = _mm256_shuffle_ps(half[i], half[i + 2], 0x44);
    in[i + 1] = _mm256_shuffle_ps(half[i], half[i + 2], 0xee);
    in[i + 2] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0x44);
    in[i + 3] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * width, _mm256_permute2f128_ps(in[i], in[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * width, _mm256_permute2f128_ps(in[i], in[i + 4], 0x31));
  }
}
