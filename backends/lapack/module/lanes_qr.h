// SPDX-License-Identifier: Apache-2.0
// QR of small matrices by reflectors, a matrix in each lane. Part of lanes_body.h.
#pragma once

#include "backends/lapack/module/lanes_tile.h"

namespace hekla::lapack {
namespace {

// Column c becomes H c, or with the conjugate of tau H^H c, for the reflector H = 1 - tau v v^H
// whose v is 1 in row j and stands below that in column j.
template <typename R, int P>
void reflect(Tile<R, P>& a, int64_t m, int64_t j, int64_t c, const Number<R, P>& tau) {
  Number<R, P> sums[2] = {a.at(j, c), {}};
  int64_t i = j + 1;
  for (; i + 2 <= m; i += 2) {
    add(sums[0], conjugate(a.at(i, j)), a.at(i, c));
    add(sums[1], conjugate(a.at(i + 1, j)), a.at(i + 1, c));
  }
  if (i < m) add(sums[0], conjugate(a.at(i, j)), a.at(i, c));
  for (int p = 0; p < P; ++p) sums[0].part[p] += sums[1].part[p];
  const Number<R, P> product = times(tau, sums[0]);
  for (int p = 0; p < P; ++p) a.at(j, c).part[p] -= product.part[p];
  for (i = j + 1; i < m; ++i) {
    Number<R, P> rest = a.at(i, c);
    take(rest, product, a.at(i, j));
    a.at(i, c) = rest;
  }
}

// The reflector that leaves a real number of column j, in its place; 0 where there is nothing to
// do.
template <typename R, int P>
Number<R, P> make_reflector(Tile<R, P>& a, int64_t m, int64_t j) {
  Vec<R> most{};
  for (int64_t i = j; i < m; ++i) {
    // NaN is larger than anything: it must not be lost.
    const Vec<R> size = size_of(a.at(i, j));
    most = size <= most ? most : size;
  }
  const Scale<R> scale(most);
  const Number<R, P> alpha = scaled(a.at(j, j), scale.down);
  Vec<R> rest{};
  for (int64_t i = j + 1; i < m; ++i) {
    const Number<R, P> x = scaled(a.at(i, j), scale.down);
    a.at(i, j) = x;
    rest += square(x);
  }
  Mask<R> trivial = rest == 0;
  if constexpr (P == 2) trivial &= alpha.part[1] == 0;
  const Vec<R> norm = root<R>(square(alpha) + rest);
  const Vec<R> beta = alpha.part[0] >= 0 ? -norm : norm;
  Number<R, P> tau{{(beta - alpha.part[0]) / beta}};
  Number<R, P> difference{{alpha.part[0] - beta}};
  if constexpr (P == 2) {
    tau.part[1] = -alpha.part[1] / beta;
    difference.part[1] = alpha.part[1];
  }
  const Number<R, P> factor = inverse(where(trivial, Number<R, P>{{all(R(1))}}, difference));
  for (int64_t i = j + 1; i < m; ++i) a.at(i, j) = times(a.at(i, j), factor);
  const Number<R, P> here{{beta * scale.up}};
  a.at(j, j) = where(trivial, a.at(j, j), here);
  return where(trivial, Number<R, P>{}, tau);
}

template <typename R, int P>
void qr(bool by_rows, int64_t m, int64_t n, int64_t count, const void* from, void* to, void* tau) {
  Tile<R, P> a, factors;
  a.order(by_rows, m, n);
  const int64_t most = m < n ? m : n;
  for_groups<R>(count, [&](int64_t first, int width) {
    a.read(from, m * n, first, width);
    for (int64_t j = 0; j < most; ++j) {
      factors.numbers[j] = make_reflector(a, m, j);
      const Number<R, P> adjoint = conjugate(factors.numbers[j]);
      for (int64_t c = j + 1; c < n; ++c) reflect(a, m, j, c, adjoint);
    }
    a.write(to, m * n, first, width);
    factors.write(tau, most, first, width);
  });
}

// The first n columns of the product of the k reflectors in `a`.
template <typename R, int P>
void multiply_reflectors(Tile<R, P>& a, int64_t m, int64_t n, int64_t k, const Number<R, P>* taus) {
  const Number<R, P> zero{}, one{{all(R(1))}};
  for (int64_t c = k; c < n; ++c) {
    for (int64_t i = 0; i < m; ++i) a.at(i, c) = i == c ? one : zero;
  }
  for (int64_t j = k - 1; j >= 0; --j) {
    const Number<R, P> factor = taus[j];
    for (int64_t c = j + 1; c < n; ++c) reflect(a, m, j, c, factor);
    Number<R, P> minus = factor;
    for (int p = 0; p < P; ++p) minus.part[p] = -minus.part[p];
    for (int64_t i = j + 1; i < m; ++i) a.at(i, j) = times(a.at(i, j), minus);
    for (int p = 0; p < P; ++p) a.at(j, j).part[p] = one.part[p] - factor.part[p];
    for (int64_t i = 0; i < j; ++i) a.at(i, j) = zero;
  }
}

template <typename R, int P>
void qr_vectors(bool by_rows, int64_t m, int64_t n, int64_t k, int64_t count, const void* from,
                const void* tau, void* to) {
  Tile<R, P> a, factors;
  a.order(by_rows, m, n);
  for_groups<R>(count, [&](int64_t first, int width) {
    a.read(from, m * n, first, width);
    factors.read(tau, k, first, width);
    multiply_reflectors(a, m, n, k, factors.numbers);
    a.write(to, m * n, first, width);
  });
}

}  // namespace
}  // namespace hekla::lapack
