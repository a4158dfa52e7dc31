// SPDX-License-Identifier: Apache-2.0
// The inner loops of triangular systems, compiled once for each level of vectors.
//
// Plain functions on memory of the caller; any thread; nothing fails. Each right-hand side is
// solved in the same way whatever is beside it. No header with inline functions is included, as
// code of all levels is in one library.
#pragma once

#include <cstdint>

namespace hekla::lapack {

inline constexpr int kMostUnknowns = 64;

// x[i] = factors[i][i] (b[i] + sum of factors[i][j] x[j] for j < i): the inverse of the diagonal,
// and what is under it with its sign turned. Of complex numbers the imaginary parts lie behind all
// real ones.
template <typename R>
struct SmallTriangle {
  int size = 0;
  bool is_unit = false;  // the diagonal is not read
  R factors[2][kMostUnknowns][kMostUnknowns];
};

// Element i of right-hand side c is at[i * step + c * line], or the two numbers from twice that on.
template <typename R>
struct RightHandSides {
  R* at = nullptr;
  int64_t step = 1, line = 1, count = 0;
};

struct TriangleKernels {
  void (*f32)(const SmallTriangle<float>&, const RightHandSides<float>&);
  void (*f64)(const SmallTriangle<double>&, const RightHandSides<double>&);
  void (*c64)(const SmallTriangle<float>&, const RightHandSides<float>&);
  void (*c128)(const SmallTriangle<double>&, const RightHandSides<double>&);
};
extern const TriangleKernels kPortableTriangles, kAvx2Triangles, kAvx512Triangles;

}  // namespace hekla::lapack
