// SPDX-License-Identifier: Apache-2.0
#include "backends/lapack/module/lanes.h"

#include "backends/lapack/module/lanes_kernels.h"
#include "backends/lapack/module/level.h"

namespace hekla::lapack {
namespace {

const LaneKernels& kernels(Type t) {
  const auto index = static_cast<int32_t>(t);
#ifdef HEKLA_X86_LEVELS
  if (level() == Level::kAvx512) return kAvx512Lanes.of[index];
  if (level() == Level::kAvx2) return kAvx2Lanes.of[index];
#endif
  return kPortableLanes.of[index];
}

}  // namespace

int32_t lane_count(Type t) { return kernels(t).lanes; }

void cholesky_lanes(Type t, char uplo, int32_t n, int64_t count, const void* from, void* to) {
  kernels(t).cholesky(uplo, n, count, from, to);
}
void trsm_lanes(Type t, char side, char uplo, char trans, char diag, int32_t m, int32_t n,
                int64_t count, const void* a, const void* b, void* x) {
  kernels(t).solve(side, uplo, trans, diag, m, n, count, a, b, x);
}
void getrf_lanes(Type t, bool by_rows, int32_t m, int32_t n, int64_t count, const void* from,
                 void* to, int32_t* pivots, int32_t* infos) {
  kernels(t).lu(by_rows, m, n, count, from, to, pivots, infos);
}
void geqrf_lanes(Type t, bool by_rows, int32_t m, int32_t n, int64_t count, const void* from,
                 void* to, void* tau) {
  kernels(t).qr(by_rows, m, n, count, from, to, tau);
}
void orgqr_lanes(Type t, bool by_rows, int32_t m, int32_t n, int32_t k, int64_t count,
                 const void* from, const void* tau, void* to) {
  kernels(t).qr_vectors(by_rows, m, n, k, count, from, tau, to);
}
void syevd_lanes(Type t, char uplo, bool by_rows, int32_t n, int64_t count, const void* from,
                 void* vectors, void* values, int32_t* infos) {
  kernels(t).eigen(uplo, by_rows, n, count, from, vectors, values, infos);
}
void gesdd_lanes(Type t, char mode, bool by_rows, int32_t m, int32_t n, int64_t count,
                 const void* a, void* s, void* u, void* vt, int32_t* infos) {
  kernels(t).svd(mode == 'A', by_rows, m, n, count, a, s, u, vt, infos);
}

}  // namespace hekla::lapack
