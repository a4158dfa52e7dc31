// SPDX-License-Identifier: Apache-2.0
// Batches of small matrices, each in a lane of a vector (abi.h), for the vectors of this processor.
//
// LAPACK takes matrices one by one, and of those with few rows calls and checks are most of the
// time. Side by side they need neither.
#pragma once

#include <cstdint>

#include "backends/lapack/abi.h"

namespace hekla::lapack {

int32_t lane_count(Type t);
void cholesky_lanes(Type t, char uplo, int32_t n, int64_t count, const void* from, void* to);
void trsm_lanes(Type t, char side, char uplo, char trans, char diag, int32_t m, int32_t n,
                int64_t count, const void* a, const void* b, void* x);
void getrf_lanes(Type t, bool by_rows, int32_t m, int32_t n, int64_t count, const void* from,
                 void* to, int32_t* pivots, int32_t* infos);
void geqrf_lanes(Type t, bool by_rows, int32_t m, int32_t n, int64_t count, const void* from,
                 void* to, void* tau);
void orgqr_lanes(Type t, bool by_rows, int32_t m, int32_t n, int32_t k, int64_t count,
                 const void* from, const void* tau, void* to);
void syevd_lanes(Type t, char uplo, bool by_rows, int32_t n, int64_t count, const void* from,
                 void* vectors, void* values, int32_t* infos);
void gesdd_lanes(Type t, char mode, bool by_rows, int32_t m, int32_t n, int64_t count,
                 const void* a, void* s, void* u, void* vt, int32_t* infos);

}  // namespace hekla::lapack
