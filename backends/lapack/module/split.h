// SPDX-License-Identifier: Apache-2.0
// Large BLAS calls in pieces: what LAPACK calls while `ParallelScope` is there runs on many
// threads.
//
// The linker sends LAPACK's calls of gemm, trmm, trsm, syrk, herk, syr2k, her2k, gemv, symv, hemv
// and larfb to split.cc (--wrap), which cuts large ones by their sizes alone and hands the pieces
// to the caller's threads. What a piece calls is not cut again. A product is not cut along its sum,
// so a piece's bits do not depend on others.
#pragma once

#include <algorithm>

#include "backends/lapack/abi.h"
#include "backends/lapack/module/fortran.h"

namespace hekla::lapack {

// Sets who runs pieces of calls that this thread makes and lends memory, until the end of its life.
// Nests: a thread that waits for its pieces may run another LAPACK routine meanwhile.
class ParallelScope {
 public:
  explicit ParallelScope(const Parallel* parallel);
  ~ParallelScope();
  ParallelScope(const ParallelScope&) = delete;
  ParallelScope& operator=(const ParallelScope&) = delete;

 private:
  const Parallel* before_;
};

// What the innermost scope of this thread was given; may be null.
const Parallel* lender();

// While one lives, calls of this thread are not cut: they are pieces themselves.
class PieceScope {
 public:
  PieceScope();
  ~PieceScope();
  PieceScope(const PieceScope&) = delete;
  PieceScope& operator=(const PieceScope&) = delete;

 private:
  const bool before_;
};

// Calls body(i) for each i in [0, count), by the threads of this thread's scope if there are any.
// Several are pieces, whoever runs them.
template <typename F>
void for_each(Int count, const F& body) {
  const Parallel* const parallel = lender();
  if (count == 1) {
    body(0);
  } else if (parallel == nullptr || parallel->run == nullptr) {
    const PieceScope scope;
    for (Int i = 0; i < count; ++i) body(i);
  } else {
    parallel->run(
        parallel->context, count,
        [](void* state, int32_t index) {
          const PieceScope scope;
          (*static_cast<const F*>(state))(index);
        },
        const_cast<F*>(&body));
  }
}

// [0, size) in pieces of equal width.
struct Pieces {
  Int size = 0, width = 0, count = 1;
  Int begin(Int i) const { return i * width; }
  Int length(Int i) const { return std::min(width, size - i * width); }
};

// Pieces of at least `least` and a multiple of `unit` each (but the last), for `work` where one of
// `piece_work` is worth a task; one within a piece.
Pieces cut(Int size, double work, double piece_work, Int least, Int unit);

// Real multiplications and additions of one complex one.
template <typename T>
constexpr double kCost = kIsComplex<T> ? 4 : 1;

// A piece of a product takes some 20 to 50 us: ten times what it costs to hand it to a thread.
inline constexpr double kPieceWork = 2e6;
// Columns or rows of such a piece, at least: each packs the other operand for itself, which with 32
// takes a third of its time.
inline constexpr Int kLeastPiece = 96;
inline constexpr Int kPieceUnit = 32;

}  // namespace hekla::lapack
