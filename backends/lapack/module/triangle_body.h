// SPDX-License-Identifier: Apache-2.0
// The body of triangle_LEVEL.cc, which define HEKLA_TRIANGLES and HEKLA_VECTOR_BYTES before. Those
// files are compiled for processors that the process may not run on, so all is in an unnamed
// namespace.
// NOLINTNEXTLINE: included once by each level.
#include "backends/lapack/module/triangle_kernels.h"

namespace hekla::lapack {
namespace {

template <typename R>
struct VectorOf {
  typedef R Type __attribute__((vector_size(HEKLA_VECTOR_BYTES)));
};

// Some right-hand sides side by side, of complex ones real and imaginary parts apart.
template <typename R, int kParts>
struct Block {
  using Vector = typename VectorOf<R>::Type;
  static constexpr int kVectors = 2 / kParts;
  static constexpr int kLanes = HEKLA_VECTOR_BYTES / static_cast<int>(sizeof(R));
  static constexpr int kWidth = kVectors * kLanes;

  // Unused lanes are solved for zeros.
  union {
    R numbers[kMostUnknowns][kParts][kWidth];
    Vector vectors[kMostUnknowns][2];
  };

  void load(const RightHandSides<R>& b, int size, int64_t first, int width) {
    for (int i = 0; width < kWidth && i < size; ++i) {
      for (int v = 0; v < 2; ++v) vectors[i][v] = Vector{};
    }
    each(b, size, first, width, [](R& here, R& there) { here = there; });
  }
  void store(const RightHandSides<R>& b, int size, int64_t first, int width) {
    each(b, size, first, width, [](R& here, R& there) { there = here; });
  }

  // Rows [row, row + kCount): what is on their left is known.
  template <int kCount>
  void solve_rows(const SmallTriangle<R>& t, int row) {
    Vector sums[kCount][2];
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) {
      sums[r][0] = vectors[row + r][0];
      sums[r][1] = vectors[row + r][1];
    }
    for (int j = 0; j < row; ++j) {
      const Vector x = vectors[j][0], y = vectors[j][1];
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) add(t, row + r, j, x, y, sums[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 4
      for (int q = 0; q < r; ++q) add(t, row + r, row + q, sums[q][0], sums[q][1], sums[r]);
      if (!t.is_unit) scale(t, row + r, sums[r]);
      vectors[row + r][0] = sums[r][0];
      vectors[row + r][1] = sums[r][1];
    }
  }

 private:
  // sum += factor * (x, y): two vectors of real numbers, or one of complex ones.
  static void add(const SmallTriangle<R>& t, int i, int j, Vector x, Vector y, Vector* sum) {
    const R re = t.factors[0][i][j];
    if constexpr (kParts == 1) {
      sum[0] += re * x;
      sum[1] += re * y;
    } else {
      const R im = t.factors[1][i][j];
      sum[0] += re * x;
      sum[0] -= im * y;
      sum[1] += re * y;
      sum[1] += im * x;
    }
  }

  static void scale(const SmallTriangle<R>& t, int i, Vector* sum) {
    const R re = t.factors[0][i][i];
    if constexpr (kParts == 1) {
      sum[0] *= re;
      sum[1] *= re;
    } else {
      const R im = t.factors[1][i][i];
      const Vector x = sum[0], y = sum[1];
      sum[0] = re * x - im * y;
      sum[1] = re * y + im * x;
    }
  }

  // Along memory, which goes by elements of a right-hand side or across.
  template <typename F>
  void each(const RightHandSides<R>& b, int size, int64_t first, int width, const F& move) {
    R* const from = b.at + kParts * first * b.line;
    if (b.line == 1) {
      for (int i = 0; i < size; ++i) {
        R* const row = from + kParts * i * b.step;
        for (int c = 0; c < width; ++c) {
          for (int p = 0; p < kParts; ++p) move(numbers[i][p][c], row[kParts * c + p]);
        }
      }
      return;
    }
    for (int c = 0; c < width; ++c) {
      R* const column = from + kParts * c * b.line;
      for (int i = 0; i < size; ++i) {
        for (int p = 0; p < kParts; ++p) move(numbers[i][p][c], column[kParts * i * b.step + p]);
      }
    }
  }
};

template <typename R, int kParts>
void solve(const SmallTriangle<R>& t, const RightHandSides<R>& b) {
  using Lanes = Block<R, kParts>;
  Lanes lanes;
  for (int64_t first = 0; first < b.count; first += Lanes::kWidth) {
    const int64_t left = b.count - first;
    const int width = left < Lanes::kWidth ? static_cast<int>(left) : Lanes::kWidth;
    lanes.load(b, t.size, first, width);
    int row = 0;
    for (; row + 4 <= t.size; row += 4) lanes.template solve_rows<4>(t, row);
    for (; row < t.size; ++row) lanes.template solve_rows<1>(t, row);
    lanes.store(b, t.size, first, width);
  }
}

}  // namespace

constinit const TriangleKernels HEKLA_TRIANGLES = {solve<float, 1>, solve<double, 1>,
                                                   solve<float, 2>, solve<double, 2>};

}  // namespace hekla::lapack
