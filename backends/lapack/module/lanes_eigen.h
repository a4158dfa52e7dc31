// SPDX-License-Identifier: Apache-2.0
// Eigenvalues and vectors of small Hermitian matrices by Jacobi's rotations (Golub and Van Loan,
// Matrix Computations, 4th ed., 8.5), a matrix in each lane. Part of lanes_body.h.
#pragma once

#include "backends/lapack/module/lanes_tile.h"

namespace hekla::lapack {
namespace {

// Three times what any matrix was seen to need.
constexpr int kMostSweeps = 30;
constexpr int32_t kNotFiniteInfo = -4;
// Of matrices whose largest element is about 1: less counts for nothing, and its square may vanish.
template <typename R>
constexpr R kNegligible = sizeof(R) == 4 ? 0x1p-60 : 0x1p-500;
// What is beside the diagonal less than that changes nothing, but products of such numbers, which
// are not normal, take a hundred times as long.
template <typename R>
constexpr R kNothingBeside = sizeof(R) == 4 ? 0x1p-40 : 0x1p-200;

// x and y become x cos - y conj(s) and x s + y cos, in the form of Rutishauser's: what a small
// angle changes is rounded as something small.
template <typename R, int P>
struct Rotation {
  Number<R, P> sin;  // with the phase of what it removes
  Vec<R> part;       // 1 - cos

  void apply(Number<R, P>& x, Number<R, P>& y) const {
    const Number<R, P> a = x, b = y;
    for (int p = 0; p < P; ++p) {
      x.part[p] = a.part[p] - part * a.part[p];
      y.part[p] = b.part[p] - part * b.part[p];
    }
    take(x, b, conjugate(sin));
    add(y, a, sin);
  }
};

// The smaller angle that makes a Hermitian matrix of two rows diagonal, in lanes where it is
// needed: in its lower left corner it has `beside`, whose magnitude is `length`.
template <typename R, int P>
struct Angle {
  Vec<R> tangent;  // times the phase of what goes
  Rotation<R, P> turn;

  Angle(Vec<R> low, Vec<R> high, const Number<R, P>& beside, Vec<R> length, Mask<R> needed) {
    const Vec<R> safe = needed ? length : all(R(1)), twice = safe + safe, gap = high - low;
    tangent = twice / (magnitude(gap) + root<R>(gap * gap + twice * twice));
    tangent = gap < 0 ? -tangent : tangent;
    tangent = needed ? tangent : Vec<R>{};
    const Vec<R> cosine = R(1) / root<R>(R(1) + tangent * tangent);
    const Vec<R> sine = tangent * cosine;
    turn.part = sine * sine / (R(1) + cosine);
    turn.sin = scaled(conjugate(beside), sine / safe);
  }
};

// Of the lower triangle of a Hermitian matrix.
template <typename R, int P>
class Jacobi {
 public:
  Tile<R, P> a, vectors;

  // Until nothing counts beside the diagonal, in lanes that are not done: where it did not come to
  // that.
  Mask<R> run(int64_t n, Vec<R> limit) {
    Mask<R> left{};
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      Vec<R> rest{};
      for (int64_t q = 1; q < n; ++q) {
        for (int64_t p = 0; p < q; ++p) rest += square(a.at(q, p));
      }
      left = rest > limit;
      if (!any(left)) return left;
      for (int64_t q = 1; q < n; ++q) {
        for (int64_t p = 0; p < q; ++p) rotate(n, p, q, left);
      }
    }
    return left;
  }

