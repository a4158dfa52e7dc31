// SPDX-License-Identifier: Apache-2.0
// Large BLAS calls in pieces: what LAPACK calls while `ParallelScope` is there runs on many
// threads.
//
// The linker sends LAPACK's calls of gemm, trmm, trsm, syrk, herk, syr2k, her2k, gemv, symv and
// hemv to split.cc (--wrap), which cuts large ones by their sizes alone and hands the pieces to the
// caller's threads. A product is not cut along its sum, so a piece's bits do not depend on others.
#pragma once

#include "backends/lapack/abi.h"

namespace hekla::lapack {

// Sets who runs pieces of calls that this thread makes, until the end of its life. Nests: a thread
// that waits for its pieces may run another LAPACK routine meanwhile.
class ParallelScope {
 public:
  explicit ParallelScope(const Parallel* parallel);
  ~ParallelScope();
  ParallelScope(const ParallelScope&) = delete;
  ParallelScope& operator=(const ParallelScope&) = delete;

 private:
  const Parallel* before_;
};

}  // namespace hekla::lapack
