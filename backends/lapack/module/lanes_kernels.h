// SPDX-License-Identifier: Apache-2.0
// Batches of small matrices, each matrix in a lane of a vector, compiled once for each level of
// vectors: what lanes.h chooses from.
//
// Plain functions on memory of the caller; any thread; nothing fails. All groups of matrices run
// the same instructions, and what one lane decides is blended in: the bits of a matrix follow from
// its own numbers, whatever lies beside it. No header with inline functions is included, as code
// of all levels is in one library.
#pragma once

#include <cstdint>

#include "backends/lapack/abi.h"

namespace hekla::lapack {

// Of one element type; LanesTable says what they do.
struct LaneKernels {
  int32_t lanes;
  void (*cholesky)(char uplo, int64_t n, int64_t count, const void* from, void* to);
  void (*solve)(char side, char uplo, char trans, char diag, int64_t m, int64_t n, int64_t count,
                const void* a, const void* b, void* x);
  void (*lu)(bool by_rows, int64_t m, int64_t n, int64_t count, const void* from, void* to,
             int32_t* pivots, int32_t* infos);
  void (*qr)(bool by_rows, int64_t m, int64_t n, int64_t count, const void* from, void* to,
             void* tau);
  void (*qr_vectors)(bool by_rows, int64_t m, int64_t n, int64_t k, int64_t count, const void* from,
                     const void* tau, void* to);
  void (*eigen)(char uplo, bool by_rows, int64_t n, int64_t count, const void* from, void* vectors,
                void* values, int32_t* infos);
  void (*svd)(bool wants_all, bool by_rows, int64_t m, int64_t n, int64_t count, const void* from,
              void* values, void* left, void* right, int32_t* infos);
};

// f32, f64, c64, c128.
struct LaneLevel {
  LaneKernels of[4];
};
extern const LaneLevel kPortableLanes, kAvx2Lanes, kAvx512Lanes;

}  // namespace hekla::lapack
