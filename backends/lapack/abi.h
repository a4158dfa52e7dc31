// SPDX-License-Identifier: Apache-2.0
// What libhekla_lapack.so offers: LAPACK routines on one matrix each, for four types.
//
// The library is a file of its own, opened by library.h when a program first needs it: it is larger
// than the plugins, and most programs need none of it. Nothing but `hekla_lapack_table` is visible
// in it, so that it does not meet other copies of BLAS and LAPACK in the process.
//
// Matrices are dense and column-major: the leading dimension is the number of rows. All functions
// may be called from any thread and any number of times at once. They return LAPACK's `info`, or
// one of the two errors below, which are not among its values.
#pragma once

#include <cstdint>

namespace hekla::lapack {

enum class Type : int32_t { kF32, kF64, kC64, kC128 };

// There is no memory for the workspace.
inline constexpr int32_t kNoMemory = INT32_MIN;
// The workspace or the matrix has more elements than LAPACK's 32-bit integers can say.
inline constexpr int32_t kTooLarge = INT32_MIN + 1;

// What the caller lends: threads and memory.
struct Parallel {
  void* context;
  // Runs pieces of factorisations, large products and products of matrices and vectors: calls
  // body(state, i) for each i in [0, count), in any order, on any threads, and returns when all are
  // done. What the pieces are depends on the sizes alone, hence so do the bits of the results.
  // Null: one thread.
  void (*run)(void* context, int32_t count, void (*body)(void* state, int32_t index), void* state);
  // Memory for a workspace, uninitialized, or null; `block` is what gives it back. Both null: the
  // system's.
  void* (*take)(void* context, int64_t bytes, void** block);
  void (*give)(void* context, void* block);
};

// Of matrices in the lanes of vectors: rows and columns, right-hand sides.
inline constexpr int32_t kMostLaneRows = 16;

inline constexpr int32_t kTableVersion = 3;

// `p` may be null: one thread, the system's memory. R stands for the real type of `t`. Letters are
// LAPACK's.
struct Table {
  int32_t version;
  // "OpenBLAS 0.3.21 ... SkylakeX".
  const char* (*description)();

  // a [n, n], the named triangle.
  int32_t (*potrf)(const Parallel* p, Type t, char uplo, int32_t n, void* a);
  // Solves op(a) x = b (side L, a [m, m]) or x op(a) = b (side R, a [n, n]) in place of b [m, n].
  int32_t (*trsm)(const Parallel* p, Type t, char side, char uplo, char trans, char diag, int32_t m,
                  int32_t n, const void* a, void* b);
  // a [m, n]; pivots [min(m, n)], counted from 1.
  int32_t (*getrf)(const Parallel* p, Type t, int32_t m, int32_t n, void* a, int32_t* pivots);
  // a [m, n]; tau [min(m, n)].
  int32_t (*geqrf)(const Parallel* p, Type t, int32_t m, int32_t n, void* a, void* tau);
  // As geqrf; columns [n]: in 0 where free, out from 1.
  int32_t (*geqp3)(const Parallel* p, Type t, int32_t m, int32_t n, void* a, int32_t* columns,
                   void* tau);
  // orgqr, ungqr: a [m, n], tau [k].
  int32_t (*orgqr)(const Parallel* p, Type t, int32_t m, int32_t n, int32_t k, void* a,
                   const void* tau);
  // ormqr, unmqr: c [m, n]; a [m, k] (side L) or [n, k] (side R), tau [k].
  int32_t (*ormqr)(const Parallel* p, Type t, char side, char trans, int32_t m, int32_t n,
                   int32_t k, const void* a, const void* tau, void* c);
  // syevd, heevd: a [n, n] becomes the vectors (mode V); values R [n].
  int32_t (*syevd)(const Parallel* p, Type t, char mode, char uplo, int32_t n, void* a,
                   void* values);
  // a [m, n] is destroyed; s R [min(m, n)]; mode A: u [m, m], vt [n, n]; S: u [m, min], vt
  // [min, n]; N: neither is touched.
  int32_t (*gesdd)(const Parallel* p, Type t, char mode, int32_t m, int32_t n, void* a, void* s,
                   void* u, void* vt);
  int32_t (*gesvd)(const Parallel* p, Type t, char mode, int32_t m, int32_t n, void* a, void* s,
                   void* u, void* vt);
  // a [n, n] is destroyed. Values [n] of type t, of real types with their imaginary parts in
  // `imaginary`. Vectors [n, n], always complex, where the mode is V.
  int32_t (*geev)(const Parallel* p, Type t, char left_mode, char right_mode, int32_t n, void* a,
                  void* values, void* imaginary, void* left, void* right);
  // a [n, n] becomes the Schur form, vectors [n, n] (mode V); values as geev.
  int32_t (*gees)(const Parallel* p, Type t, char mode, int32_t n, void* a, void* values,
                  void* imaginary, void* vectors);
  // a [n, n]; tau [n - 1]; rows and columns low to high, counted from 1.
  int32_t (*gehrd)(const Parallel* p, Type t, int32_t n, int32_t low, int32_t high, void* a,
                   void* tau);
  // sytrd, hetrd: a [n, n]; d R [n]; e R [n - 1]; tau [n - 1].
  int32_t (*sytrd)(const Parallel* p, Type t, char uplo, int32_t n, void* a, void* d, void* e,
                   void* tau);
  // lower and upper [n - 1], diagonal [n], all overwritten; b [n, columns].
  int32_t (*gtsv)(Type t, int32_t n, int32_t columns, void* lower, void* diagonal, void* upper,
                  void* b);

  // Batches of `count` small matrices that follow each other, each in a lane of a vector, on the
  // calling thread. No size is 0 or above kMostLaneRows. By rows: a matrix [m, n] lies in rows, not
  // in columns. Results have the bits that follow from their own matrix, wherever it stands in the
  // batch; `from` and `to` may be the same.

  // Matrices that go together.
  int32_t (*lanes)(Type t);
  // As potrf, with zeros in the other triangle. Where a pivot is not positive the named triangle is
  // NaN.
  void (*cholesky_lanes)(Type t, char uplo, int32_t n, int64_t count, const void* from, void* to);
  // As trsm of b to x.
  void (*trsm_lanes)(Type t, char side, char uplo, char trans, char diag, int32_t m, int32_t n,
                     int64_t count, const void* a, const void* b, void* x);
  void (*getrf_lanes)(Type t, bool by_rows, int32_t m, int32_t n, int64_t count, const void* from,
                      void* to, int32_t* pivots, int32_t* infos);
  void (*geqrf_lanes)(Type t, bool by_rows, int32_t m, int32_t n, int64_t count, const void* from,
                      void* to, void* tau);
  void (*orgqr_lanes)(Type t, bool by_rows, int32_t m, int32_t n, int32_t k, int64_t count,
                      const void* from, const void* tau, void* to);
  // As syevd with vectors. Info -4: the triangle is not finite; 1: the iteration did not end.
  void (*syevd_lanes)(Type t, char uplo, bool by_rows, int32_t n, int64_t count, const void* from,
                      void* vectors, void* values, int32_t* infos);
  // As gesdd with mode A or S; a stays. Infos as syevd_lanes.
  void (*gesdd_lanes)(Type t, char mode, bool by_rows, int32_t m, int32_t n, int64_t count,
                      const void* a, void* s, void* u, void* vt, int32_t* infos);
};

}  // namespace hekla::lapack

// The only symbol of the library. Never null; the caller looks at `version`.
extern "C" const hekla::lapack::Table* hekla_lapack_table();