 private:
  void rotate(int64_t n, int64_t p, int64_t q, Mask<R> wanted) {
    const Number<R, P> beside = a.at(q, p);
    const Vec<R> low = a.at(p, p).part[0], high = a.at(q, q).part[0];
    Vec<R> length;
    if constexpr (P == 1) {
      length = magnitude(beside.part[0]);
    } else {
      length = root<R>(square(beside));
    }
    const Mask<R> needed = wanted & (length > kNothingBeside<R>);
    if (!any(needed)) return;
    const Angle<R, P> angle(low, high, beside, length, needed);
    const Rotation<R, P>& turn = angle.turn;
    const Vec<R> moved = needed ? angle.tangent * length : Vec<R>{};
    a.at(p, p) = {{low - moved}};
    a.at(q, q) = {{high + moved}};
    a.at(q, p) = where(needed, Number<R, P>{}, beside);
    for (int64_t k = 0; k < p; ++k) turn_rows(turn, a.at(p, k), a.at(q, k));
    for (int64_t k = p + 1; k < q; ++k) {
      // What stands above the diagonal is the conjugate of what stands below.
      Number<R, P> x = conjugate(a.at(k, p));
      turn_rows(turn, x, a.at(q, k));
      a.at(k, p) = conjugate(x);
    }
    for (int64_t k = q + 1; k < n; ++k) turn.apply(a.at(k, p), a.at(k, q));
    for (int64_t k = 0; k < n; ++k) turn.apply(vectors.at(k, p), vectors.at(k, q));
  }
  static void turn_rows(const Rotation<R, P>& turn, Number<R, P>& x, Number<R, P>& y) {
    Rotation<R, P> other = turn;
    other.sin = conjugate(turn.sin);
    other.apply(x, y);
  }
};

// In which order the values of one lane ascend.
template <typename R>
void ascending(const Vec<R>* values, int64_t n, int lane, int64_t* order) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = i;
    for (; at > 0 && values[order[at - 1]][lane] > values[i][lane]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
}

template <typename R, int P>
void eigen(char uplo, bool by_rows, int64_t n, int64_t count, const void* from, void* vectors,
           void* values, int32_t* infos) {
  Jacobi<R, P> jacobi;
  // Read as the lower triangle of the matrix or of its conjugate.
  jacobi.a.order(by_rows != (uplo == 'U'), n, n);
  const bool is_conjugate = uplo == 'U';
  Tile<R, P>& v = jacobi.vectors;
  v.order(false, n, n);
  for_groups<R>(count, [&](int64_t first, int width) {
    Tile<R, P>& a = jacobi.a;
    a.read(from, n * n, first, width);
    Vec<R> most{}, zeros{};
    for (int64_t j = 0; j < n; ++j) {
      if constexpr (P == 2) a.at(j, j).part[1] = Vec<R>{};
      for (int64_t i = j; i < n; ++i) {
        if (is_conjugate) a.at(i, j) = conjugate(a.at(i, j));
        for (int p = 0; p < P; ++p) {
          most = larger(magnitude(a.at(i, j).part[p]), most);
          zeros += a.at(i, j).part[p] * R(0);
        }
      }
    }
    const Mask<R> finite = zeros == 0;
    const Scale<R> scale(finite ? most : Vec<R>{});
    Vec<R> norm{};
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        v.at(i, j) = {};
        if (i == j) v.at(i, j) = {{all(R(1))}};
        if (i < j) continue;
        a.at(i, j) = where(finite, scaled(a.at(i, j), scale.down), {});
        norm += square(a.at(i, j));
      }
    }
    const Mask<R> left = jacobi.run(n, norm * (kEpsilon<R> * kEpsilon<R> / 4));
    Vec<R> found[kMostLaneRows];
    for (int64_t i = 0; i < n; ++i) found[i] = a.at(i, i).part[0] * scale.up + R(0);
    for (int l = 0; l < width; ++l) {
      int64_t order[kMostLaneRows];
      ascending<R>(found, n, l, order);
      R* to = static_cast<R*>(values) + (first + l) * n;
      for (int64_t j = 0; j < n; ++j) to[j] = found[order[j]][l];
      infos[first + l] = !finite[l] ? kNotFiniteInfo : left[l] ? 1 : 0;
      R* columns = static_cast<R*>(vectors) + (first + l) * n * n * P;
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          const Number<R, P>& x = v.at(i, order[j]);
          R* out = columns + P * (by_rows ? i * n + j : i + j * n);
          // A zero is positive, however often it was turned by nothing.
          for (int p = 0; p < P; ++p) out[p] = x.part[p][l] + R(0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace hekla::lapack
