// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace hekla::reference {
namespace {

// A register tile of kRows x 32 bytes of columns is summed over kDepth steps of k before it is
// added to the result: eight 16-byte accumulators, which fit into the registers of plain x86-64.
constexpr int kRows = 4;
constexpr int64_t kDepth = 256;

// 32 bytes of lanes; the compiler splits them where registers are narrower.
template <typename T>
struct LanesOf {
  typedef T Type __attribute__((vector_size(32), aligned(alignof(T)), may_alias));
};

// `rows` <= kRows rows of `a`, a packed panel of b (depth x lanes), rows x columns of c.
template <typename T, int kTileRows>
__attribute__((always_inline)) inline void tile(int64_t depth, const T* a, int64_t a_stride,
                                                const T* panel, int64_t columns, T* c,
                                                int64_t c_stride) {
  using Lanes = typename LanesOf<T>::Type;
  constexpr int64_t kLanes = 32 / sizeof(T);
  Lanes sums[kTileRows];
  for (int r = 0; r < kTileRows; ++r) sums[r] = Lanes{};
  for (int64_t p = 0; p < depth; ++p) {
    const Lanes row = *reinterpret_cast<const Lanes*>(panel + p * kLanes);
    for (int r = 0; r < kTileRows; ++r) sums[r] += a[r * a_stride + p] * row;
  }
  for (int r = 0; r < kTileRows; ++r) {
    T out[kLanes];
    std::memcpy(out, &sums[r], sizeof(out));
    for (int64_t j = 0; j < columns; ++j) c[r * c_stride + j] += out[j];
  }
}

template <typename T>
__attribute__((always_inline)) inline void matmul_body(int64_t m, int64_t n, int64_t k, const T* a,
                                                       const T* b, T* c) {
  constexpr int64_t kLanes = 32 / sizeof(T);
  std::vector<T> panel(static_cast<size_t>(std::min(k, kDepth) * kLanes));
  for (int64_t p0 = 0; p0 < k; p0 += kDepth) {
    const int64_t depth = std::min(kDepth, k - p0);
    for (int64_t j0 = 0; j0 < n; j0 += kLanes) {
      const int64_t columns = std::min(kLanes, n - j0);
      if (columns < kLanes) std::fill(panel.begin(), panel.end(), T(0));
      for (int64_t p = 0; p < depth; ++p) {
        std::memcpy(&panel[p * kLanes], b + (p0 + p) * n + j0,
                    static_cast<size_t>(columns) * sizeof(T));
      }
      int64_t i = 0;
      for (; i + kRows <= m; i += kRows) {
        tile<T, kRows>(depth, a + i * k + p0, k, panel.data(), columns, c + i * n + j0, n);
      }
      for (; i < m; ++i) {
        tile<T, 1>(depth, a + i * k + p0, k, panel.data(), columns, c + i * n + j0, n);
      }
    }
  }
}

#if defined(__x86_64__)
// No fused multiply-add in this target: the result has the same bits as the plain form.
template <typename T>
__attribute__((target("avx2"))) void matmul_avx2(int64_t m, int64_t n, int64_t k, const T* a,
                                                 const T* b, T* c) {
  matmul_body(m, n, k, a, b, c);
}

bool has_avx2() {
  static const bool value = __builtin_cpu_supports("avx2") != 0;
  return value;
}
#endif

}  // namespace

template <typename T>
void matmul_add(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  if (m == 0 || n == 0 || k == 0) return;
#if defined(__x86_64__)
  if (has_avx2()) return matmul_avx2(m, n, k, a, b, c);
#endif
  matmul_body(m, n, k, a, b, c);
}

template void matmul_add<float>(int64_t, int64_t, int64_t, const float*, const float*, float*);
template void matmul_add<double>(int64_t, int64_t, int64_t, const double*, const double*, double*);
template void matmul_add<uint32_t>(int64_t, int64_t, int64_t, const uint32_t*, const uint32_t*,
                                   uint32_t*);
template void matmul_add<uint64_t>(int64_t, int64_t, int64_t, const uint64_t*, const uint64_t*,
                                   uint64_t*);

}  // namespace hekla::reference
